"""DGL as a baseline, used as its documentation recommends: its neighbour sampler, its other sampling algorithms, and its loader.

Neighbour sampling
    ``NeighborSampler.sample`` on a graph in CSC format only, with int64 ids (its default) and int32 ids. The number of threads is that of OpenMP.
    ``fused`` is DGL's default variant with two threads or more. It is left out with int32 ids, since its blocks are wrong there: DGL 2.1.0 marks
    known nodes in an int64 array and reads the marks as int32, so from the second mini-batch on edges are missing and local ids lie outside the block.
    Each hop expands all nodes found so far: mode "all".
Algorithms
    The ``sample`` method of its samplers, on graphs in the one format that the algorithm needs, with int32 ids as in hoptrain (and int64 for the fused
    neighbour sampler). Walks are functions of ``dgl.sampling``. In the variant "pooled" each thread samples whole mini-batches, since much of DGL is
    serial. Features are not fetched.
Loader
    ``DataLoader`` over a graph in CSC format with int64 ids, ``NeighborSampler`` with its default for ``fused``, features and labels named for
    prefetching: they are gathered in the consumer's process, with one thread per core.

All return new tensors: local ids of the edges' ends, global node ids, and edge ids if DGL provides them.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from hoptrain.benchmarks.baselines import installed
from hoptrain.benchmarks.baselines.lines import Pair
from hoptrain.benchmarks.baselines.loaders import Case, Epoch, persistent
from hoptrain.benchmarks.baselines.systems import AlgorithmSystems, NeighborSystems, Sample, System, num_steps, pool_batches
from hoptrain.benchmarks.cases.samplers import Workload
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.engine import Dataset, Graph
from hoptrain.engine.arrays import Array

Build: TypeAlias = Callable[[Any, Any, Workload], Callable[[Any], int]]
"""A function of DGL, its graph and the workload. It returns a function that samples a tensor of seeds and returns the number of edges (or walk steps)."""


def open_neighbor(graph: Graph) -> NeighborSystems:
    """Convert the graph and return DGL's neighbour samplers.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    dgl = installed.dgl()
    wide = to_dgl(graph, dtype=np.int64).formats("csc")
    graphs = {"int64": wide, "int32": wide.int()}

    def systems(fanouts: Sequence[int], replace: bool, threads: Sequence[int]) -> Iterator[System]:
        for count in threads:
            for ids, dgl_graph in graphs.items():
                for fused in (False, True) if count > 1 and ids == "int64" else (False,):
                    sample = _blocks(neighbor_sampler(fanouts, replace=replace, fused=fused), dgl_graph)
                    name = f"DGL {ids} fused" if fused else f"DGL {ids}"
                    in_turn = partial(_in_turn, dgl, _converted(dgl_graph, sample), count)
                    yield System(family="DGL", name=name, mode="all", threads=count, sample=in_turn)

    return systems


