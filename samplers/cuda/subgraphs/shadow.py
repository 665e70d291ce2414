"""CUDA drivers of the ShaDow samplers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cuda.draw import DISTINCT, count_draws
from hoptrain.kernels.cuda.relabel import clear_table, enter_nodes, relabel
from hoptrain.kernels.cuda.sample_parallel import draw_by_sample
from hoptrain.kernels.cuda.scan import exclusive_scan
from hoptrain.kernels.cuda.subgraphs import pagerank
from hoptrain.kernels.cuda.subgraphs import shadow as kernels
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds
from hoptrain.samplers.cuda.bulk import Bulk
from hoptrain.samplers.cuda.device_sampler import Upload, longest
from hoptrain.samplers.cuda.subgraphs.induced import Induced
from hoptrain.samplers.subgraphs.shadow import DisjointSampler, ShadowPPRSampler, ShadowSampler

_SEARCH_BYTES = 1 << 30
"""Maximum scratch memory in bytes of all PageRank searches that run at once."""
_SEARCH_THREADS = 32
"""Number of threads per PageRank search: one warp, since a warp synchronises cheaply and most columns are short."""


class CudaDisjoint(Induced):
    """The base class of the drivers of samplers that give each seed a subgraph of its own.

    A node of a batch is a pair of a seed and a node of the graph. ``sizes["seeds"]`` and ``sizes["nodes"]`` are the numbers of seeds and of pairs of
    a batch, and the relabelling table maps pairs to local ids.
    """

    def __init__(self, graph: Graph, sampler: DisjointSampler, workspace: Workspace) -> None:
        """Copy the graph to the device, or to pinned host memory.

        Raises:
            InputError: CUDA cannot be used, or the kernel or placement is unknown.
        """
        super().__init__(graph, workspace)
        self.num_layers = sampler.num_layers
        self.num_kept = sampler.most_vertices(graph)[1]

    def begin(self, seeds: list[Array]) -> None:
        """Check the seeds, and compute bounds of the sizes of a batch."""
        self.seeds = [check_seeds(self.host_graph, some, distinct=True) for some in seeds]
        self.most_seeds = longest(self.seeds)
        self.most = self.most_seeds * self.num_kept
        self.dtype = np.promote_types(self.dtype, id_dtype(max(self.num_graph_edges, self.most_entries()) + 2))
        self.parts = self.num_parts(self.most)
        self.given |= {"seeds": [len(some) for some in self.seeds], "parts": self.parts}

    def most_entries(self) -> int:
        """Return a bound of all offsets, positions and numbers that a batch stores. ``dtype`` must hold this bound and the number of edges of the graph."""
        return 4 * self.most

    def uploads(self) -> dict[str, Upload]:
        """Return the seeds of each batch as the upload "seeds"."""
        return {"seeds": Upload(self.seeds, self.id_dtype)}

    def queue(self) -> None:
        """Queue the search for the nodes of the subgraphs, and for the edges within them."""
        self.nodes = self.matrix("placed", self.most, np.int64)
        self.vertices = self.matrix("nodes", self.most, self.id_dtype)
        table = self.table("table", self.most, np.int64)
        clear_table(self.launch, *table)
        self.find_sets(self.brought["seeds"], table)
        self.host_begins = self.buffers.pinned("begins", self.begins)
        self.begins.copy_to_host(self.host_begins, stream=self.stream.numba)
        self.induce(self.most, table)

    @abstractmethod
    def find_sets(self, seeds: Any, table: tuple[Any, Any]) -> None:
        """Queue the search for the nodes of the subgraphs.

        It writes the pairs to ``nodes`` and their global ids to ``vertices`` in the final order, enters the pairs in ``table``, and sets ``sizes["nodes"]``.
        """

    def node_ids(self) -> Any:
        """Return the global ids (K, S) of the nodes."""
        return self.vertices

    def batches(self) -> Bulk[MiniBatch]:
        """Return the mini-batches of the bulk, with the sizes of their subgraphs."""
        begins, ends = self.host_begins.copy(), self.host_size("nodes").tolist()

        def with_sizes(b: int, batch: MiniBatch) -> MiniBatch:
            sizes = np.diff(begins[b, : batch.num_seeds], append=ends[b])
            return replace(batch, subgraph_sizes=tuple(sizes.tolist()))

        return super().batches().map(with_sizes)

    def scan_found(self, found: Any) -> None:
        """Turn ``found`` (K, B+1), the number of nodes without the seed in each seed's subgraph, into the offsets ``begins`` of these nodes."""
        self.begins = found
        zeros, seeds = self.sizes["zeros"], self.sizes["seeds"]
        exclusive_scan(self.launch, found, self.most_seeds, zeros, seeds, seeds, self.sums(self.most_seeds), self.sizes["nodes"])


