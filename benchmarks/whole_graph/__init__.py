"""Does a model become accurate sooner if it is trained on sampled mini-batches, or on the whole graph?

Both systems train the same model on the same data, in one process on one thread: one with neighbour sampling, the other with ``task: full_batch``, whose
epoch is a single step over all nodes. The question is from "The Case for Sampling" (Serafini & Guan 2021). The system that has used less CPU time runs its
next epoch, until each has used its ``--seconds``. Only sampling and training count, not the evaluations, which use all neighbours. Targets are shares of the
best validation accuracy of both systems: ``seconds_to_0.99`` is the time at which a system first reached 99 % of it, or None if it never did.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hoptrain.benchmarks.common.harness import Result
from hoptrain.engine import Dataset, load_dataset
from hoptrain.engine.machine import keep_freed_memory

LOOKS = 25
TARGETS = (0.95, 0.99)


class Setting(NamedTuple):
    """The options of a training on one data set.

    Attributes:
        scale: scale of a synthetic data set.
        fanouts: fanouts of the sampler.
        batch_size: seeds of a mini-batch.
        seconds: largest training time of each system in seconds.
        normalize: whether to divide each node's features by their sum.
    """

    scale: float = 1.0
    fanouts: tuple[int, ...] = (10, 10)
    batch_size: int = 1024
    seconds: float = 60.0
    normalize: bool = False


SETTINGS = {
    "pubmed": Setting(batch_size=60, seconds=5, normalize=True),
    "amazon_computers": Setting(seconds=40),
    "coauthor_physics": Setting(seconds=30, normalize=True),
    "synthetic:arxiv": Setting(scale=0.2, seconds=20),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="data sets (default: all of them)")
    parser.add_argument("--arch", nargs="+", choices=("sage", "gcn", "gat"), default=["sage"], help="models (default sage)")
    parser.add_argument(
        "--seeds", type=int, default=1, help="number of runs for each data set and model, with the random seeds 1, 2, ... (default 1)"
    )
    parser.add_argument("--seconds", type=float, help="seconds of training for each system (default by data set)")
    parser.add_argument("--root", help="folder that holds the data sets (default: $HOPTRAIN_DATA)")


def run(args: argparse.Namespace) -> Result:
    """Train on each data set with each model; with ``--quick`` only GraphSAGE on PubMed for a second."""
    import torch  # imported here to keep --help fast

    torch.set_num_threads(1)
    keep_freed_memory()  # keeps freed memory for reuse, as ``hoptrain fit`` does
    names, archs, seeds = (["pubmed"], ["sage"], [1]) if args.quick else (args.data, args.arch, list(range(1, args.seeds + 1)))
    records: list[dict[str, Any]] = []
    for name in names:
        setting = SETTINGS[name]
        seconds = args.seconds or (1.0 if args.quick else setting.seconds)
        data = load_dataset(name, root=args.root, scale=setting.scale)
        for arch in archs:
            for seed in seeds:
                records += compare(data, setting, arch, seed, seconds)
                for record in records[-len(SYSTEMS) :]:
                    print(" | ".join(f"{key} {value}" for key, value in record.items()), flush=True)
    return Result(records=records, summary=summary(records), seeds=seeds)


def compare(data: Dataset, setting: Setting, arch: str, seed: int, seconds: float) -> list[dict[str, Any]]:
    """Train both systems in turn and return a record for each."""
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in SYSTEMS}
    tests, epochs, spent = dict.fromkeys(SYSTEMS, 0.0), dict.fromkeys(SYSTEMS, 0), dict.fromkeys(SYSTEMS, 0.0)
    running = {name: make(data, setting, arch, seed) for name, make in SYSTEMS.items()}
    while running:
        # continue the system that has run for less time, so that load on the machine affects both alike
        name = min(running, key=spent.__getitem__)
        took, model = next(running[name])
        spent[name] += took
        epochs[name] += 1
        if spent[name] < (len(curves[name]) + 1) * seconds / LOOKS:
            continue
        val, test = scores_on(data, setting, model)
        tests[name] = test if val > max((score for _, score in curves[name]), default=-1.0) else tests[name]
        curves[name].append((spent[name], val))
        if spent[name] >= seconds:
            del running[name]
    best = max(score for curve in curves.values() for _, score in curve)
    place = {"data": data.name, "nodes": data.graph.num_nodes, "edges": data.graph.num_edges, "arch": arch, "seed": seed}
    return [
        place | {"system": name, "epochs": epochs[name], "epoch_ms": 1000 * spent[name] / epochs[name], "best_val": max(v for _, v in curve)}
        | {"test": tests[name]}
        | {f"seconds_to_{target}": next((when for when, score in curve if score >= target * best), None) for target in TARGETS}
        for name, curve in curves.items()
    ]  # fmt: skip


def _model(data: Dataset, arch: str, seed: int) -> tuple[Any, Any]:
    """Return a model and its optimiser; both systems start with the same weights."""
    import torch

    from hoptrain.trainers.models import GNN

    torch.manual_seed(seed)
    model = GNN(arch, data.num_features, 64, data.num_classes, 2, dropout=0.5, heads=8)
    return model, torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4 if data.name == "pubmed" else 0.0)


def scores_on(data: Dataset, setting: Setting, model: Any) -> tuple[float, float]:
    """Return the validation and test accuracies of ``model``, computed with all neighbours."""
    import torch

    from hoptrain.trainers.models.inference import layerwise_inference

    model.eval()
    nodes = np.concatenate([data.splits["val"], data.splits["test"]])
    labels: Any = data.y
    right = (
        layerwise_inference(model, data, nodes, normalize=setting.normalize, device=torch.device("cpu")).argmax(1).numpy() == labels[nodes]
    )
    number = len(data.splits["val"])
    model.train()
    return float(right[:number].mean()), float(right[number:].mean())


def _sampled(data: Dataset, setting: Setting, arch: str, seed: int) -> Iterator[tuple[float, Any]]:
    """Train with sampling in this process. Yield the seconds of each epoch, and the model."""
    import torch
    import torch.nn.functional as F

    from hoptrain.samplers import NeighborSampler, SampleLoader
    from hoptrain.trainers.models.features import to_input

    model, optimizer = _model(data, arch, seed)
    degrees = torch.from_numpy(data.graph.in_degrees()).float()
    loader = SampleLoader(data, NeighborSampler(setting.fanouts), batch_size=setting.batch_size, num_workers=0, seed=seed)
    while True:
        begin = time.process_time()
        for sampled in loader:
            batch = sampled.to("cpu")
            optimizer.zero_grad()
            torch.autograd.backward(
                F.cross_entropy(model(to_input(batch.x, setting.normalize), batch.blocks, degrees[batch.node_ids.long()]), batch.y.long())
            )
            optimizer.step()
        yield time.process_time() - begin, model


def _whole(data: Dataset, setting: Setting, arch: str, seed: int) -> Iterator[tuple[float, Any]]:
    """Train on the whole graph. Yield the seconds of each step, and the model; the first step includes the time to prepare the graph."""
    import torch
    import torch.nn.functional as F

    from hoptrain.trainers.models.inference import CHUNK_EDGES
    from hoptrain.trainers.tasks.full_batch.part import WholePart

    model, optimizer = _model(data, arch, seed)
    labels: Any = data.y
    train, begin = torch.from_numpy(np.array(data.split("train"))).long(), time.process_time()
    y = torch.from_numpy(np.array(labels)).long()[train]
    whole = WholePart.of(data, CHUNK_EDGES, normalize=setting.normalize, device=torch.device("cpu"))
    step = 0
    while True:
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(whole.apply(model, "blocks+degrees", (seed, step))[train], y))
        optimizer.step()
        yield time.process_time() - begin, model
        begin, step = time.process_time(), step + 1


SYSTEMS: dict[str, Callable[[Dataset, Setting, str, int], Iterator[tuple[float, Any]]]] = {"sampled": _sampled, "whole": _whole}


def summary(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return how the times and accuracies of each pair of runs compare.

    ``..._whole_over_sampled`` is the ratio of the seconds to 99 % of the best accuracy, if both systems reached it. ``..._gap_points`` is the best
    accuracy of the whole graph minus that of sampling, in percentage points.
    """
    found = {}
    pairs = zip(records[::2], records[1::2], strict=True)
    for sampled, whole in pairs:
        key = f"{sampled['data']}_{sampled['arch']}_{sampled['seed']}"
        found[f"{key}_gap_points"] = 100 * (whole["best_val"] - sampled["best_val"])
        slow, fast = whole[f"seconds_to_{TARGETS[-1]}"], sampled[f"seconds_to_{TARGETS[-1]}"]
        if slow is not None and fast is not None:
            found[f"{key}_whole_over_sampled"] = slow / fast
    return found
