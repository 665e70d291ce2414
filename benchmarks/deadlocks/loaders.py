"""The loaders of the deadlock benchmark: the same seeds of the same small graph, sampled two hops deep, with a fault that strikes in a worker.

torch
    ``torch.utils.data.DataLoader`` over vertex ids; ``collate_fn`` returns ready tensors, as a sampler does.
PyG
    ``NeighborLoader`` with ``filter_per_worker``, so that features travel too.
DGL
    ``dgl.dataloading.DataLoader``, which puts features in place in the trainer's process.
hoptrain
    ``SampleLoader``.

A system may carry options of its loader: ``"torch, timeout=5"``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.peers.samplers import require
from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers import MiniBatch, NeighborSampler, SampleLoader, Sampler
from hoptrain.samplers.batch.dgl_compat import import_dgl

SEED = 0
FANOUTS = [10, 10]
BATCH_SIZE = 128
WORKERS = 2
BATCHES = 40
_NODES, _EDGES, _FEATURES, _CLASSES = 20_000, 200_000, 64, 4
_SENT_S = 0.3  # until the batch before is sent and taken
_STRIKE_AT = 4  # the batch of a process at which a fault strikes, counted from 1


def make_dataset(folder: Path) -> None:
    """Write the data set of all cases: a random graph, ``BATCHES`` batches of training vertices, and few others."""
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


class Fault:
    """Something that happens once to one worker, when it makes its fourth batch; ``folder`` remembers that it did."""

    def __init__(self, action: str, folder: str) -> None:
        """State the action, a key of ``ACTIONS``."""
        self._act = ACTIONS[action]
        self._mark = Path(folder) / "struck"
        self._calls = 0

    def __call__(self, *_: object) -> None:
        """Count, and strike when it is time."""
        self._calls += 1
        if self._calls == _STRIKE_AT and _create(self._mark):
            self._act()


def _create(path: Path) -> bool:
    """Whether this call, of all processes' calls, made the file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def die() -> None:
    """As a process does that the system kills for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _spin() -> None:
    while True:
        pass


def _raise() -> None:
    raise RuntimeError("the sampler broke once")


def _die_with_event() -> None:
    time.sleep(_SENT_S)
    _worker_local("done_event")._cond.acquire()
    die()


def _die_with_queue() -> None:
    time.sleep(_SENT_S)
    _worker_local("data_queue")._wlock.acquire()
    die()


def _worker_local(name: str) -> Any:
    """A variable of torch's worker loop, which the loaders of PyG and DGL run too."""
    frame = sys._getframe()
    while frame.f_code.co_name != "_worker_loop":
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_locals[name]


def two_threads() -> float:
    """A parallel region of torch, in OpenMP's threads."""
    import torch

    torch.set_num_threads(2)
    return float((torch.ones(4_000_000) * 2 + 1).sum())


ACTIONS: Mapping[str, Callable[[], object]] = {
    "kill": die,
    "stop": _stop,
    "spin": _spin,
    "raise": _raise,
    "event": _die_with_event,
    "queue": _die_with_queue,
    "threads": two_threads,
}


class FaultySampler(Sampler):
    """A ``NeighborSampler`` that calls a ``Fault`` before each batch."""

    def __init__(self, action: str, folder: str) -> None:
        """State the fault."""
        self.fault = Fault(action, folder)
        self._sampler = NeighborSampler(FANOUTS)

    @property
    def num_hops(self) -> int:
        """As the sampler's."""
        return self._sampler.num_hops

    def sample_on_cpu(self, *batch: Any) -> MiniBatch:
        """Strike or not, then sample."""
        self.fault()
        return self._sampler.sample_on_cpu(*batch)


