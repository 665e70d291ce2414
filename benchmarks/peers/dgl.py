"""DGL's samplers for ``hoptrain bench algorithms``; how they are driven is said in ``hoptrain.benchmarks.peers.algorithms``."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.cases.algorithms import Contender, Open, Sample, Task, cluster_of, num_steps, pool_batches
from hoptrain.benchmarks.peers.samplers import require
from hoptrain.engine import Graph
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

    indptr, indices = (torch.from_numpy(np.array(array)) for array in (graph.indptr, graph.indices))
    edge_ids = indptr.new_empty(0)
    columns = dgl.graph(("csc", (indptr, indices, edge_ids)), num_nodes=graph.num_nodes)
    # Columns taken for rows: DGL walks along out-edges, hoptrain along in-edges.
    rows = dgl.graph(("csr", (indptr, indices, edge_ids)), num_nodes=graph.num_nodes)
    layouts = {"csc": columns.formats("csc"), "csr": rows.formats("csr")}
    layouts["csc"].edata["w"] = torch.from_numpy(np.array(graph.weights))

    def contenders(name: str, task: Task, threads: Sequence[int]) -> Iterator[Contender]:
        if name not in _DGL:
            return
        make, layout, note = _DGL[name]
        if layout not in layouts:
            layouts[layout] = columns.formats(["coo", "csr", "csc"])
            layouts[layout].create_formats_()
        # DGL draws the roots of GraphSAINT's walks as int64.
        graphs = {"DGL int64": layouts[layout].long()} if name == "saint_walk" else {"DGL": layouts[layout]}
        if name in ("neighbor", "weighted", "weighted_replace"):
            graphs["DGL int64 fused"] = layouts[layout].long()
        facts: dict[str, Any] = {"family": "DGL", "note": note, "counts": name != "shadow"}
        for label, own in graphs.items():
            sample = _converted(own, make(dgl, own, task))
            for count in threads:
                yield Contender(sample=partial(_in_turn, dgl, sample, count), name=label, threads=count, **facts)
                if count > 1:
                    pool = ThreadPoolExecutor(count, initializer=dgl.utils.set_num_threads, initargs=(1,))
                    yield Contender(sample=partial(pool_batches, pool, sample), name=f"{label} pooled", threads=count, **facts)

    return contenders


def _converted(graph: Any, sample: Callable[[Any], int]) -> Sample:
    import torch

    return lambda seeds: sample(torch.from_numpy(seeds).to(graph.idtype))


def _in_turn(dgl: Any, sample: Sample, threads: int, seeds: Sequence[Array], first: int) -> int:
    """One mini-batch after the other, by OpenMP threads."""
    import torch

    dgl.utils.set_num_threads(threads)
    torch.set_num_threads(threads)
    return sum(map(sample, seeds))


def _blocks_of(make: Callable[[Any, list[int]], Any]) -> Callable[[Any, Any, Task], Callable[[Any], int]]:
    """A sampler of blocks; DGL lists fanouts in the order of a model's layers, the seeds' last."""

    def build(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
        sampler = make(dgl, list(reversed(task.options["fanouts"])))
        return lambda seeds: sum(block.num_edges() for block in sampler.sample(graph, seeds)[2])

    return build


def _neighbors(**options: Any) -> Callable[[Any, Any, Task], Callable[[Any], int]]:
    """Its neighbour sampler; the fused one for int64 ids only, since with int32 its blocks lack edges."""

    def build(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
        fused = str(graph.idtype) == "torch.int64"
        return _blocks_of(lambda dgl, fanouts: dgl.dataloading.NeighborSampler(fanouts, fused=fused, **options))(dgl, graph, task)

    return build


def _dgl_walk(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
    return lambda seeds: num_steps(dgl.sampling.random_walk(graph, seeds, length=task.options["length"])[0])


def _dgl_node2vec(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
    p, q, length = (task.options[name] for name in ("p", "q", "length"))
    return lambda seeds: num_steps(dgl.sampling.node2vec_random_walk(graph, seeds, p, q, length))


def _dgl_pinsage(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
    """A hop is a call and ``to_block``, as in DGL's example of PinSAGE."""
    length, restart, walks, neighbors = (task.options[name] for name in ("length", "restart", "walks", "neighbors"))
    find = dgl.sampling.RandomWalkNeighborSampler(graph, length, restart, walks, neighbors)

    def sample(seeds: Any) -> int:
        edges = 0
        for _ in range(task.sampler.num_hops):
            block = dgl.to_block(find(seeds), seeds)
            seeds, edges = block.srcdata[dgl.NID], edges + block.num_edges()
        return edges

    return sample


