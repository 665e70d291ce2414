"""Randomly drawn trainings that are stopped at a random moment and resumed; importable by the processes that train."""

import os
import random
import signal
import sys
import traceback
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from cases.lightning_callbacks import EXTRAS, with_extras
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint, OnExceptionCheckpoint, StochasticWeightAveraging
from pytorch_lightning.loggers import Logger
from reference.hetero_data import hetero_classifier, hetero_data, hetero_module

from hoptrain import ActivationCheckpointing
from hoptrain import samplers as s
from hoptrain.engine import Dataset, Graph
from hoptrain.engine.datasets.events import Events
from hoptrain.engine.datasets.load_graphs import load_small_graphs
from hoptrain.engine.datasets.triples import Triples
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.pipeline import PipelineStrategy
from hoptrain.trainers.tasks.adaptive import AdaptiveNodeClassifier
from hoptrain.trainers.tasks.edges import EdgeDataModule, EdgePredictor
from hoptrain.trainers.tasks.items.graphs import GraphClassifier, GraphDataModule
from hoptrain.trainers.tasks.items.images import ImageClassifier, ImageDataModule
from hoptrain.trainers.tasks.items.sign import SIGNClassifier, SIGNDataModule
from hoptrain.trainers.tasks.kg import TripleDataModule, TriplePredictor
from hoptrain.trainers.tasks.links.data import HeteroLinkDataModule, LinkDataModule
from hoptrain.trainers.tasks.links.task import HeteroLinkPredictor, LinkPredictor
from hoptrain.trainers.tasks.nodes.task import HeteroClassifier
from hoptrain.trainers.tasks.temporal_links import EventDataModule, EventPredictor

SAMPLERS = {
    "neighbor": lambda: s.NeighborSampler([3, 3]),
    "replaced": lambda: s.NeighborSampler([3, 3], replace=True),
    "labor": lambda: s.LaborSampler([3, 3]),
    "ladies": lambda: s.LadiesSampler([32, 32]),
    "fastgcn": lambda: s.FastGCNSampler([32, 32]),
    "asgcn": lambda: s.ASGCNSampler([32, 32]),
    "vrgcn": lambda: s.VRGCNSampler([2, 2]),
    "mvs": lambda: s.MVSSampler(s.NeighborSampler([3, 3]), num_draws=10),
    "mvs-vrgcn": lambda: s.MVSSampler(s.VRGCNSampler([2, 2]), num_draws=10),
    "pinsage": lambda: s.PinSAGESampler([3, 3], num_walks=5, walk_length=2),
    "cluster": lambda: s.ClusterSampler(16),
    "saint-node": lambda: s.SaintNodeSampler(30, num_subgraphs=8),
    "saint-edge": lambda: s.SaintEdgeSampler(30, num_subgraphs=8),
    "saint-walk": lambda: s.SaintWalkSampler(10, num_subgraphs=8),
    "ripple": lambda: s.RippleWalkSampler(20, num_subgraphs=8),
    "shadow": lambda: s.ShadowSampler(depth=2, num_neighbors=3, num_layers=2),
    "shadow-ppr": lambda: s.ShadowPPRSampler(top=8, num_layers=2),
    "temporal": lambda: s.TemporalSampler([3, 3], seed_times=np.arange(200) * 2),
    "pipeline": lambda: s.NeighborSampler([3, 3]),
}
ONE_A_BATCH = ("saint-node", "saint-edge", "saint-walk", "ripple")
TASKS = (
    *SAMPLERS,
    "links",
    "sign",
    "images",
    "graphs",
    "hetero",
    "hetero_links",
    "temporal_links",
    "graphs-targets",
    "graphs-labels",
    "kg",
    "recommend",
    "edges",
    "balanced",
)
MOMENTS = (
    "on_train_batch_start", "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_train_epoch_start",
    "on_train_epoch_end", "on_validation_start", "on_validation_batch_start", "on_validation_end", "on_save_checkpoint", "while it is written",
)  # fmt: skip