def open_algorithms(graph: Graph) -> AlgorithmSystems:
    """Convert the graph to each layout and return DGL's sampling algorithms.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    dgl = installed.dgl()
    columns = to_dgl(graph)
    layouts = {"csc": columns.formats("csc"), "csr": to_dgl(graph, "csr").formats("csr")}
    layouts["csc"].edata["w"] = torch.from_numpy(np.array(graph.weights))

    def systems(name: str, workload: Workload, threads: Sequence[int]) -> Iterator[System]:
        if name not in _ALGORITHMS:
            return
        make, layout, note = _ALGORITHMS[name]
        if layout not in layouts:
            layouts[layout] = columns.formats(["coo", "csr", "csc"])
            layouts[layout].create_formats_()
        # DGL draws the roots of GraphSAINT's walks as int64.
        graphs = {"DGL int64": layouts[layout].long()} if name == "saint_walk" else {"DGL": layouts[layout]}
        if name in ("neighbor", "weighted", "weighted_replace"):
            graphs["DGL int64 fused"] = layouts[layout].long()
        facts: dict[str, Any] = {"family": "DGL", "note": note, "counts": name != "shadow"}
        for label, own in graphs.items():
            sample = _converted(own, make(dgl, own, workload))
            for count in threads:
                yield System(sample=partial(_in_turn, dgl, sample, count), name=label, threads=count, **facts)
                if count > 1:
                    pool = ThreadPoolExecutor(count, initializer=dgl.utils.set_num_threads, initargs=(1,))
                    yield System(sample=partial(pool_batches, pool, sample), name=f"{label} pooled", threads=count, **facts)

    return systems


def open_loader(data: Dataset) -> Callable[[Case, int], Epoch]:
    """Convert the data set and return a function that opens DGL's loader.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    graph = feature_graph(data)

    def make(case: Case, workers: int) -> Epoch:
        options = persistent(case.batch_size, workers)
        loader = data_loader(graph, torch.from_numpy(case.seeds), feature_sampler(case.fanouts), **options)

        def epoch() -> Iterator[tuple[int, Array]]:
            for _, _, blocks in loader:
                yield sum(block.num_edges() for block in blocks), blocks[0].srcdata["x"].numpy()
                del blocks

        return epoch

    return make


def open_mapped(prepare: Callable[[], None], data: Dataset) -> Callable[[Case, int], Epoch]:
    """Return a function that opens DGL's loader with memory-mapped features. Its batches contain the features as raw bytes.

    Args:
        prepare: function to call when all other data are in memory.
        data: data set opened from a folder.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    graph = feature_graph(data, x=torch.from_numpy(np.asarray(data.x)))

    def make(case: Case, workers: int) -> Epoch:
        loader = data_loader(graph, torch.from_numpy(case.seeds), feature_sampler(case.fanouts), **persistent(case.batch_size, workers))
        prepare()

        def epoch() -> Iterator[tuple[int, Array]]:
            for _, _, blocks in loader:
                yield sum(block.num_edges() for block in blocks), blocks[0].srcdata["x"].numpy().view(np.uint8)
                del blocks

        return epoch

    return make


def open_pair(data: Dataset, fanouts: Sequence[int], seeds: Array, batch_size: int) -> Pair:
    """Return a script for DGL's ``DataLoader``, with the original import line and with hoptrain's.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    dgl, graph = installed.dgl(), feature_graph(data)
    convolution = import_module("dgl.nn.pytorch").SAGEConv
    widths = [data.num_features, *[32] * (len(fanouts) - 1), data.num_classes]

    def script(module: Any, workers: int) -> Any:
        sampler = module.NeighborSampler(list(reversed(fanouts)), prefetch_node_feats=["x"], prefetch_labels=["y"])
        return module.DataLoader(graph, torch.from_numpy(seeds), sampler, **persistent(batch_size, workers))

    def loss(model: Any, batch: Any) -> torch.Tensor:
        blocks = batch[2]
        x = blocks[0].srcdata["x"]
        for layer, block in zip(model, blocks, strict=True):
            x = layer(block, x) if layer is model[-1] else torch.relu(layer(block, x))
        return torch.nn.functional.cross_entropy(x, blocks[-1].dstdata["y"])

    return Pair(
        loaders={
            "DGL": lambda workers: script(dgl.dataloading, workers),
            HOPTRAIN: lambda workers: script(import_module("hoptrain.dgl"), workers),
        },
        features=lambda batch: [batch[2][0].srcdata["x"].numpy()],
        model=lambda: torch.nn.ModuleList(convolution(*ends, "mean") for ends in pairwise(widths)),
        loss=loss,
    )


