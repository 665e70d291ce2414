"""The loaders of the scalability study: what each gives to the same training loop, each driven as its documentation advises.

hoptrain
    ``SampleLoader`` with its defaults, which takes its share of the ranks by itself. Without workers the data set lies in memory.
PyG
    ``NeighborLoader`` over this rank's share of the seeds, cut as PyG's multi-GPU examples do; its operator from pyg-lib where that is installed, else
    from torch-sparse. Persistent workers; features are fetched where its default for data in memory does, in the trainer's process.
DGL
    ``dgl.dataloading.DataLoader`` with ``use_ddp=True`` where there are several ranks, ``NeighborSampler`` with features and labels named for prefetching,
    a graph of compressed columns, persistent workers.

Where a rank has more cores than workers, workers and trainer are pinned apart by PyG's and DGL's own ``enable_cpu_affinity``, as both advise. All
batches are made into the same blocks, by views and one pass over the ids, and go through the same layers.

Seconds of sampling and gathering are noted where they happen, in whichever process, in memory that the processes share.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hoptrain.benchmarks.peers.loaders import pyg_data
from hoptrain.benchmarks.peers.samplers import require
from hoptrain.engine import Dataset
from hoptrain.samplers import Block, NeighborSampler, SampleLoader, Sampler
from hoptrain.samplers.batch.dgl_compat import import_dgl

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoptrain.benchmarks.study.cell import Cell, Place

SAMPLE, GATHER = 0, 1


class Item(NamedTuple):
    """A mini-batch on the training device.

    Attributes:
        x: (S, F) features of the input nodes.
        y: (B,) labels of the seeds.
        blocks: one a layer, the outermost first, on the CPU or the device.
        num_edges: sampled edges; one that two blocks share counts once.
        degrees: (S,) in-degrees of the input nodes, where edges have weights; else None.
    """

    x: Tensor
    y: Tensor
    blocks: Sequence[Block]
    num_edges: int
    degrees: Tensor | None = None


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Feed:
    """An opened loader of one rank.

    Attributes:
        epoch: from the epoch's number to its mini-batches as the loader gives them.
        item: from one of them to an ``Item`` on a device: the copy.
        work: seconds of sampling and of gathering since it was called before, all processes of the loader together.
        pinned: whether workers and trainer were pinned to cores.
        close: lets go of cores, and ends workers that would not end with the process.
    """

    epoch: Callable[[int], Iterator[Any]]
    item: Callable[[Any, torch.device], Item]
    work: Callable[[], tuple[float, float]]
    pinned: bool
    close: Callable[[], None]


def open_hoptrain(data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open the loader of hoptrain."""
    return hoptrain_feed(NeighborSampler(cell.fanouts, expand=cell.expand), data, cell, place)


