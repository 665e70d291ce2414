"""The loaders of PyG, DGL and the authors' programs for a study's cells, each set up as its documentation recommends.

neighbor, PyG
    ``NeighborLoader`` over the rank's share of the seeds, split as in PyG's multi-GPU examples. It samples with pyg-lib if that is installed, otherwise
    with torch-sparse. Workers are persistent; features are gathered in the trainer's process, the default for data in memory.
neighbor, DGL
    ``dgl.dataloading.DataLoader`` with ``use_ddp=True`` if there are several ranks, ``NeighborSampler`` with features and labels named for prefetching,
    a graph in CSC format, persistent workers.
cluster
    Cluster-GCN with the same clusters for all systems, which hoptrain's sampler finds with METIS. PyG: ``ClusterData`` and ``ClusterLoader``, which slice
    the features in the workers. DGL: ``ClusterGCNSampler`` with features named for prefetching.
ladies, fastgcn
    "papers": the authors' programs, run in the workers of torch's loader, since neither library has these algorithms. The previous layer's nodes are added
    to the sampled ones, without edges, since the model also uses each node's own features. As published, LADIES adds the seeds.

If a rank has more cores than workers, PyG's and DGL's own ``enable_cpu_affinity`` pins workers and trainer to different cores, as both recommend. All
batches are converted to the same blocks, as views and with one pass over the ids, and go through the same layers.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hoptrain.benchmarks.baselines import dgl, papers, pyg
from hoptrain.benchmarks.baselines.installed import require
from hoptrain.benchmarks.baselines.loaders import persistent
from hoptrain.benchmarks.study.cell import Cell, Place
from hoptrain.benchmarks.study.feeds import GATHER, SAMPLE, Clock, Feed, Item, open_hoptrain
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, ClusterSampler

NO_SEED = -100
"""Label of nodes that do not contribute to the loss; the default ``ignore_index`` of torch's cross entropy."""


def open_pyg(data: Dataset, cell: Cell, place: Place) -> Feed:
    """Open PyG's loader.

    Raises:
        InputError: PyG is not installed, or neither pyg-lib nor torch-sparse is.
    """
    owned = pyg.feature_data(data)
    seeds = torch.from_numpy(place.seeds.astype(np.int64))
    share = torch.split(seeds, len(seeds) // cell.ranks)[place.rank]
    loader = pyg.neighbor_loader(owned, cell.fanouts, share, **persistent(cell.batch_size, cell.workers))
    clock = Clock(cell.workers)
    loader.node_sampler.sample_from_nodes = clock.timed(SAMPLE, loader.node_sampler.sample_from_nodes)
    loader.filter_fn = clock.timed(GATHER, loader.filter_fn)
    stack, cores = ExitStack(), _loader_cores(cell, place)
    if cores:
        stack.enter_context(loader.enable_cpu_affinity(loader_cores=cores[: cell.workers]))

    def item(batch: Any, device: torch.device) -> Item:
        blocks = nested_blocks(batch.edge_index, batch.num_nodes, batch.batch_size, len(cell.fanouts))
        moved = [block.to(device) for block in blocks]
        return Item(batch.x.to(device), batch.y[: batch.batch_size].to(device), moved, batch.edge_index.size(1))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=bool(cores), close=stack.close)


def nested_blocks(edge_index: Tensor, num_nodes: int, num_seeds: int, num_layers: int) -> list[Block]:
    """Return the blocks of a mini-batch of PyG.

    PyG numbers nodes in the order in which it finds them, and sorts edges by destination in this order. So the edges of a hop end at the hop's last
    destination, and the largest of their sources is the last node that the hop found.
    """
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
    """Open DGL's loader.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    graph = dgl.feature_graph(data)
    clock = Clock(cell.workers)
    sampler = _timed(dgl.feature_sampler(cell.fanouts), clock)
    seeds = torch.from_numpy(place.seeds.astype(np.int64))
    loader = dgl.data_loader(graph, seeds, sampler, **persistent(cell.batch_size, cell.workers), use_ddp=cell.ranks > 1)
    stack, cores = ExitStack(), _loader_cores(cell, place)
    if cores:
        workers, trainer = cores[: cell.workers], cores[cell.workers :]
        stack.enter_context(loader.enable_cpu_affinity(loader_cores=workers, compute_cores=trainer, verbose=False))

    def item(batch: Any, device: torch.device) -> Item:
        _, _, dgl_blocks = batch
        blocks = [_block_of_dgl(block).to(device) for block in dgl_blocks]
        x, y = dgl_blocks[0].srcdata["x"].to(device), dgl_blocks[-1].dstdata["y"].to(device)
        return Item(x, y, blocks, sum(block.num_edges for block in blocks))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=bool(cores), close=stack.close)


def _timed(sampler: Any, clock: Clock) -> Any:
    """Make DGL's sampler record its time, also that of fetching features in the trainer's process, and return it."""
    sampler.sample = clock.timed(SAMPLE, sampler.sample)
    internals = dgl.data_loading()
    internals._prefetch = clock.timed(GATHER, internals._prefetch)
    return sampler


def _block_of_dgl(block: Any) -> Block:
    indptr, indices, _ = block.adj_tensors("csc")
    return Block(indptr=indptr, indices=indices, edge_ids=indices, num_src=block.num_src_nodes())


def _loader_cores(cell: Cell, place: Place) -> list[int]:
    """Return the rank's cores; an empty list without workers, or if there are too few cores to keep one for the trainer."""
    cores = sorted(os.sched_getaffinity(0))[place.rank :: cell.ranks]
    return cores if 0 < cell.workers < len(cores) else []


