"""The samplers of ``hoptrain bench end-to-end``: to one training script, hoptrain's sampler of an algorithm and that of others.

neighbor
    GraphSAGE's, as in ``hoptrain.benchmarks.study.loaders``.
cluster
    Cluster-GCN with the same clusters for all, those that hoptrain's sampler finds by METIS. PyG: ``ClusterData`` and ``ClusterLoader``, which cut the features
    out in the workers. DGL: ``ClusterGCNSampler``, features named for prefetching.
ladies, fastgcn
    "papers": as the authors' programs do it, by matrices of scipy in workers, draws without replacement, rows scaled to add up to 1; no library has
    them. Destinations stand among the sources, since the model uses a vertex itself too.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.benchmarks.peers.samplers import require
from hoptrain.benchmarks.study.loaders import GATHER, OPEN, SAMPLE, Clock, Feed, Item, hoptrain_feed
from hoptrain.engine import Dataset
from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, ClusterSampler, FastGCNSampler, LadiesSampler, Sampler
from hoptrain.samplers.batch.dgl_compat import import_dgl

if TYPE_CHECKING:
    import torch

    from hoptrain.benchmarks.study.cell import Cell, Place

NO_SEED = -100
"""The label of a vertex that carries no loss, as torch's cross entropy has it."""


def _cluster_sampler(cell: Cell) -> Sampler:
    return ClusterSampler(cell.clusters, num_layers=len(cell.fanouts))


def _ladies_sampler(cell: Cell) -> Sampler:
    return LadiesSampler(cell.layer_sizes, normalize=True)


def _fastgcn_sampler(cell: Cell) -> Sampler:
    return FastGCNSampler(cell.layer_sizes)


def _open_hoptrain(make: Callable[[Cell], Sampler], data: Dataset, cell: Cell, place: Place) -> Feed:
    return hoptrain_feed(make(cell), data, cell, place)


def _clusters(data: Dataset, cell: Cell, place: Place) -> Array:
    """(V,) int64."""
    sampler = ClusterSampler(cell.clusters).prepare(data.graph, place.seeds)
    return sampler.cluster_of


def _labels(data: Dataset, place: Place) -> torch.Tensor:
    """(V,) int64, ``NO_SEED`` outside the training split."""
    import torch

    assert data.y is not None
    y = torch.full((data.graph.num_nodes,), NO_SEED)
    y[place.seeds] = torch.from_numpy(data.y[place.seeds].astype(np.int64))
    return y


def _square(indptr: torch.Tensor, indices: torch.Tensor, cell: Cell, device: torch.device) -> list[Block]:
    """Every layer has the whole subgraph."""
    block = Block(indptr=indptr, indices=indices, edge_ids=indices, num_src=len(indptr) - 1).to(device)
    return [block] * len(cell.fanouts)


def _open_pyg_cluster(data: Dataset, cell: Cell, place: Place) -> Feed:
    require("torch_geometric")
    warnings.simplefilter("ignore")  # that torch-sparse will not be used any more one day
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import ClusterData, ClusterLoader

    clusters, graph = _clusters(data, cell, place), data.graph

    class Known(ClusterData):
        def _metis(self, edge_index: Any, num_nodes: int) -> Any:
            return torch.from_numpy(clusters)

    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    # Rows are destinations: a batch lists its edges by row.
    edge_index = torch.stack([destinations, torch.from_numpy(graph.indices.astype(np.int64))])
    owned = Data(edge_index=edge_index, x=torch.tensor(data.x), y=_labels(data, place), num_nodes=graph.num_nodes)
    parts = Known(owned, cell.clusters, log=False)
    loader = ClusterLoader(parts, batch_size=cell.batch_size, shuffle=True, num_workers=cell.workers, persistent_workers=cell.workers > 0)
    clock = Clock(cell.workers)
    loader.collate_fn = clock.timed(SAMPLE, loader.collate_fn)

    def item(batch: Any, device: torch.device) -> Item:
        destinations, sources = batch.edge_index
        indptr = torch._convert_indices_from_coo_to_csr(destinations, len(batch.y))
        return Item(batch.x.to(device), batch.y.to(device), _square(indptr, sources, cell, device), len(sources))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=False, close=lambda: None)