def hoptrain_feed(sampler: Sampler, data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open the loader of hoptrain with a sampler."""
    import torch

    loader = SampleLoader(
        data if cell.workers else data.in_memory(),
        sampler,
        split=place.seeds,
        batch_size=cell.batch_size,
        num_workers=cell.workers,
        seed=cell.seed,
        rank=place.rank,
        world_size=cell.ranks,
        page_lock=torch.cuda.is_available() and cell.workers > 0,
    )
    degrees = torch.from_numpy(data.graph.in_degrees()).float()
    spent = [0.0, 0.0]

    def epoch(number: int) -> Iterator[Any]:
        loader.set_epoch(number)
        for batch in loader:
            spent[SAMPLE] += batch.sample_s
            spent[GATHER] += batch.gather_s
            yield batch
            del batch  # with it the slot

    def item(batch: Any, device: torch.device) -> Item:
        own = degrees[batch.node_ids].to(device) if batch.blocks[0].weights is not None else None
        batch = batch.to(device)
        return Item(batch.x, batch.y, batch.blocks, batch.num_edges, own)

    def work() -> tuple[float, float]:
        sampled, gathered = spent
        spent[:] = 0.0, 0.0
        return sampled, gathered

    return Feed(epoch=epoch, item=item, work=work, pinned=False, close=loader.close)


class Clock:
    """Seconds by process of a loader and kind of work. Workers are forked, so the memory is theirs too; each writes into a row of its own."""

    def __init__(self, workers: int) -> None:
        """Begin with nothing."""
        import torch

        self._spent = torch.zeros(workers + 1, 2, dtype=torch.float64).share_memory_()  # type: ignore[no-untyped-call]
        self._before = (0.0, 0.0)

    def timed(self, kind: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the time of its calls noted."""
        from torch.utils.data import get_worker_info

        def call(*args: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            out = function(*args, **named)
            info = get_worker_info()
            self._spent[0 if info is None else info.id + 1, kind] += time.perf_counter() - begin
            return out

        return call

    def work(self) -> tuple[float, float]:
        """Seconds of sampling and of gathering since it was called before."""
        now = self._spent.sum(0).tolist()
        before, self._before = self._before, (now[0], now[1])
        return now[0] - before[0], now[1] - before[1]


def open_pyg(data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open the loader of PyG; see ``pyg_data``."""
    owned = pyg_data(data)
    import torch
    from torch_geometric.loader import NeighborLoader

    seeds = torch.from_numpy(place.seeds.astype(np.int64))
    loader = NeighborLoader(
        owned,
        list(cell.fanouts),
        input_nodes=torch.split(seeds, len(seeds) // cell.ranks)[place.rank],
        is_sorted=True,
        batch_size=cell.batch_size,
        shuffle=True,
        num_workers=cell.workers,
        persistent_workers=cell.workers > 0,
    )
    clock = Clock(cell.workers)
    loader.node_sampler.sample_from_nodes = clock.timed(SAMPLE, loader.node_sampler.sample_from_nodes)
    loader.filter_fn = clock.timed(GATHER, loader.filter_fn)
    stack = ExitStack()
    pinned = _loader_cores(cell, place)
    if pinned:
        stack.enter_context(loader.enable_cpu_affinity(loader_cores=pinned[: cell.workers]))

    def item(batch: Any, device: torch.device) -> Item:
        blocks = nested_blocks(batch.edge_index, batch.num_nodes, batch.batch_size, len(cell.fanouts))
        moved = [block.to(device) for block in blocks]
        return Item(batch.x.to(device), batch.y[: batch.batch_size].to(device), moved, batch.edge_index.size(1))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=bool(pinned), close=stack.close)


def nested_blocks(edge_index: Tensor, num_nodes: int, num_seeds: int, num_layers: int) -> list[Block]:
    """The blocks of PyG's mini-batch.

    PyG numbers the vertices in the order in which they were found, and lists the edges by destination in this order. So a hop's edges end where the
    destinations of the hop end, and the vertices it found end at the largest of its sources.
    """
    import torch

    sources, destinations = edge_index
    indptr = torch._convert_indices_from_coo_to_csr(destinations, num_nodes)
    sizes = [num_seeds]
    for _ in range(num_layers - 1):
        reached = sources[: int(indptr[sizes[-1]])]
        sizes.append(max(sizes[-1], int(reached.max()) + 1 if len(reached) else 0))
    bounds = [num_nodes, *reversed(sizes)]
    whole = Block(indptr=indptr, indices=sources, edge_ids=sources, num_src=num_nodes)
    return [whole.beginning(inner, outer, int(indptr[inner])) for outer, inner in pairwise(bounds)]


def open_dgl(data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open the loader of DGL.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    require("dgl")
    warnings.simplefilter("ignore")  # that pinning processes to cores may help
    dgl = import_dgl()
    import torch

    indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in (data.graph.indptr, data.graph.indices))
    graph = dgl.graph(("csc", (indptr, indices, indptr.new_empty(0))), num_nodes=data.graph.num_nodes).formats("csc")
    graph.ndata["x"], graph.ndata["y"] = torch.tensor(data.x), torch.tensor(data.y)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(cell.fanouts)), prefetch_node_feats=["x"], prefetch_labels=["y"])
    clock = Clock(cell.workers)
    sampler.sample = clock.timed(SAMPLE, sampler.sample)
    internals = dgl.dataloading.dataloader
    internals._prefetch = clock.timed(GATHER, internals._prefetch)  # where the trainer's process fetches the features
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(place.seeds.astype(np.int64)),
        sampler,
        batch_size=cell.batch_size,
        shuffle=True,
        num_workers=cell.workers,
        persistent_workers=cell.workers > 0,
        use_ddp=cell.ranks > 1,
    )
    stack = ExitStack()
    cores = _loader_cores(cell, place)
    if cores:
        workers, trainer = cores[: cell.workers], cores[cell.workers :]
        stack.enter_context(loader.enable_cpu_affinity(loader_cores=workers, compute_cores=trainer, verbose=False))

    def item(batch: Any, device: torch.device) -> Item:
        _, _, dgl_blocks = batch
        blocks = [_block_of_dgl(block).to(device) for block in dgl_blocks]
        x, y = dgl_blocks[0].srcdata["x"].to(device), dgl_blocks[-1].dstdata["y"].to(device)
        return Item(x, y, blocks, sum(block.num_edges for block in blocks))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=bool(cores), close=stack.close)


def _block_of_dgl(block: Any) -> Block:
    indptr, indices, _ = block.adj_tensors("csc")
    return Block(indptr=indptr, indices=indices, edge_ids=indices, num_src=block.num_src_nodes())


def _loader_cores(cell: Cell, place: Place) -> list[int]:
    """The cores of a rank, if it has more of them than workers; else none: there is nothing to pin apart."""
    cores = sorted(os.sched_getaffinity(0))[place.rank :: cell.ranks]
    return cores if 0 < cell.workers < len(cores) else []


OPEN: Mapping[str, Callable[[Dataset, Cell, Place], Feed]] = {"hoptrain": open_hoptrain, "pyg": open_pyg, "dgl": open_dgl}
NEEDS = {"hoptrain": None, "pyg": "torch_geometric", "dgl": "dgl", "papers": "scipy"}