def draw(seed, number):
    """Draw a training and the moment at which it stops, as plain values; ``number`` below ``len(TASKS)`` selects the task."""
    pick = random.Random(f"{seed} {number}")
    task = TASKS[number] if isinstance(number, int) and number < len(TASKS) else pick.choice([task for task in TASKS if task != "pipeline"])
    swa = pick.random() < 0.1
    case = {
        "seed": seed,
        "number": number,
        "task": task,
        "arch": pick.choice(("sage", "gat", "gcn", "gin")) if task in ("neighbor", "graphs") else "sage",
        "norm": pick.choice(("none", "layer")) if swa else pick.choice(("none", "batch", "layer")),
        "ranks": 1 + (pick.random() < 0.3),
        "workers": pick.choice((0, 0, 1, 2)),
        "precision": pick.choice(("32-true", "32-true", "bf16-mixed")),
        "accumulate": pick.choice((1, 1, 2, 3)),
        "clip": pick.choice((None, 0.1)),
        "scheduler": None if swa else pick.choice((None, "step", "epoch", "plateau by step", "plateau by epoch")),
        "limit": pick.choice((None, None, 5, 0.6)),
        "validate": pick.choice((1.0, 1.0, 2, 0.5)),
        "end": pick.choice((("max_epochs", 3), ("max_epochs", 3), ("max_steps", pick.randrange(5, 15)))),
        "checkpoints": sorted({pick.choice(("steps", "validation", "epoch")) for _ in range(2)}),
        "every": pick.randrange(1, 5),
        "swa": swa,
        "early": pick.random() < 0.2,
        "on_exception": pick.random() < 0.5,
        "moment": pick.choice(MOMENTS),
        "at": pick.randrange(1, 14),
        "kind": pick.choice(("exception", "SIGTERM", "SIGKILL")),
        "victim": pick.randrange(2),
        "recompute": pick.random() < 0.2,
    }
    case |= {"min_epochs": pick.choice((None, None, 2, 3)), "extras": sorted(pick.sample(sorted(EXTRAS), pick.choice((0, 0, 1, 2))))}
    with_extras(case, *case["extras"])
    if task == "kg":  # sparse gradients are not clipped
        case |= {"clip": None}
    if task in ("hetero", "hetero_links"):  # nor in these tasks
        case |= {"clip": None, "arch": pick.choice(("rgcn", "gat", "hgt", "han", "gin"))}
    if task == "recommend":
        case |= {"clip": None, "embeddings": pick.choice(("sparse", "dense"))}
    if task == "pipeline":  # restricted to the features of a pipeline with two stages
        case |= {"ranks": 2, "precision": "32-true", "accumulate": 1, "clip": None, "swa": False, "norm": "none", "extras": []}
    if task == "temporal_links":  # its times need full precision, and it has no layers
        case |= {"precision": "32-true"}
    if task in ("temporal_links", "pipeline", "vrgcn", "mvs-vrgcn"):
        case |= {"recompute": False}
    return case


class StoppedError(RuntimeError):
    """The exception with which ``Stopper`` ends a run."""


class Stopper(Callback):
    """A callback that stops the run at the n-th occurrence of a moment, and creates ``mark``; with fewer occurrences the run ends normally."""

    def __init__(self, case, rank, mark):
        self.mark = mark
        self.left = case["at"] if case["moment"].startswith(("on_train_b", "on_b", "on_a")) else 1 + case["at"] % 3
        self.kind = case["kind"]
        self.is_victim = rank == case["victim"] % case["ranks"] or self.kind == "SIGTERM"
        if case["moment"] != "while it is written":
            setattr(self, case["moment"], self.come)
        elif self.is_victim and rank == 0:
            torch.save = partial(self.write, torch.save)

    def come(self, *_):
        self.left -= 1
        if self.left == 0 and self.is_victim:
            self.mark.touch()
            if self.kind == "exception":
                raise StoppedError("stopped")
            os.kill(os.getpid(), getattr(signal, self.kind))

    def write(self, save, *arguments, **options):
        self.come()
        return save(*arguments, **options)


