"""PyG as a baseline, used as its documentation recommends: its neighbour sampler, its other sampling algorithms, and its loader. Ids are int64.

Neighbour sampling
    ``NeighborSampler.sample_from_nodes``, which ``NeighborLoader`` calls. It uses the operator ``neighbor_sample`` of pyg-lib if that is installed,
    otherwise of torch-sparse. The operator is serial, so each thread samples whole mini-batches. Each hop expands the nodes that the previous hop
    found: mode "new".
Algorithms
    The collate function of its loaders for one mini-batch, without worker processes, with the operators of torch-sparse. They are serial, so each
    thread samples whole mini-batches. Features are not fetched.
Loader
    ``NeighborLoader``, with the same operator. Features and labels are gathered in the consumer's process, the default for data in memory
    (``filter_per_worker``).

All return new tensors: local ids of the edges' ends, global node ids, and edge ids if PyG provides them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

from hoptrain.benchmarks.baselines.installed import require
from hoptrain.benchmarks.baselines.lines import Pair
from hoptrain.benchmarks.baselines.loaders import Case, Epoch, persistent
from hoptrain.benchmarks.baselines.systems import AlgorithmSystems, NeighborSystems, Sample, System, num_steps, pooled
from hoptrain.benchmarks.cases.samplers import Workload
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.engine.arrays import Array

_MOST_BYTES = 1 << 28
"""Maximum bytes of a temporary array in one call."""


def open_neighbor(backend: str, graph: Graph) -> NeighborSystems:
    """Convert the graph and return PyG's neighbour samplers.

    Args:
        backend: "pyg-lib" or "torch-sparse".
        graph: the graph.

    Raises:
        InputError: the backend is not installed, or PyG uses the other one.
    """
    require("torch_geometric")
    from torch_geometric import typing as backends
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

    if not {"pyg-lib": backends.WITH_PYG_LIB, "torch-sparse": backends.WITH_TORCH_SPARSE}[backend]:
        raise InputError("not installed")
    if backends.WITH_PYG_LIB and backend != "pyg-lib":
        raise InputError("PyG uses pyg-lib, which is also installed, instead of torch-sparse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # hides the warning that torch-sparse is deprecated
        base = NeighborSampler(to_pyg(graph), [1], is_sorted=True)

    def systems(fanouts: Sequence[int], replace: bool, threads: Sequence[int]) -> Iterator[System]:
        sampler = copy(base)  # a shallow copy, which shares the graph
        sampler.num_neighbors, sampler.replace = list(fanouts), replace

        def sample(ids: Array) -> int:
            return len(sampler.sample_from_nodes(NodeSamplerInput(input_id=None, node=torch.from_numpy(ids))).edge)

        return pooled("PyG", backend, sample, threads, mode="new")

    return systems


def open_algorithms(graph: Graph) -> AlgorithmSystems:
    """Convert the graph and return PyG's sampling algorithms.

    Raises:
        InputError: PyG or torch-sparse is not installed.
    """
    require("torch_geometric")
    require("torch_sparse")
    warnings.filterwarnings("ignore", message=".*torch-sparse.*")  # hides the warning that torch-sparse is deprecated
    data = to_pyg(graph, by_destination=True)

    def systems(name: str, workload: Workload, threads: Sequence[int]) -> Iterator[System]:
        if name not in _ALGORITHMS:
            return
        make, note = _ALGORITHMS[name]
        try:
            sample = make(copy(data), workload)  # a shallow copy, which shares the graph
        except InputError as error:
            print(f"left out PyG, {name}: {error}")
            return
        yield from pooled("PyG", "PyG", sample, threads, note=note)

    return systems


def open_loader(data: Dataset) -> Callable[[Case, int], Epoch]:
    """Convert the data set with ``feature_data``, and return a function that opens PyG's loader."""
    owned = feature_data(data)

    def make(case: Case, workers: int) -> Epoch:
        loader = neighbor_loader(owned, case.fanouts, torch.from_numpy(case.seeds), **persistent(case.batch_size, workers))

        def epoch() -> Iterator[tuple[int, Array]]:
            for batch in loader:
                yield batch.edge_index.size(1), batch.x.numpy()
                del batch

        return epoch

    return make


def to_pyg(graph: Graph, *, by_destination: bool = False, **arrays: Any) -> Any:
    """Return PyG's ``Data`` with int64 ids and its own copy of the arrays.

    Args:
        graph: the graph.
        by_destination: store edges from destination to source, sorted by destination, as PyG's subgraph and walk samplers need them.
        arrays: additional tensors of the ``Data``.
    """
    from torch_geometric.data import Data

    sources = torch.from_numpy(graph.indices.astype(np.int64))
    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    ends = [destinations, sources] if by_destination else [sources, destinations]
    return Data(edge_index=torch.stack(ends), num_nodes=graph.num_nodes, **arrays)


