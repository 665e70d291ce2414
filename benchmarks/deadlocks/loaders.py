"""The loaders of ``hoptrain bench deadlock``: all sample two hops from the same seeds of the same small graph, with a fault in a worker.

torch
    ``torch.utils.data.DataLoader`` over node ids; ``collate_fn`` returns ready tensors, as a sampler does.
PyG
    ``NeighborLoader`` with ``filter_per_worker``, so that the workers send features, too.
DGL
    ``dgl.dataloading.DataLoader``, which gathers the features in the trainer's process.
hoptrain
    ``SampleLoader``.

The name of a system may be followed by options of its loader, as in ``"torch, timeout=5"``; for hoptrain they are fields of ``WorkerOptions``, as in
``"hoptrain, buffer_dir=/dev/shm"``.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.deadlocks.faults import FANOUTS, Fault, FaultySampler
from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.options import WorkerOptions
from hoptrain.samplers import MiniBatch, NeighborSampler, SampleLoader

SEED = 0
BATCH_SIZE = 128
WORKERS = 2
BATCHES = 40
_NODES, _EDGES, _FEATURES, _CLASSES = 20_000, 200_000, 64, 4


def make_dataset(folder: Path) -> None:
    """Write the data set of all cases: a random graph with ``BATCHES`` batches of training nodes, and 100 nodes each for validation and test."""
    rng = np.random.default_rng(SEED)
    train = np.arange(BATCHES * BATCH_SIZE)
    Dataset(
        name="deadlock",
        graph=Graph.from_edges(rng.integers(0, _NODES, _EDGES), rng.integers(0, _NODES, _EDGES), _NODES),
        x=rng.random((_NODES, _FEATURES), dtype=np.float32),
        y=rng.integers(0, _CLASSES, _NODES),
        splits={"train": train, "val": len(train) + np.arange(100), "test": len(train) + np.arange(100, 200)},
        num_classes=_CLASSES,
    ).save(folder)


def open_loader(system: str, folder: Path, fault: tuple[str, str] | None = None, **options: Any) -> Iterable[Any]:
    """Return a system's loader of the data set in ``folder``.

    Args:
        system: name of the system, and options of its loader: "torch, timeout=5".
        folder: folder of the data set.
        fault: name of the fault (a key of ``ACTIONS``), and the folder in which a file records that it occurred; None for no fault.
        options: options of the loader, which override those in ``system``; ``seeds`` (N,) replaces the training nodes.

    Raises:
        InputError: the system is not installed.
    """
    family, given = parse(system)
    data = Dataset.open(folder, verify=False)
    seeds = options.pop("seeds", data.split("train"))
    if family == HOPTRAIN and given:
        given = {"worker_options": WorkerOptions(**given)}
    options = {"num_workers": WORKERS, "batch_size": BATCH_SIZE} | given | options
    if family == HOPTRAIN:
        sampler = NeighborSampler(FANOUTS) if fault is None else FaultySampler(*fault)
        return SampleLoader(data, sampler, split=seeds, seed=SEED, **options)
    return _OPEN[family](data, Fault(*fault) if fault else _nothing, seeds, options)


def parse(system: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a system: "torch, timeout=5" is ("torch", {"timeout": 5})."""
    family, *settings = system.split(", ")
    return family, {name: _value(text) for name, text in (setting.split("=", 1) for setting in settings)}


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _nothing() -> None:
    """Do nothing: the fault function of loaders that run without a fault."""


def _open_torch(data: Dataset, strike: Callable[[], None], seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    import torch  # imported here to keep --help fast
    from torch.utils.data import DataLoader

    x = torch.tensor(data.x)
    copies = 10  # a batch has as many tensors as two blocks, features and labels

    def collate(ids: list[int]) -> dict[str, Any]:
        strike()
        return {"x": x[torch.as_tensor(ids)]} | {f"array{i}": torch.as_tensor(ids) for i in range(1, copies)}

    return DataLoader(seeds.tolist(), collate_fn=collate, **options)


def _open_pyg(data: Dataset, strike: Callable[[], None], seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    import torch

    from hoptrain.benchmarks.baselines import pyg

    def transform(batch: Any) -> Any:
        strike()
        return batch

    loader: Iterable[Any] = pyg.neighbor_loader(
        pyg.feature_data(data), FANOUTS, torch.from_numpy(seeds), filter_per_worker=True, transform=transform, **options
    )
    return loader


def _open_dgl(data: Dataset, strike: Callable[[], None], seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    import torch

    from hoptrain.benchmarks.baselines import dgl

    graph = dgl.feature_graph(data)

    def sample(inner: Callable[..., Any], *args: Any, **named: Any) -> Any:
        strike()
        return inner(*args, **named)

    sampler = dgl.feature_sampler(FANOUTS)
    sampler.sample = partial(sample, sampler.sample)
    loader: Iterable[Any] = dgl.data_loader(graph, torch.from_numpy(seeds), sampler, **options)
    return loader


_OPEN = {"torch": _open_torch, "PyG": _open_pyg, "DGL": _open_dgl}


def features(batch: Any) -> Any:
    """Return the features of a batch's input nodes as a tensor, for a batch of any system."""
    if isinstance(batch, dict):
        return batch["x"]
    if isinstance(batch, MiniBatch):
        return batch.to("cpu").x
    return batch[2][0].srcdata["x"] if isinstance(batch, list | tuple) else batch.x