class Record(Logger):
    """A logger that keeps the logged losses and metrics."""

    name, version = "record", 0

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        # Times and throughput depend on the machine.
        self.rows.append([step, {name: value for name, value in sorted(metrics.items()) if name.startswith(("train_", "val_"))}])

    def log_hyperparams(self, *_):
        pass


class Addresses(Callback):
    """A callback that keeps the addresses of the batches trained on."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        address = getattr(batch, "address", None)
        self.seen.append((batch.epoch, batch.batch) if address is None else (address.epoch, address.batch))


def write_data(folder):
    """Write the data of all tasks."""
    hetero_data().save(folder / "mixed")
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 200, 3000), (rng.random(3000) ** 2 * 200).astype(np.int64)
    order = rng.permutation(200)
    splits = {"train": np.sort(order[:128]), "val": np.sort(order[128:160]), "test": np.sort(order[160:])}
    x, y = rng.random((200, 7), dtype=np.float32), rng.integers(0, 3, 200)
    Dataset(name="random", graph=Graph.from_edges(src, dst, 200, times=np.arange(3000) % 500), x=x, y=y, splits=splits, num_classes=3).save(
        folder / "random"
    )
    sizes = 3 + np.arange(100) % 4
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    before = np.concatenate([(np.arange(size) - 1) % size + begin for begin, size in zip(ptr, sizes, strict=False)])
    arrays = {"indptr": np.arange(ptr[-1] + 1), "indices": before, "node_label": np.arange(ptr[-1]) % 3, "graph_ptr": ptr}
    np.savez(folder / "rings.npz", graph_y=np.arange(100) % 2, fold10=np.arange(100) // 10, **arrays)
    images = {"x": rng.integers(0, 256, (128, 4, 4, 1)), "y": rng.integers(0, 3, 128)}
    parts = {
        f"{part}_{name}": array[:size].astype(np.uint8) for part, size in (("train", 128), ("test", 32)) for name, array in images.items()
    }
    np.savez(folder / "pictures.npz", **parts)


def parts(case, folder):
    """Return the data module and the model of a case."""
    task, data = case["task"], folder / "data"
    if task in ("images", "sign") or task.startswith("graphs"):
        os.environ["HOPTRAIN_CACHE"] = str(folder / "cache")  # data sets are converted for this test only
    if task == "images":
        module = ImageDataModule("pictures", root=str(data), batch_size=16, seed=4, shift=1)
        sizes = {"patch": 2, "width": 8, "head_width": 8, "num_blocks": 1, "neighbors": 2, "heads": 2}
        return module, scheduled(ImageClassifier, case)(module.image_shape, module.num_classes, norm="group", **sizes)
    if task.startswith("graphs"):
        rings, of_labels = load_small_graphs("rings", root=str(data)), {}
        if task == "graphs-targets":
            rings, of_labels = replace(rings, y=rings.ptr[1:] % 7 / 4, num_classes=0), {"metric": "r2"}
        if task == "graphs-labels":
            y = np.stack([rings.ptr[1:] % 3, rings.ptr[1:] % 5], 1) % 3 - 1  # -1 is unknown
            rings, of_labels = replace(rings, y=y, num_classes=0), {"multilabel": True, "metric": "micro_f1"}
        module = GraphDataModule(rings, batch_size=10, seed=4, num_workers=case["workers"])
        return module, scheduled(GraphClassifier, case)(
            module.num_features, module.num_classes, hidden_channels=8, num_layers=2, **of_labels
        )
    if task == "sign":
        module = SIGNDataModule(str(data / "random"), num_hops=2, batch_size=16, seed=4)
        return module, scheduled(SIGNClassifier, case)(module.num_features, module.num_classes, module.num_hops, hidden_channels=8)
    if task == "hetero":
        module = hetero_module(str(data / "mixed"), num_workers=case["workers"])
        return module, hetero_classifier(module, scheduled(HeteroClassifier, case), arch=case["arch"])
    if task == "hetero_links":
        relations = [("author", "writes", "paper"), ("paper", "on", "subject")]
        sampler = s.HeteroLinkSampler(s.HeteroSampler([3, 3]), relations, "filtered", 2)
        module = HeteroLinkDataModule(str(data / "mixed"), sampler, batch_size=32, num_workers=case["workers"], seed=4)
        sizes = {name: getattr(module, name) for name in ("num_nodes", "relations", "link_relation")}
        options = {"hidden_channels": 8, "heads": 2, "embeddings": True, "dropout": 0.3, "arch": case["arch"], "decoder": "distmult"}
        make = scheduled(HeteroLinkPredictor, case)
        return module, make(in_channels=module.num_features, num_layers=module.num_hops, **sizes, **options)
    if task == "links":
        sampler = s.LinkSampler(s.NeighborSampler([3, 3]))
        module = LinkDataModule(dataset=str(data / "random"), sampler=sampler, batch_size=256, num_workers=case["workers"], seed=4)
        return module, scheduled(LinkPredictor, case)(module.num_features, module.num_hops, hidden_channels=8, out_channels=4, dropout=0.2)
    if task == "edges":
        known = Dataset.open(data / "random")
        labelled = replace(known, edge_y=(known.graph.indices + known.graph.destinations()) % 3, validate=True)
        module = EdgeDataModule(
            labelled, s.LinkSampler(s.NeighborSampler([3, 3]), num_negatives=0), batch_size=256, num_workers=case["workers"], seed=4
        )
        sizes = {"hidden_channels": 8, "out_channels": 4, "dropout": 0.2}
        return module, scheduled(EdgePredictor, case)(module.num_features, module.num_classes, module.num_hops, **sizes)
    if task == "recommend":
        rng = np.random.default_rng(3)
        src, dst = np.divmod(rng.permutation(30 * 40)[:400], 40)
        graph, splits = Graph.from_edges(np.r_[src, 30 + dst], np.r_[30 + dst, src], 70), {"val": np.arange(40), "test": np.arange(40, 80)}
        splits["train"] = np.r_[80:400, 480:800]
        sampler = s.LinkSampler(s.NeighborSampler([3, 3]), "filtered", dst_range=(30, 70))
        shop = Dataset(name="shop", graph=graph, edge_splits=splits)
        module = LinkDataModule(shop, sampler, batch_size=20, num_workers=case["workers"], seed=4)
        options = {"arch": "lightgcn", "embeddings": case["embeddings"], "loss": "bpr", "l2": 0.01, "metric": "recall@5", "lr": 0.01}
        return module, scheduled(LinkPredictor, case)(0, 2, module.num_nodes, 8, 8, **options)
    if task == "kg":
        rows = np.random.default_rng(3).integers(0, (40, 3, 40), (400, 3))
        triples = Triples(
            splits=dict(zip(("train", "val", "test"), np.split(np.unique(rows, axis=0), [300, 330]), strict=True)), num_nodes=40
        )
        options = {"num_negatives": 10, "allow_unseen": True, "batch_size": 32, "num_workers": case["workers"], "seed": 4}
        module = TripleDataModule(triples, s.NeighborSampler([3]), **options)
        sizes = {"hidden_channels": 8, "num_blocks": 2, "dropout": 0.2}
        return module, scheduled(TriplePredictor, case)(module.num_nodes, module.num_relations, module.num_hops, **sizes)
    if task == "temporal_links":
        rng = np.random.default_rng(3)
        events = Events(src=rng.integers(0, 20, 300), dst=rng.integers(15, 30, 300), t=np.sort(rng.integers(0, 900, 300)))
        module = EventDataModule(events, num_neighbors=3, num_negatives=4, batch_size=16, num_workers=case["workers"], seed=4)
        sizes = {"memory_channels": 8, "time_channels": 4, "hidden_channels": 8}
        return module, scheduled(EventPredictor, case)(module.num_nodes, module.message_channels, **sizes, lr=0.01)
    batch_size = 1 if task in ONE_A_BATCH else 2 if task == "cluster" else 16
    feed = {
        "batch_size": batch_size,
        "num_workers": case["workers"],
        "seed": 4,
        "class_balanced_sampling": task == "balanced",
    }
    module = NodeDataModule(str(data / "random"), SAMPLERS["neighbor" if task == "balanced" else task](), **feed)
    kind = AdaptiveNodeClassifier if task == "asgcn" else NodeClassifier
    options = {"arch": case["arch"], "norm": case["norm"], "hidden_channels": 8, "heads": 2, "dropout": 0.3, "lr": 0.01}
    return module, scheduled(kind, case)(module.num_features, module.num_classes, module.num_hops, **options)


def scheduled(kind, case):
    """Return the model's class with the learning rate scheduler of the case."""
    scheduler = case["scheduler"]

    class Scheduled(kind):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            if scheduler is None:
                return optimizer
            interval = "step" if "step" in scheduler else "epoch"
            if scheduler.startswith("plateau"):
                made = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=0, threshold=0.1)
                return [optimizer], [{"scheduler": made, "interval": interval, "monitor": "val_loss", "strict": False}]
            made = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            return [optimizer], [{"scheduler": made, "interval": interval}]

    return Scheduled


