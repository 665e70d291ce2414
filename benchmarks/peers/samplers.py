"""The samplers that hoptrain's is compared with, each driven as its documentation advises and in its own mode of expansion.

DGL
    ``dgl.dataloading.NeighborSampler.sample`` on a graph that holds compressed columns only, with int64 ids (its default) and int32 ids.
    Threads are its OpenMP threads. ``fused`` is its default variant, which it takes with two threads or more. With int32 ids that one is left
    out: its blocks are wrong (DGL 2.1.0 marks known vertices in an int64 array and reads the marks as int32, so from the second mini-batch
    on edges are missing and local ids lie outside the block). Every hop expands all vertices found so far: mode "all".
PyG
    ``torch_geometric.sampler.NeighborSampler.sample_from_nodes``, what ``NeighborLoader`` calls: the operator ``neighbor_sample`` of pyg-lib
    where that is installed, else of torch-sparse; int64 ids. The operator is serial, so threads take whole mini-batches. Every hop expands
    the vertices that the hop before found: mode "new".

Both return freshly allocated tensors with global ids of nodes and edges and local ids of the edges' ends, as hoptrain does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from hoptrain.benchmarks.peers.systems import Open, System
from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.dgl_compat import import_dgl


def open_dgl(graph: Graph) -> Open:
    """Take the graph over into DGL.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    require("dgl")
    dgl = import_dgl()
    import torch

    indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in (graph.indptr, graph.indices))
    wide = dgl.graph(("csc", (indptr, indices, indptr.new_empty(0))), num_nodes=graph.num_nodes).formats("csc")
    graphs = {"int64": wide, "int32": wide.int()}

    def systems(fanouts: Sequence[int], replace: bool, threads: Sequence[int]) -> list[System]:
        found = []
        for count in threads:
            for ids, dgl_graph in graphs.items():
                for fused in (False, True) if count > 1 and ids == "int64" else (False,):
                    sampler = dgl_sampler(dgl, fanouts, replace, fused)
                    sample = partial(_sample_dgl, dgl, sampler, dgl_graph, count)
                    name = f"DGL {ids} fused" if fused else f"DGL {ids}"
                    found.append(System(family="DGL", name=name, mode="all", threads=count, sample=sample))
        return found

    return systems


def dgl_sampler(dgl: Any, fanouts: Sequence[int], replace: bool, fused: bool) -> Any:
    """DGL lists fanouts in the order of a model's layers, the seeds' last."""
    return dgl.dataloading.NeighborSampler(list(reversed(fanouts)), replace=replace, fused=fused)


def _sample_dgl(dgl: Any, sampler: Any, graph: Any, threads: int, seeds: Sequence[Array], first: int) -> int:
    import torch

    dgl.utils.set_num_threads(threads)
    torch.set_num_threads(threads)
    edges = 0
    for ids in seeds:
        _, _, blocks = sampler.sample(graph, torch.from_numpy(ids).to(graph.idtype))
        edges += sum(block.num_edges() for block in blocks)
    return edges


def open_pyg(backend: str, graph: Graph) -> Open:
    """Take the graph over into PyG.

    Args:
        backend: "pyg-lib" or "torch-sparse".
        graph: the graph.

    Raises:
        InputError: the backend is not installed, or is not the one that PyG takes.
    """
    require("torch_geometric")
    import torch
    from torch_geometric import typing as installed
    from torch_geometric.data import Data
    from torch_geometric.sampler import NeighborSampler

    if not {"pyg-lib": installed.WITH_PYG_LIB, "torch-sparse": installed.WITH_TORCH_SPARSE}[backend]:
        raise InputError("not installed")
    if installed.WITH_PYG_LIB and backend != "pyg-lib":
        raise InputError("PyG takes pyg-lib, which is installed too")
    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    data = Data(edge_index=torch.stack([torch.from_numpy(graph.indices.astype(np.int64)), destinations]), num_nodes=graph.num_nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that torch-sparse will not be used any more one day
        base = NeighborSampler(data, [1], is_sorted=True)

    def systems(fanouts: Sequence[int], replace: bool, threads: Sequence[int]) -> list[System]:
        sampler = copy(base)  # the graph is shared
        sampler.num_neighbors, sampler.replace = list(fanouts), replace
        return [
            System(family="PyG", name=backend, mode="new", threads=count, sample=partial(_sample_pyg, sampler, ThreadPoolExecutor(count)))
            for count in threads
        ]

    return systems


def _sample_pyg(sampler: Any, pool: ThreadPoolExecutor, seeds: Sequence[Array], first: int) -> int:
    import torch
    from torch_geometric.sampler import NodeSamplerInput

    def sample(ids: Array) -> int:
        return len(sampler.sample_from_nodes(NodeSamplerInput(input_id=None, node=torch.from_numpy(ids))).edge)

    return sum(pool.map(sample, seeds))


PEERS: Mapping[str, Callable[[Graph], Open]] = {
    "dgl": open_dgl,
    "pyg-lib": partial(open_pyg, "pyg-lib"),
    "torch-sparse": partial(open_pyg, "torch-sparse"),
}


def require(package: str) -> None:
    """Look for a package without importing it.

    Raises:
        InputError: it is not installed.
    """
    if find_spec(package) is None:
        raise InputError("not installed")