def to_dgl(graph: Graph, layout: str = "csc", dtype: Any = None) -> Any:
    """Convert a graph to a DGL graph, which gets its own copy of the arrays.

    Args:
        graph: the graph.
        layout: "csc", or "csr" to use columns as rows, since DGL walks along out-edges and hoptrain along in-edges.
        dtype: data type of the ids; None keeps that of ``graph``.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    dgl = installed.dgl()
    indptr, indices = (torch.from_numpy(np.array(array, dtype)) for array in (graph.indptr, graph.indices))
    return dgl.graph((layout, (indptr, indices, indptr.new_empty(0))), num_nodes=graph.num_nodes)


def feature_graph(data: Dataset, labels: Any = None, formats: str | None = "csc", x: Any = None) -> Any:
    """Convert a data set to a DGL graph with int64 ids, features ``x`` and labels ``y`` (V,), copied by default. ``formats`` None allows all formats.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    installed.require("dgl")
    warnings.simplefilter("ignore")  # hides DGL's advice to pin processes to cores; only DGL runs in this process
    graph = to_dgl(data.graph, dtype=np.int64)
    graph = graph if formats is None else graph.formats(formats)
    graph.ndata["x"] = torch.tensor(data.x) if x is None else x
    graph.ndata["y"] = torch.tensor(data.y) if labels is None else labels
    return graph


def neighbor_sampler(fanouts: Sequence[int], kind: str = "NeighborSampler", **options: Any) -> Any:
    """Return DGL's neighbour sampler of class ``kind``. DGL lists fanouts in the order of a model's layers, so that of the seeds comes last."""
    return getattr(installed.dgl().dataloading, kind)(list(reversed(fanouts)), **options)


def feature_sampler(fanouts: Sequence[int]) -> Any:
    """Return DGL's ``NeighborSampler`` for ``feature_graph``, with features and labels named for prefetching."""
    return neighbor_sampler(fanouts, prefetch_node_feats=["x"], prefetch_labels=["y"])