def strategy(case):
    """Return Lightning's strategy for the ranks of a case."""
    if case["task"] == "pipeline":
        return PipelineStrategy(stages=2, chunks=2, balance=[1, 1])
    return "ddp" if case["ranks"] > 1 else "auto"


def callbacks(case, folder):
    """Return the callbacks of a case, including several checkpoints."""
    kinds = {
        "steps": {"every_n_train_steps": case["every"], "save_top_k": -1, "filename": "{step}"},
        "validation": {"monitor": "val_loss", "save_top_k": 2, "save_last": True, "filename": "{epoch}-{step}-val"},
        "epoch": {"save_on_train_epoch_end": True, "save_top_k": -1, "filename": "{epoch}-end"},
    }
    made = [ModelCheckpoint(folder / kind, **kinds[kind]) for kind in case["checkpoints"]]
    if case["swa"]:
        made.append(StochasticWeightAveraging(swa_lrs=0.005, swa_epoch_start=2, annealing_epochs=2))
    if case["early"]:
        made.append(EarlyStopping("val_loss", patience=1, min_delta=0.02, strict=False))
    made += [EXTRAS[name](case) for name in case["extras"]]
    if case["recompute"]:
        made.append(ActivationCheckpointing())
    if case["on_exception"]:
        made.append(OnExceptionCheckpoint(folder / "exception"))
    return made