def _dgl_subgraph(make: Callable[[Any, Task], Any]) -> Callable[[Any, Any, Task], Callable[[Any], int]]:
    def build(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
        sampler = make(dgl, task)
        return lambda seeds: sampler.sample(graph, seeds).num_edges()

    return build


def _dgl_saint_node(dgl: Any, task: Task) -> Any:
    """With the paper's law, which hoptrain has: its own draws are by degree, and give other subgraphs."""
    import torch

    sampler = dgl.dataloading.SAINTSampler("node", task.options["budget"])
    sampler.prob = torch.from_numpy(squared_columns(task.graph)).float()
    return sampler


def squared_columns(graph: Graph) -> Array:
    """(V,) float64: for every vertex the sum of 1 / d**2 over its out-edges, d being the in-degree of the destination."""
    degrees = graph.in_degrees()
    each = np.repeat(1.0 / np.maximum(degrees, 1) ** 2, degrees)
    return np.bincount(graph.indices, each, minlength=graph.num_nodes)


def _dgl_cluster(dgl: Any, task: Task) -> Any:
    """With hoptrain's clusters, from the file that DGL keeps its own in."""
    import torch

    clusters = cluster_of(task)
    begins = np.r_[0, np.cumsum(np.bincount(clusters))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clusters.pkl"
        nodes = torch.from_numpy(np.argsort(clusters, kind="stable").astype(np.int32))
        path.write_bytes(pickle.dumps((torch.from_numpy(begins), nodes)))
        graph = dgl.graph(([], []), num_nodes=task.graph.num_nodes)
        return dgl.dataloading.ClusterGCNSampler(graph, len(begins) - 1, cache_path=str(path))


def _dgl_shadow(dgl: Any, graph: Any, task: Task) -> Callable[[Any], int]:
    sampler = dgl.dataloading.ShaDowKHopSampler([task.options["neighbors"]] * task.options["depth"])
    return lambda seeds: int(sampler.sample(graph, seeds)[2].num_edges())


_DGL: Mapping[str, tuple[Callable[[Any, Any, Task], Callable[[Any], int]], str, str]] = {
    "neighbor": (_neighbors(), "csc", ""),
    "weighted": (_neighbors(prob="w"), "csc", ""),
    "weighted_replace": (_neighbors(prob="w", replace=True), "csc", ""),
    "labor0": (_blocks_of(lambda dgl, fanouts: dgl.dataloading.LaborSampler(fanouts)), "csc", ""),
    "labor1": (_blocks_of(lambda dgl, fanouts: dgl.dataloading.LaborSampler(fanouts, importance_sampling=1)), "csc", ""),
    "pinsage": (_dgl_pinsage, "csr", ""),
    "walk": (_dgl_walk, "csr", ""),
    "node2vec": (_dgl_node2vec, "csr", ""),
    "cluster": (_dgl_subgraph(_dgl_cluster), "csc", ""),
    "saint_node": (_dgl_subgraph(_dgl_saint_node), "csc", "given the paper's law"),
    "saint_edge": (_dgl_subgraph(lambda dgl, task: dgl.dataloading.SAINTSampler("edge", task.options["budget"])), "all", ""),
    "saint_walk": (
        _dgl_subgraph(lambda dgl, task: dgl.dataloading.SAINTSampler("walk", (task.options["roots"], task.options["length"]))),
        "all",
        "",
    ),
    "shadow": (_dgl_shadow, "csc", "not counted: one subgraph for all seeds together"),
}
"""How to make each algorithm, the layout of the graph that it needs, and a note."""