def cluster_sampler(graph: Any, clusters: Array, number: int, dtype: Any, **options: Any) -> Any:
    """Return DGL's ``ClusterGCNSampler`` with hoptrain's ``clusters`` (V,), passed through DGL's cache file. Node ids have ``dtype``."""
    begins = np.r_[0, np.cumsum(np.bincount(clusters))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clusters.pkl"
        members = torch.from_numpy(np.argsort(clusters, kind="stable").astype(dtype))
        path.write_bytes(pickle.dumps((torch.from_numpy(begins), members)))
        return installed.dgl().dataloading.ClusterGCNSampler(graph, number, cache_path=str(path), **options)


def data_loader(graph: Any, items: torch.Tensor, sampler: Any, **options: Any) -> Any:
    """Return DGL's ``DataLoader``."""
    return installed.dgl().dataloading.DataLoader(graph, items, sampler, **options)


def data_loading() -> Any:
    """Return the module of DGL's ``DataLoader``, so that its functions can be timed."""
    return installed.dgl().dataloading.dataloader


def _converted(graph: Any, sample: Callable[[Any], int]) -> Sample:
    return lambda seeds: sample(torch.from_numpy(seeds).to(graph.idtype))


def _in_turn(dgl: Any, sample: Sample, threads: int, seeds: Sequence[Array], first: int) -> int:
    """Sample mini-batches one after the other with ``threads`` OpenMP threads, and return their total number of edges (or steps)."""
    dgl.utils.set_num_threads(threads)
    torch.set_num_threads(threads)
    return sum(map(sample, seeds))


def _blocks(sampler: Any, graph: Any) -> Callable[[Any], int]:
    return lambda seeds: sum(block.num_edges() for block in sampler.sample(graph, seeds)[2])


def _neighbor(**options: Any) -> Build:
    """Return a builder of DGL's neighbour sampler. It is fused only for int64 ids, since fused blocks with int32 ids lack edges."""
    return lambda _, graph, workload: _blocks(
        neighbor_sampler(workload.options["fanouts"], fused=graph.idtype == torch.int64, **options), graph
    )


def _labor(**options: Any) -> Build:
    return lambda _, graph, workload: _blocks(neighbor_sampler(workload.options["fanouts"], "LaborSampler", **options), graph)


def _walk(dgl: Any, graph: Any, workload: Workload) -> Callable[[Any], int]:
    return lambda seeds: num_steps(dgl.sampling.random_walk(graph, seeds, length=workload.options["length"])[0])


def _node2vec(dgl: Any, graph: Any, workload: Workload) -> Callable[[Any], int]:
    p, q, length = (workload.options[name] for name in ("p", "q", "length"))
    return lambda seeds: num_steps(dgl.sampling.node2vec_random_walk(graph, seeds, p, q, length))


def _pinsage(dgl: Any, graph: Any, workload: Workload) -> Callable[[Any], int]:
    """Return a function that samples hop by hop, as DGL's PinSAGE example does: each hop calls the sampler, then ``to_block``."""
    length, restart, walks = (workload.options[name] for name in ("walk_length", "restart", "num_walks"))
    find = dgl.sampling.RandomWalkNeighborSampler(graph, length, restart, walks, workload.options["num_neighbors"][0])

    def sample(seeds: Any) -> int:
        edges = 0
        for _ in range(workload.sampler.num_hops):
            block = dgl.to_block(find(seeds), seeds)
            seeds, edges = block.srcdata[dgl.NID], edges + block.num_edges()
        return edges

    return sample


def _subgraph(make: Callable[[Any, Workload], Any]) -> Build:
    def build(dgl: Any, graph: Any, workload: Workload) -> Callable[[Any], int]:
        sampler = make(dgl, workload)
        return lambda seeds: sampler.sample(graph, seeds).num_edges()

    return build


def _saint_node(dgl: Any, workload: Workload) -> Any:
    """Return DGL's node sampler with the distribution of the paper, as in hoptrain. DGL's own draws depend on degrees and give other subgraphs."""
    sampler = dgl.dataloading.SAINTSampler("node", workload.options["budget"])
    sampler.prob = torch.from_numpy(_squared_columns(workload.graph)).float()
    return sampler


def _squared_columns(graph: Graph) -> Array:
    """Return for every node the sum of 1 / d**2 over its out-edges, (V,) float64, where d is the in-degree of the destination."""
    degrees = graph.in_degrees()
    each = np.repeat(1.0 / np.maximum(degrees, 1) ** 2, degrees)
    return np.bincount(graph.indices, each, minlength=graph.num_nodes)


def _cluster(dgl: Any, workload: Workload) -> Any:
    empty = dgl.graph(([], []), num_nodes=workload.graph.num_nodes)
    return cluster_sampler(empty, workload.cluster_of, int(workload.cluster_of.max()) + 1, np.int32)


def _shadow(dgl: Any, graph: Any, workload: Workload) -> Callable[[Any], int]:
    sampler = dgl.dataloading.ShaDowKHopSampler([workload.options["num_neighbors"]] * workload.options["depth"])
    return lambda seeds: int(sampler.sample(graph, seeds)[2].num_edges())


_ALGORITHMS: Mapping[str, tuple[Build, str, str]] = {
    "neighbor": (_neighbor(), "csc", ""),
    "weighted": (_neighbor(prob="w"), "csc", ""),
    "weighted_replace": (_neighbor(prob="w", replace=True), "csc", ""),
    "labor0": (_labor(), "csc", ""),
    "labor1": (_labor(importance_sampling=1), "csc", ""),
    "pinsage": (_pinsage, "csr", ""),
    "walk": (_walk, "csr", ""),
    "node2vec": (_node2vec, "csr", ""),
    "cluster": (_subgraph(_cluster), "csc", ""),
    "saint_node": (_subgraph(_saint_node), "csc", "with the paper's distribution"),
    "saint_edge": (_subgraph(lambda dgl, work: dgl.dataloading.SAINTSampler("edge", work.options["budget"])), "all", ""),
    "saint_walk": (
        _subgraph(lambda dgl, work: dgl.dataloading.SAINTSampler("walk", (work.options["num_roots"], work.options["walk_length"]))),
        "all",
        "",
    ),
    "shadow": (_shadow, "csc", "not counted: one subgraph for all seeds together"),
}
"""Name of an algorithm -> builder, the format of DGL's graph that it needs, and a note for the result table."""