def train(case, folder, out, checkpoint, rank, port):
    """Train undisturbed, stopped or resumed, as the name of ``out`` says; write weights and records to ``out``."""
    os.dup2(os.open(f"{out}.{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if case["ranks"] > 1:
        launched = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": case["ranks"], "NODE_RANK": 0, "LOCAL_RANK": rank}
        os.environ.update({name: str(value) for name, value in launched.items()})
    try:
        torch.save(fit(case, folder, out, checkpoint, rank), f"{out}.{rank}.pt")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def fit(case, folder, out, checkpoint, rank=0):
    """Train in this process, and return the values in which an uninterrupted and a resumed training are compared."""
    module, model = parts(case, folder)
    addresses, record = Addresses(), Record()
    extra = [Stopper(case, rank, out.with_suffix(".struck"))] if out.name == "stopped" else []
    ending, number = case["end"]
    trainer = Trainer(
        accelerator="cpu", devices=case["ranks"], strategy=strategy(case), precision=case["precision"],
        accumulate_grad_batches=case["accumulate"], gradient_clip_val=case["clip"], limit_train_batches=case["limit"],
        val_check_interval=case["validate"], callbacks=[*extra, addresses, *callbacks(case, out)], logger=record, log_every_n_steps=1,
        use_distributed_sampler=False, num_sanity_val_steps=0, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=out, min_epochs=case["min_epochs"],
        **({"max_steps": number, "max_epochs": -1} if ending == "max_steps" else {"max_epochs": number}),
    )  # fmt: skip
    trainer.fit(model, module, ckpt_path=checkpoint, weights_only=True)
    result = {
        "weights": model.state_dict(),
        "optimizer": trainer.optimizers[0].state_dict(),
        "addresses": addresses.seen,
        "rows": record.rows,
    }
    return result | {"steps": trainer.global_step, "epoch": trainer.current_epoch}
