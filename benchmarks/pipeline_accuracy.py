"""What accuracy does a GAT lose if its batch is split into chunks: by seeds, or by node id as in Dearing & Wang (2020)?

The model is the paper's GAT (2 layers, 8 heads, dropout 0.6) on PubMed, trained for 300 epochs of one batch; accuracies are those of the last epoch. The
chunks go through the whole model one after another in this process. Pipeline stages would change only the time, not the results, even with dropout:
``tests/trainers/pipeline/test_gradients.py`` checks this.

Splitting by node id drops the edges between chunks. The paper's pipeline also dropped them in evaluation, so the table has accuracies on both graphs.
A variant without self-loops ("no self loops") shows the effect on nodes that lose all their neighbours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from hoptrain.benchmarks.common import tables
from hoptrain.benchmarks.common.harness import Result
from hoptrain.engine import Dataset, load_dataset
from hoptrain.samplers import NeighborSampler

EPOCHS, CHUNKS = 300, (1, 2, 3, 4)
BARE = "by-index, no self loops"
PAPER = {1: 0.778, 2: 0.600, 3: 0.492, 4: 0.458}
"""Validation accuracy by number of chunks, from Table 2 of Dearing & Wang."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings per configuration, with seeds 1, 2, ... (default 3)")
    parser.add_argument("--root", help="folder with pubmed.npz (default: $HOPTRAIN_DATA)")


def run(args: argparse.Namespace) -> Result:
    """Train all configurations and print the table. With ``--quick`` train for 20 epochs with one seed, with 1 and 4 chunks."""
    data = load_dataset("pubmed", root=args.root)
    seeds = list(range(1, 2 if args.quick else args.seeds + 1))
    epochs, counts = (20, (1, 4)) if args.quick else (EPOCHS, CHUNKS)
    cells = [("seeds", count) for count in counts] + [("by-index", count) for count in counts[1:]] + [(BARE, count) for count in counts]
    records = [_train(data, cut, count, seed, epochs) for cut, count in cells for seed in seeds]
    means = {cell: _means(record for record in records if (record["cut"], record["chunks"]) == cell) for cell in cells}
    print(tables.markdown([_line(*cell, mean) for cell, mean in means.items()]))
    whole = means["seeds", 1]
    gaps = [100 * abs(mean["test_accuracy"] - whole["test_accuracy"]) for (cut, _), mean in means.items() if cut == "seeds"]
    most = counts[-1]
    summary = {
        "test_accuracy_whole": whole["test_accuracy"],
        "largest_gap_points": max(gaps),
        "by_index_loss_points": 100 * (whole["val_accuracy"] - means["by-index", most]["val_accuracy_cut"]),
        "by_index_no_self_loops_loss_points": 100 * (means[BARE, 1]["val_accuracy"] - means[BARE, most]["val_accuracy_cut"]),
    }
    return Result(records=records, summary=summary, seeds=seeds)


def _train(data: Dataset, kind: str, chunks: int, seed: int, epochs: int) -> dict[str, Any]:
    """Train once. Return the milliseconds per epoch, and the accuracies after the last epoch: on the whole graph and without the dropped edges."""
    import torch  # imported here, since torch would slow down --help
    import torch.nn.functional as F

    from hoptrain.trainers.models import GNN
    from hoptrain.trainers.models.inference import layerwise_inference
    from hoptrain.trainers.pipeline import ChunkLoader, apply_layers, chunk_of, cut_by_index

    torch.manual_seed(seed)
    model = GNN("gat", data.num_features, 64, data.num_classes, 2, dropout=0.6, input_dropout=0.6, heads=8, out_heads=8)
    for layer in model.layers:
        convolution: Any = layer.conv
        convolution.add_self_loops = kind != BARE
    chunking: Literal["seeds", "by-index"] = "seeds" if kind == "seeds" else "by-index"
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    loader = ChunkLoader(data, NeighborSampler([-1, -1]), chunks=chunks, chunking=chunking, batch_size=512, seed=seed)
    degrees = torch.from_numpy(data.graph.in_degrees()).float()
    begin = time.perf_counter()
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            for number, part in enumerate(batch.to("cpu").chunks):
                chunk = chunk_of(part, number, degrees, normalize=True)
                output = apply_layers(model, chunk, range(2), chunk.x)  # type: ignore[arg-type]  # features were gathered
                torch.autograd.backward(F.cross_entropy(output, chunk.target[0], reduction="sum") / part.num_step_seeds)
            optimizer.step()
    seconds = time.perf_counter() - begin
    model.eval()
    cut = replace(data, graph=cut_by_index(data.graph, chunks), validate=False) if chunking == "by-index" else data
    record: dict[str, Any] = {"cut": kind, "chunks": chunks, "seed": seed, "epochs": epochs}
    record["edges_lost"] = 1 - cut.graph.num_edges / data.graph.num_edges
    record["epoch_ms"] = 1000 * seconds / epochs
    for split in ("val", "test"):
        nodes = data.split(split)
        for name, graph in (("", data), ("_cut", cut)):
            scores = layerwise_inference(model, graph, nodes, normalize=True, device=torch.device("cpu"))
            record[f"{split}_accuracy{name}"] = float(np.mean(scores.argmax(1).numpy() == np.take(data.y, nodes)))  # type: ignore[arg-type]
    return record


def _means(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each number over the seeds."""
    records = list(records)
    return {name: statistics.mean(record[name] for record in records) for name in records[0] if name not in ("cut", "seed")}


def _line(kind: str, chunks: int, mean: dict[str, float]) -> dict[str, Any]:
    """Return a row of the Markdown table: how batches are split into chunks, the number of chunks, and mean accuracies."""
    names = {
        "edges_lost": "edges lost",
        "test_accuracy": "test",
        "val_accuracy": "validation",
        "val_accuracy_cut": "validation, edges lost too",
    }
    paper = f"{PAPER[chunks]:.3f}" if kind != "seeds" or chunks == 1 else ""
    figures = {title: f"{mean[name]:.3f}" for name, title in names.items()}
    return {"cut": kind, "chunks": chunks, **figures, "Dearing & Wang, validation": paper}
