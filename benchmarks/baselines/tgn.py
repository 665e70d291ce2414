"""``hoptrain bench accuracy --events``: TGN on JODIE's Wikipedia edits, with hoptrain and with PyG's ``examples/tgn.py`` on the same events.

The example keeps its own layers, loaders and training steps. Both systems are evaluated with the metrics of ``EventPredictor``, over the whole test
split with the same number of negatives, at the epoch with the best validation average precision.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from pytorch_lightning import Trainer, seed_everything
from torch import Tensor, nn
from torch_geometric.data import TemporalData
from torch_geometric.loader import TemporalDataLoader
from torch_geometric.nn import TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader, TGNMemory

from hoptrain.benchmarks.common.harness import HOPTRAIN, Result
from hoptrain.engine.datasets.events import Events, load_events
from hoptrain.trainers.commands.configs import FOLDER
from hoptrain.trainers.commands.lightning import TRAINER_DEFAULTS
from hoptrain.trainers.metrics.links import PooledScore, RankScore
from hoptrain.trainers.models.ranks import ranks_among
from hoptrain.trainers.resume.checkpoints import BestAndLast
from hoptrain.trainers.tasks.temporal_links import EventDataModule, EventPredictor

_WIDTH, _NEIGHBORS, _BATCH, _RATE = 100, 10, 200, 1e-4
_QUICK_EVENTS = 2000


def run_events(args: argparse.Namespace) -> Result:
    """Train with each seed and both systems. With ``--quick`` train one seed for one epoch on the first events."""
    config = yaml.safe_load((FOLDER / "wikipedia_tgn.yaml").read_text())
    events = load_events(config["data"].pop("events"), root=args.root)
    if args.quick:
        events = replace(events, **{name: getattr(events, name)[:_QUICK_EVENTS] for name in ("src", "dst", "t")})
    seeds, epochs = ([1], 1) if args.quick else (list(range(1, args.seeds + 1)), args.epochs or 10)
    records: list[dict[str, Any]] = []
    for seed in seeds:
        for system, scored in ((HOPTRAIN, hoptrain_scores), ("PyG", pyg_scores)):
            begin = time.perf_counter()
            scores = scored(EventDataModule(events, **config["data"], seed=seed), config["model"], seed, epochs)
            records.append({"system": system, "seed": seed, **scores, "seconds": time.perf_counter() - begin})
            print(" | ".join(f"{key} {value}" for key, value in records[-1].items()), flush=True)
    summary: dict[str, float] = {}
    for system in (HOPTRAIN, "PyG"):
        for score in ("ap", "auc", "mrr"):
            found = [row[score] for row in records if row["system"] == system]
            summary |= {f"{system}_{score}_{name}": of(found) for name, of in (("mean", statistics.mean), ("least", min), ("most", max))}
    return Result(records=records, summary=summary, seeds=seeds)


def hoptrain_scores(module: EventDataModule, model: dict[str, Any], seed: int, epochs: int) -> dict[str, float]:
    """Return the test metrics of hoptrain, trained as with ``hoptrain fit``."""
    seed_everything(seed, verbose=False)
    predictor = EventPredictor(module.num_nodes, module.message_channels, **model)
    with tempfile.TemporaryDirectory() as scratch:
        best = BestAndLast(scratch, monitor="val_ap", mode="max")
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        options = TRAINER_DEFAULTS | quiet | {"accelerator": "cpu", "max_epochs": epochs, "callbacks": [best], "default_root_dir": scratch}
        trainer = Trainer(**options)
        trainer.fit(predictor, module)
        found = trainer.test(predictor, module, ckpt_path=best.best_model_path, verbose=False, weights_only=True)[0]
    return {name: found[f"test_{name}"] for name in ("ap", "auc", "mrr")}


class Embedding(nn.Module):
    """An attention layer over each node's most recent neighbours."""

    def __init__(self, message_channels: int, time_enc: nn.Module) -> None:
        super().__init__()
        self.time_enc = time_enc
        self.conv = TransformerConv(_WIDTH, _WIDTH // 2, heads=2, dropout=0.1, edge_dim=message_channels + _WIDTH)

    def forward(self, x: Tensor, last_update: Tensor, edge_index: Tensor, t: Tensor, messages: Tensor) -> Tensor:
        """Return the nodes' embeddings, (S, 100)."""
        since = self.time_enc((last_update[edge_index[0]] - t).to(x.dtype))
        vectors: Tensor = self.conv(x, edge_index, torch.cat([since, messages], dim=-1))
        return vectors


class Example:
    """A copy of PyG's example that has the example's global variables as attributes."""

    def __init__(self, events: Events) -> None:
        messages = torch.zeros(len(events.t), 1) if events.messages is None else torch.from_numpy(events.messages)
        src, dst, t = (torch.from_numpy(column) for column in (events.src, events.dst, events.t))
        self.data = TemporalData(src=src, dst=dst, t=t, msg=messages)
        train, val = events.ends or (0, 0)
        self.parts = {"train": self.data[:train], "val": self.data[train:val], "test": self.data[val:]}
        self.neighbors = LastNeighborLoader(events.num_nodes, size=_NEIGHBORS)
        sizes = messages.shape[1], _WIDTH, _WIDTH
        self.memory = TGNMemory(events.num_nodes, *sizes, IdentityMessage(*sizes), LastAggregator())
        self.embedding = Embedding(messages.shape[1], self.memory.time_enc)
        self.ends = nn.ModuleList([nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)])
        self.last = nn.Linear(_WIDTH, 1)
        self.modules = nn.ModuleList([self.memory, self.embedding, self.ends, self.last])
        self.optimizer = torch.optim.Adam(self.modules.parameters(), lr=_RATE)
        self.places = torch.empty(events.num_nodes, dtype=torch.long)

    def scores(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the logits of a batch's events (B,) and of their negatives (B, K)."""
        nodes, edges, numbers = self.neighbors(batch.n_id)
        self.places[nodes] = torch.arange(len(nodes))
        x, last_update = self.memory(nodes)
        x = self.embedding(x, last_update, edges, self.data.t[numbers], self.data.msg[numbers])
        source, destination = self.ends[0](x[self.places[batch.src]]), self.ends[1](x)
        event = self.last((source + destination[self.places[batch.dst]]).relu())[:, 0]
        others = self.places[batch.neg_dst.view(-1, len(batch.src))].T
        return event, self.last((source[:, None] + destination[others]).relu())[..., 0]

    def take_in(self, batch: Any) -> None:
        """Update the memory and the recent neighbours with the batch."""
        self.memory.update_state(batch.src, batch.dst, batch.t, batch.msg)
        self.neighbors.insert(batch.src, batch.dst)

    def train(self) -> None:
        """Train for one epoch."""
        self.modules.train()
        self.memory.reset_state()
        self.neighbors.reset_state()
        for batch in TemporalDataLoader(self.parts["train"], batch_size=_BATCH, neg_sampling_ratio=1.0):
            self.optimizer.zero_grad()
            event, others = self.scores(batch)
            loss = F.binary_cross_entropy_with_logits(event, torch.ones_like(event))
            loss = loss + F.binary_cross_entropy_with_logits(others, torch.zeros_like(others))
            self.take_in(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.memory.detach()

    @torch.no_grad()
    def evaluate(self, split: str, num_negatives: int) -> dict[str, float]:
        """Return the metrics of a split. Before the call, memory and neighbours must have read all events before the split."""
        self.modules.eval()
        parts = []
        for batch in TemporalDataLoader(self.parts[split], batch_size=_BATCH, neg_sampling_ratio=float(num_negatives)):
            parts.append(self.scores(batch))
            self.take_in(batch)
        events, others = (torch.cat(each) for each in zip(*parts, strict=True))
        one, labels = torch.cat([events, others[:, 0]]), torch.cat([torch.ones_like(events), torch.zeros_like(events)])
        scores = {"ap": PooledScore("ap"), "auc": PooledScore("auc"), "mrr": RankScore("mrr")}
        for name, score in scores.items():
            score.update(*((ranks_among(events, others), labels) if name == "mrr" else (one, labels)))
        return {name: float(score.compute()) for name, score in scores.items()}


def pyg_scores(module: EventDataModule, model: dict[str, Any], seed: int, epochs: int) -> dict[str, float]:
    """Return the test metrics of the example, trained on the module's events."""
    torch.manual_seed(seed)
    example = Example(module.data)
    found: list[tuple[float, dict[str, float]]] = []
    for _ in range(epochs):
        example.train()
        val = example.evaluate("val", module.num_negatives)
        found.append((val["ap"], example.evaluate("test", module.num_negatives)))
    return max(found, key=lambda each: each[0])[1]