def open_loader(system: str, folder: Path, fault: tuple[str, str] | None = None, **options: Any) -> Iterable[Any]:
    """The loader of a system over the data set in ``folder``.

    Args:
        system: its name, and options of its loader: "torch, timeout=5".
        folder: of the data set.
        fault: action, and the folder that remembers it.
        options: of the loader, beside those of ``system``; ``seeds`` (N,) instead of the training vertices.

    Raises:
        InputError: it is not installed.
    """
    family, given = parse(system)
    data = Dataset.open(folder, verify=False)
    seeds = options.pop("seeds", data.split("train"))
    return _OPEN[family](data, fault, seeds, {"num_workers": WORKERS, "batch_size": BATCH_SIZE} | given | options)


def parse(system: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a system: "torch, timeout=5" is ("torch", {"timeout": 5})."""
    family, *settings = system.split(", ")
    return family, {name: _value(text) for name, text in (setting.split("=", 1) for setting in settings)}


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _open_hoptrain(data: Dataset, fault: tuple[str, str] | None, seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    sampler = NeighborSampler(FANOUTS) if fault is None else FaultySampler(*fault)
    return SampleLoader(data, sampler, split=seeds, seed=SEED, **options)


def _open_torch(data: Dataset, fault: tuple[str, str] | None, seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    import torch
    from torch.utils.data import DataLoader

    x, strike = torch.tensor(data.x), Fault(*fault) if fault else None
    copies = 10  # as many tensors as two blocks, features and labels are

    def collate(ids: list[int]) -> dict[str, Any]:
        if strike:
            strike()
        return {"x": x[torch.as_tensor(ids)]} | {f"array{i}": torch.as_tensor(ids) for i in range(1, copies)}

    return DataLoader(seeds.tolist(), collate_fn=collate, **options)


def _open_pyg(data: Dataset, fault: tuple[str, str] | None, seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    require("torch_geometric")
    warnings.simplefilter("ignore")  # that torch-sparse will not be used any more one day
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    graph, strike = data.graph, Fault(*fault) if fault else None
    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    edge_index = torch.stack([torch.from_numpy(graph.indices.astype(np.int64)), destinations])
    owned = Data(edge_index=edge_index, x=torch.tensor(data.x), y=torch.tensor(data.y), num_nodes=graph.num_nodes)

    def transform(batch: Any) -> Any:
        if strike:
            strike()
        return batch

    loader: Iterable[Any] = NeighborLoader(
        owned, FANOUTS, input_nodes=torch.from_numpy(seeds), is_sorted=True, filter_per_worker=True, transform=transform, **options
    )
    return loader


def _open_dgl(data: Dataset, fault: tuple[str, str] | None, seeds: Array, options: dict[str, Any]) -> Iterable[Any]:
    require("dgl")
    warnings.simplefilter("ignore")  # that pinning processes to cores may help
    dgl = import_dgl()
    import torch

    strike = Fault(*fault) if fault else None

    def sample(inner: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if strike:
            strike()
        return inner(*args, **named)

    indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in (data.graph.indptr, data.graph.indices))
    graph = dgl.graph(("csc", (indptr, indices, indptr.new_empty(0))), num_nodes=data.graph.num_nodes).formats("csc")
    graph.ndata["x"], graph.ndata["y"] = torch.tensor(data.x), torch.tensor(data.y)
    sampler = dgl.dataloading.NeighborSampler(FANOUTS, prefetch_node_feats=["x"], prefetch_labels=["y"])
    sampler.sample = partial(sample, sampler.sample)
    loader: Iterable[Any] = dgl.dataloading.DataLoader(graph, torch.from_numpy(seeds), sampler, **options)
    return loader


_OPEN = {"hoptrain": _open_hoptrain, "torch": _open_torch, "PyG": _open_pyg, "DGL": _open_dgl}


def features(batch: Any) -> Any:
    """The input nodes' features of any system's batch, as a tensor."""
    if isinstance(batch, dict):
        return batch["x"]
    if isinstance(batch, MiniBatch):
        return batch.to("cpu").x
    return batch[2][0].srcdata["x"] if isinstance(batch, list | tuple) else batch.x
