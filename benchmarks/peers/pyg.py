"""PyG's loaders for ``hoptrain bench algorithms``; how they are driven is said in ``hoptrain.benchmarks.peers.algorithms``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from hoptrain.benchmarks.cases.algorithms import Contender, Open, Sample, Task, cluster_of, num_steps, pool_batches
from hoptrain.benchmarks.peers.samplers import require
from hoptrain.engine import Graph, InputError

_MOST_BYTES = 1 << 28
"""What a call may take for a temporary array."""


def open_pyg(graph: Graph) -> Open:
    """Take the graph over into PyG.

    Raises:
        InputError: PyG or torch-sparse is not installed.
    """
    require("torch_geometric")
    require("torch_sparse")
    import torch

    warnings.filterwarnings("ignore", message=".*torch-sparse.*")  # that it will not be used any more one day
    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    # Rows are destinations: PyG walks from the first end of an edge to the second, and hoptrain from a destination to a source.
    edge_index = torch.stack([destinations, torch.from_numpy(graph.indices.astype(np.int64))])

    def contenders(name: str, task: Task, threads: Sequence[int]) -> Iterator[Contender]:
        if name not in _PYG:
            return
        make, note = _PYG[name]
        try:
            sample = make(edge_index, task)
        except InputError as error:
            print(f"left out PyG, {name}: {error}")
            return
        for count in threads:
            pooled = partial(pool_batches, ThreadPoolExecutor(count), sample)
            yield Contender(family="PyG", name="PyG", threads=count, sample=pooled, note=note)

    return contenders


def _pyg_data(edge_index: Any, task: Task) -> Any:
    from torch_geometric.data import Data

    return Data(edge_index=edge_index, num_nodes=task.graph.num_nodes)


def _adjacency(edge_index: Any, task: Task) -> Any:
    from torch_sparse import SparseTensor

    size = (task.graph.num_nodes, task.graph.num_nodes)
    return SparseTensor(row=edge_index[0], col=edge_index[1], sparse_sizes=size, is_sorted=True, trust_data=True)


def _pyg_walk(edge_index: Any, task: Task) -> Sample:
    import torch

    adjacency = _adjacency(edge_index, task)
    adjacency.storage.rowptr()
    return lambda seeds: num_steps(adjacency.random_walk(torch.from_numpy(seeds).long(), task.options["length"]))


def _pyg_saint(kind: str, size: str) -> Callable[[Any, Task], Sample]:
    def build(edge_index: Any, task: Task) -> Sample:
        from torch_geometric import loader

        needed = 4 * task.graph.num_edges * task.options.get("budget", 0)
        if kind == "Edge" and needed > _MOST_BYTES:
            raise InputError(f"its draw of edges makes an array of {needed / 2**30:,.0f} GiB")
        length = [task.options["length"]] if kind == "RandomWalk" else []
        made = getattr(loader, f"GraphSAINT{kind}Sampler")(_pyg_data(edge_index, task), task.options[size], *length)
        return lambda seeds: int(made._collate([made[0]]).edge_index.shape[1])

    return build


def _pyg_cluster(edge_index: Any, task: Task) -> Sample:
    """With hoptrain's clusters in the place of those that METIS would find again."""
    import torch
    from torch_geometric.loader import ClusterData, ClusterLoader

    class Known(ClusterData):
        def _metis(self, edge_index: Any, num_nodes: int) -> Any:
            return torch.from_numpy(cluster_of(task))

    data = Known(_pyg_data(edge_index, task), len(np.unique(cluster_of(task))), log=False)
    collate = ClusterLoader(data, batch_size=task.batch_size)._collate
    return lambda units: int(collate(units.tolist()).edge_index.shape[1])


def _pyg_shadow(edge_index: Any, task: Task) -> Sample:
    from torch_geometric.data import Data
    from torch_geometric.loader import ShaDowKHopSampler

    data = Data(adj_t=_adjacency(edge_index, task), num_nodes=task.graph.num_nodes)
    loader = ShaDowKHopSampler(data, task.options["depth"], task.options["neighbors"])
    return lambda seeds: int(loader.__collate__(seeds.tolist()).adj_t.nnz())


_PYG: Mapping[str, tuple[Callable[[Any, Task], Sample], str]] = {
    "walk": (_pyg_walk, ""),
    "cluster": (_pyg_cluster, ""),
    "saint_node": (_pyg_saint("Node", "budget"), "draws by degree"),
    "saint_edge": (_pyg_saint("Edge", "budget"), ""),
    "saint_walk": (_pyg_saint("RandomWalk", "roots"), ""),
    "shadow": (_pyg_shadow, ""),
}