def _open_dgl_cluster(data: Dataset, cell: Cell, place: Place) -> Feed:
    require("dgl")
    warnings.simplefilter("ignore")  # that pinning processes to cores may help
    dgl = import_dgl()
    import torch

    clusters = _clusters(data, cell, place)
    indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in (data.graph.indptr, data.graph.indices))
    graph = dgl.graph(("csc", (indptr, indices, indptr.new_empty(0))), num_nodes=data.graph.num_nodes)
    graph.ndata["x"], graph.ndata["y"] = torch.tensor(data.x), _labels(data, place)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clusters.pkl"  # where DGL looks for clusters that it found before
        nodes = torch.from_numpy(np.argsort(clusters, kind="stable"))
        path.write_bytes(pickle.dumps((torch.from_numpy(np.r_[0, np.cumsum(np.bincount(clusters))]), nodes)))
        sampler = dgl.dataloading.ClusterGCNSampler(graph, cell.clusters, cache_path=str(path), prefetch_ndata=["x", "y"])
    clock = Clock(cell.workers)
    sampler.sample = clock.timed(SAMPLE, sampler.sample)
    internals = dgl.dataloading.dataloader
    internals._prefetch = clock.timed(GATHER, internals._prefetch)
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.arange(cell.clusters),
        sampler,
        batch_size=cell.batch_size,
        shuffle=True,
        num_workers=cell.workers,
        persistent_workers=cell.workers > 0,
    )

    def item(batch: Any, device: torch.device) -> Item:
        indptr, indices, _ = batch.adj_tensors("csc")
        x, y = batch.ndata["x"].to(device), batch.ndata["y"].to(device)
        return Item(x, y, _square(indptr, indices, cell, device), len(indices))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=False, close=lambda: None)


def _open_papers(algorithm: str, data: Dataset, cell: Cell, place: Place) -> Feed:
    import torch
    from scipy.sparse import csr_array
    from torch.utils.data import DataLoader

    graph, degrees = data.graph, data.graph.in_degrees()
    values = np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)
    matrix = csr_array((values, np.array(graph.indices), np.array(graph.indptr)), shape=(graph.num_nodes, graph.num_nodes))
    law = _share_of_columns(matrix) if algorithm == "fastgcn" else None
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    clock = Clock(cell.workers)
    sample = clock.timed(SAMPLE, partial(_layer_wise, matrix, cell.layer_sizes, law))
    gather = clock.timed(GATHER, lambda nodes: x[nodes])
    loader = DataLoader(
        place.seeds.tolist(),
        batch_size=cell.batch_size,
        shuffle=True,
        collate_fn=sample,
        num_workers=cell.workers,
        persistent_workers=cell.workers > 0,
    )

    def item(batch: Any, device: torch.device) -> Item:
        nodes, seeds, arrays = batch
        blocks = [
            Block(indptr=indptr, indices=indices, edge_ids=indices, num_src=num_src, weights=weights).to(device)
            for indptr, indices, weights, num_src in arrays
        ]
        num_edges = sum(block.num_edges for block in blocks)
        return Item(gather(nodes).to(device), y[seeds].to(device), blocks, num_edges, torch.ones(len(nodes), device=device))

    return Feed(epoch=lambda _: iter(loader), item=item, work=clock.work, pinned=False, close=lambda: None)


def _share_of_columns(rows: Any) -> Array:
    """(V,) the squared norm of each column as a share of them all."""
    squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel().astype(np.float64)
    shares: Array = squares / squares.sum()
    return shares


def _layer_wise(matrix: Any, sizes: tuple[int, ...], law: Array | None, seeds: list[int]) -> tuple[Any, Any, list[tuple[Any, ...]]]:
    """Input nodes, seeds, and for each block, the outermost first, its offsets, sources, values and number of sources."""
    import torch

    nodes = np.array(seeds)
    blocks = []
    for size in sizes:
        rows = matrix[nodes]
        shares = _share_of_columns(rows) if law is None else law
        drawn = np.random.choice(len(shares), min(size, int(np.count_nonzero(shares))), p=shares, replace=False)
        sources = np.r_[nodes, np.setdiff1d(drawn, nodes)]
        scale = np.zeros(matrix.shape[1])
        scale[drawn] = 1 / shares[drawn]
        block = rows[:, sources].multiply(scale[sources]).tocsr()
        block.eliminate_zeros()
        sums = np.asarray(block.sum(axis=1)).ravel()
        block = block.multiply(1 / np.where(sums > 0, sums, 1)[:, None]).tocsr()
        arrays = [torch.from_numpy(array) for array in (block.indptr, block.indices, block.data.astype(np.float32))]
        blocks.append((*arrays, len(sources)))
        nodes = sources
    return torch.from_numpy(nodes), torch.tensor(seeds), blocks[::-1]


ALGORITHMS: Mapping[str, Mapping[str, Callable[[Dataset, Cell, Place], Feed]]] = {
    "neighbor": OPEN,
    "cluster": {"hoptrain": partial(_open_hoptrain, _cluster_sampler), "pyg": _open_pyg_cluster, "dgl": _open_dgl_cluster},
    "ladies": {"hoptrain": partial(_open_hoptrain, _ladies_sampler), "papers": partial(_open_papers, "ladies")},
    "fastgcn": {"hoptrain": partial(_open_hoptrain, _fastgcn_sampler), "papers": partial(_open_papers, "fastgcn")},
}
"""How to open a system's loader, by algorithm."""