class CudaShadow(CudaDisjoint):
    """The driver of ``ShadowSampler``, which samples the neighbourhoods of all seeds of a batch together, with pairs as nodes."""

    def __init__(self, graph: Graph, sampler: ShadowSampler, workspace: Workspace) -> None:
        """Copy the graph to the device; see ``CudaDisjoint``."""
        super().__init__(graph, sampler, workspace)
        self.hops, self.fanout = range(sampler.depth), sampler.num_neighbors
        self.size_names = (
            "zeros", "seeds", "parts", "nodes", "in_edges", "edges", "seed_edges",
            *(f"found{hop}" for hop in self.hops), *(f"drawn{hop}" for hop in self.hops),
        )  # fmt: skip

    def most_entries(self) -> int:
        """Return a bound of all numbers that a batch stores, including those of a hop's edges."""
        return 4 * self.most + self.most * self.fanout

    def find_sets(self, seeds: Any, table: tuple[Any, Any]) -> None:
        """Queue all hops, and then the sorting of the pairs by seed."""
        launch, sizes, most, most_seeds = self.launch, self.sizes, self.most, self.most_seeds
        pairs, numbers = self.matrix("pairs", most, np.int64), self.matrix("numbers", most, self.dtype)
        found, shift = self.matrix("sizes_of_sets", most_seeds + 1, self.dtype), self.matrix("shift", most_seeds, self.dtype)
        launch.rows(kernels.begin_sets, most_seeds, seeds, sizes["seeds"], pairs, found)
        launch.rows(enter_nodes, most_seeds, pairs, sizes["seeds"], *table, pairs)
        low, high, fresh = sizes["zeros"], sizes["seeds"], most_seeds
        for hop in self.hops:
            after = sizes[f"found{hop}"]
            self._expand(hop, pairs, low, high, fresh, table, after)
            low, high, fresh = high, after, min(fresh * self.fanout, most)
            launch.rows(kernels.begin_runs, fresh, pairs, low, high, found, shift)
            launch.rows(kernels.number_runs, fresh, pairs, low, high, shift, found, numbers)
        self.scan_found(found)
        launch.rows(kernels.place_pairs, most, pairs, high, sizes["seeds"], found, numbers, *table, self.nodes, self.vertices)

    def _expand(self, hop: int, pairs: Any, low: Any, high: Any, fresh: int, table: tuple[Any, Any], after: Any) -> None:
        """Queue the draws of neighbours for the pairs from ``low`` to ``high``, at most ``fresh`` pairs.

        New pairs (a seed and a node of its set) are appended to ``pairs``; the position after the last one is written to ``after``.
        """
        launch, sizes, most = self.launch, self.sizes, fresh * self.fanout
        offsets, end = self.matrix("offsets", self.most + 1, self.dtype), sizes[f"drawn{hop}"]
        launch.rows(kernels.list_vertices_of, fresh, pairs, low, high, self.vertices)
        launch.rows(count_draws, fresh, self.graph.indptr, self.graph.alias, self.vertices, low, high, self.fanout, DISTINCT, offsets)
        exclusive_scan(launch, offsets, fresh, low, high, sizes["zeros"], self.sums(fresh), end)
        edges = self.matrix("drawn_edges", most, self.edge_dtype), self.matrix("neighbors", most, self.id_dtype)
        draw = self.fanout, DISTINCT, self.addresses[hop]
        draw_by_sample(launch, self.graph.arrays(), (self.vertices, low, high), fresh, draw, (offsets, *edges))
        reached = self.matrix("reached", most, np.int64)
        launch.rows(kernels.pair_neighbors, most, pairs, low, high, offsets, end, edges[1], reached)
        relabel(launch, reached, pairs, most, sizes["zeros"], end, self.most, table, self.relabel_scratch(most), high, after)


class CudaShadowPPR(CudaDisjoint):
    """The driver of ``ShadowPPRSampler``."""

    size_names = ("zeros", "seeds", "parts", "nodes", "in_edges", "edges", "seed_edges")
    hops = range(1)

    def __init__(self, graph: Graph, sampler: ShadowPPRSampler, workspace: Workspace) -> None:
        """Copy the graph to the device; see ``CudaDisjoint``."""
        super().__init__(graph, sampler, workspace)
        self.num_reached = sampler.most_vertices(graph)[0] + 1
        self.top = min(sampler.top, self.num_reached)
        self.precision = sampler.push_precision

    def find_sets(self, seeds: Any, table: tuple[Any, Any]) -> None:
        """Queue the PageRank searches, for as many seeds at a time as memory allows, and then the ordering of the found nodes."""
        launch, sizes = self.launch, self.sizes
        begins = self.matrix("sizes_of_sets", self.most_seeds + 1, self.dtype)
        chosen = self.matrix("chosen", self.most_seeds * self.top, self.id_dtype)
        threads = min(_SEARCH_THREADS, self.thresholds.block)
        scratch = self._scratch()
        pagerank.pagerank_sets[(len(scratch.kept),), threads, self.stream.numba, 8 * threads](
            self.graph.indptr,
            self.graph.indices,
            seeds,
            sizes["seeds"],
            self.most_seeds,
            self.top,
            *self.precision,
            *scratch,
            chosen,
            begins,
        )
        self.scan_found(begins)
        most = self.most_seeds * (self.top + 1)
        launch.rows(kernels.place_chosen, most, seeds, sizes["seeds"], begins, chosen, self.top, self.nodes, self.vertices)
        launch.rows(enter_nodes, self.most, self.nodes, sizes["nodes"], *table, self.nodes)

    def _scratch(self) -> pagerank.PageRankScratch:
        """Return scratch buffers for as many concurrent searches as memory allows, at most one for each seed."""
        size, capacity = 1 << (2 * self.num_reached - 1).bit_length(), self.num_reached
        row_bytes = size * (self.id_dtype.itemsize + 4) + capacity * (self.id_dtype.itemsize + 20) + 8 * self.top
        rows = max(1, min(self.num_batches * self.most_seeds, self.thresholds.max_blocks, _SEARCH_BYTES // row_bytes))
        array = self.buffers.array
        return pagerank.PageRankScratch(
            keys=array("search.keys", (rows, size), self.id_dtype),
            values=array("search.values", (rows, size), np.int32),
            members=array("search.members", (rows, capacity), self.id_dtype),
            residue=array("search.residue", (rows, capacity), np.int64),
            score=array("search.score", (rows, capacity), np.int64),
            queue=array("search.queue", (rows, capacity), np.int32),
            kept=array("search.kept", (rows, self.top), np.int64),
        )