def _open_pyg_cluster(data: Dataset, cell: Cell, place: Place) -> Feed:
    require("torch_geometric")
    warnings.simplefilter("ignore")  # hides the warning that torch-sparse is deprecated
    from torch_geometric.loader import ClusterLoader

    owned = pyg.to_pyg(data.graph, by_destination=True, x=torch.tensor(data.x), y=_labels(data, place))
    parts = pyg.cluster_data(owned, _clusters(data, cell, place), cell.clusters)
    loader = ClusterLoader(parts, **persistent(cell.batch_size, cell.workers))
    clock = Clock(cell.workers)
    loader.collate_fn = clock.timed(SAMPLE, loader.collate_fn)

    def item(batch: Any, device: torch.device) -> Item:
        destinations, sources = batch.edge_index
        indptr = torch._convert_indices_from_coo_to_csr(destinations, len(batch.y))
        return Item(batch.x.to(device), batch.y.to(device), _square(indptr, sources, cell, device), len(sources))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work)


def _open_dgl_cluster(data: Dataset, cell: Cell, place: Place) -> Feed:
    graph = dgl.feature_graph(data, _labels(data, place), formats=None)
    clock = Clock(cell.workers)
    clusters = _clusters(data, cell, place)
    sampler = _timed(dgl.cluster_sampler(graph, clusters, cell.clusters, np.int64, prefetch_ndata=["x", "y"]), clock)
    loader = dgl.data_loader(graph, torch.arange(cell.clusters), sampler, **persistent(cell.batch_size, cell.workers))

    def item(batch: Any, device: torch.device) -> Item:
        indptr, indices, _ = batch.adj_tensors("csc")
        x, y = batch.ndata["x"].to(device), batch.ndata["y"].to(device)
        return Item(x, y, _square(indptr, indices, cell, device), len(indices))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work)


def _clusters(data: Dataset, cell: Cell, place: Place) -> Array:
    """Return each node's cluster as found by hoptrain, (V,) int64."""
    sampler = ClusterSampler(cell.clusters).prepare(data.graph, place.seeds)
    return sampler.cluster_of


def _labels(data: Dataset, place: Place) -> torch.Tensor:
    """Return the labels, (V,) int64, with ``NO_SEED`` outside the training split."""
    if data.y is None:
        raise InputError(f"{data.name} has no labels: training needs them; choose another data set")
    y = torch.full((data.graph.num_nodes,), NO_SEED)
    y[place.seeds] = torch.from_numpy(data.y[place.seeds].astype(np.int64))
    return y


def _square(indptr: torch.Tensor, indices: torch.Tensor, cell: Cell, device: torch.device) -> list[Block]:
    """Return the whole subgraph as the block of each layer."""
    block = Block(indptr=indptr, indices=indices, edge_ids=indices, num_src=len(indptr) - 1).to(device)
    return [block] * len(cell.fanouts)


def _open_papers(data: Dataset, cell: Cell, place: Place) -> Feed:
    matrix = papers.to_scipy(data.graph)
    law = papers.share_of_columns(matrix) if cell.algorithm == "fastgcn" else None
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    clock = Clock(cell.workers)
    sample = clock.timed(SAMPLE, partial(_layer_wise, matrix, cell.layer_sizes, law))
    gather = clock.timed(GATHER, lambda nodes: x[nodes])
    loader: DataLoader[Any] = DataLoader(place.seeds.tolist(), collate_fn=sample, **persistent(cell.batch_size, cell.workers))

    def item(batch: Any, device: torch.device) -> Item:
        nodes, seeds, arrays = batch
        blocks = [
            Block(indptr=indptr, indices=indices, edge_ids=indices, num_src=num_src, weights=weights).to(device)
            for indptr, indices, weights, num_src in arrays
        ]
        num_edges = sum(block.num_edges for block in blocks)
        return Item(gather(nodes).to(device), y[seeds].to(device), blocks, num_edges, torch.ones(len(nodes), device=device))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work)


def _layer_wise(
    matrix: Any, sizes: tuple[int, ...], law: Array | None, seeds: list[int]
) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor, Tensor, int]]]:
    """Return the input nodes, the seeds, and for each block, outermost first, its offsets, sources, edge values and number of sources."""
    nodes, blocks = np.array(seeds), []
    for layer, sources in papers.layers(matrix, sizes, law, "previous", nodes):
        block = layer.tocsr()
        indptr, indices, values = (torch.from_numpy(array) for array in (block.indptr, block.indices, block.data.astype(np.float32)))
        blocks.append((indptr, indices, values, len(sources)))
        nodes = sources
    return torch.from_numpy(nodes), torch.tensor(seeds), blocks[::-1]


FEEDS: Mapping[str, Mapping[str, Callable[[Dataset, Cell, Place], Feed]]] = {
    "neighbor": {"hoptrain": open_hoptrain, "pyg": open_pyg, "dgl": open_dgl},
    "cluster": {"hoptrain": open_hoptrain, "pyg": _open_pyg_cluster, "dgl": _open_dgl_cluster},
    "ladies": {"hoptrain": open_hoptrain, "papers": _open_papers},
    "fastgcn": {"hoptrain": open_hoptrain, "papers": _open_papers},
}
"""Name of an algorithm -> name of a system -> function that opens the system's loader."""