def check_samples() -> None:
    """Check that PyG can sample.

    Raises:
        InputError: PyG is not installed, or neither pyg-lib nor torch-sparse is.
    """
    require("torch_geometric")
    warnings.simplefilter("ignore")  # hides the warning that torch-sparse is deprecated; only PyG runs in this process
    from torch_geometric import typing as backends

    if not (backends.WITH_PYG_LIB or backends.WITH_TORCH_SPARSE):
        raise InputError("not installed: PyG needs pyg-lib or torch-sparse for sampling")


def feature_data(data: Dataset) -> Any:
    """Return the data set as PyG's ``Data``, for ``NeighborLoader``.

    Raises:
        InputError: PyG is not installed, or neither pyg-lib nor torch-sparse is.
    """
    check_samples()
    return to_pyg(data.graph, x=torch.tensor(data.x), y=torch.tensor(data.y))


def neighbor_loader(data: Any, fanouts: Sequence[int], seeds: torch.Tensor, **options: Any) -> Any:
    """Return PyG's ``NeighborLoader`` over ``feature_data``, whose edges are sorted by destination."""
    from torch_geometric.loader import NeighborLoader

    return NeighborLoader(data, list(fanouts), input_nodes=seeds, is_sorted=True, **options)


def open_pair(data: Dataset, fanouts: Sequence[int], seeds: Array, batch_size: int) -> Pair:
    """Return a script for PyG's ``NeighborLoader``, with the original import line and with hoptrain's.

    Raises:
        InputError: PyG is not installed, or neither pyg-lib nor torch-sparse is.
    """
    owned = feature_data(data)
    from torch_geometric.nn import GraphSAGE

    def script(module: str, workers: int) -> Any:
        loader = import_module(module).NeighborLoader
        return loader(owned, list(fanouts), input_nodes=torch.from_numpy(seeds), is_sorted=True, **persistent(batch_size, workers))

    def step(model: Any, batch: Any) -> torch.Tensor:
        logits = model(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size])

    return Pair(
        loaders={"PyG": partial(script, "torch_geometric.loader"), HOPTRAIN: partial(script, "hoptrain.pyg")},
        features=lambda batch: [batch.x.numpy()],
        model=lambda: GraphSAGE(data.num_features, 32, len(fanouts), data.num_classes),
        loss=step,
    )


def cluster_data(data: Any, clusters: Array, number: int) -> Any:
    """Return PyG's ``ClusterData`` with hoptrain's ``clusters`` (V,) instead of a new METIS clustering."""
    from torch_geometric.loader import ClusterData

    class GivenClusters(ClusterData):
        def _metis(self, edge_index: Any, num_nodes: int) -> Any:
            return torch.from_numpy(clusters)

    return GivenClusters(data, number, log=False)


def _adjacency(data: Any) -> Any:
    from torch_sparse import SparseTensor

    row, column = data.edge_index
    return SparseTensor(row=row, col=column, sparse_sizes=(data.num_nodes, data.num_nodes), is_sorted=True, trust_data=True)


def _walk(data: Any, workload: Workload) -> Sample:
    adjacency = _adjacency(data)
    adjacency.storage.rowptr()
    return lambda seeds: num_steps(adjacency.random_walk(torch.from_numpy(seeds).long(), workload.options["length"]))


def _saint(kind: str, size: str) -> Callable[[Any, Workload], Sample]:
    def build(data: Any, workload: Workload) -> Sample:
        from torch_geometric import loader

        needed = 4 * workload.graph.num_edges * workload.options.get("budget", 0)
        if kind == "Edge" and needed > _MOST_BYTES:
            raise InputError(f"its edge sampling would allocate an array of {needed / 2**30:,.0f} GiB")
        length = [workload.options["walk_length"]] if kind == "RandomWalk" else []
        made = getattr(loader, f"GraphSAINT{kind}Sampler")(data, workload.options[size], *length)
        return lambda seeds: int(made._collate([made[0]]).edge_index.shape[1])

    return build


def _cluster(data: Any, workload: Workload) -> Sample:
    from torch_geometric.loader import ClusterLoader

    clusters = cluster_data(data, workload.cluster_of, len(np.unique(workload.cluster_of)))
    collate = ClusterLoader(clusters, batch_size=workload.batch_size)._collate
    return lambda units: int(collate(units.tolist()).edge_index.shape[1])


def _shadow(data: Any, workload: Workload) -> Sample:
    from torch_geometric.data import Data
    from torch_geometric.loader import ShaDowKHopSampler

    owned = Data(adj_t=_adjacency(data), num_nodes=data.num_nodes)
    loader = ShaDowKHopSampler(owned, workload.options["depth"], workload.options["num_neighbors"])
    return lambda seeds: int(loader.__collate__(seeds.tolist()).adj_t.nnz())


_ALGORITHMS: Mapping[str, tuple[Callable[[Any, Workload], Sample], str]] = {
    "walk": (_walk, ""),
    "cluster": (_cluster, ""),
    "saint_node": (_saint("Node", "budget"), "samples nodes by degree"),
    "saint_edge": (_saint("Edge", "budget"), ""),
    "saint_walk": (_saint("RandomWalk", "num_roots"), ""),
    "shadow": (_shadow, ""),
}
"""Name of an algorithm -> function that builds its ``Sample``, and a note for the result table."""
