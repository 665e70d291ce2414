"""Sampling along one relation whose edges are in files. Entries that several batches need are read together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.graph import PartialGraph
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.temporal import TimedDrawOptions
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.buffers.alias import NO_TABLES
from hoptrain.samplers.buffers.hop import Hop, count_edges, draw_places, most_edges
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.hops import AloneDraws, Drawn, Draws, Request
from hoptrain.samplers.loader.topology.columns import NodeColumns, in_parts, read_entries
from hoptrain.samplers.loader.topology.timed import DrawsByTime
from hoptrain.samplers.loader.topology.weighted import DrawsByWeight


class RelationFiles:
    """The files of a relation's edges; a ``hoptrain.samplers.hops.EdgeReader``.

    Attributes:
        whole: the relation, or a homogeneous graph; arrays that have a file are not read from it.
        files: files by the name of the array (E,): "indices", "weights", "times" or "edge_ids". Other arrays are in memory.
        read_s: seconds of all reads so far.
    """

    def __init__(self, whole: RelationColumns, files: Mapping[str, FileRows], workspace: Workspace) -> None:
        """Store the files; they are opened later."""
        self.whole: Any = whole
        self.files: Mapping[str, FileRows] = files
        self.read_s: float = 0.0
        self._workspace = workspace

    def read(self, name: str, places: Sequence[Array]) -> list[Array]:
        """Return the entries of an array at each of several position arrays (M,), which are read together."""
        return np.split(self._read(name, np.concatenate(places)), np.cumsum([len(own) for own in places])[:-1])

    def _read(self, name: str, places: Array) -> Array:
        if name not in self.files:
            held: Array = getattr(self.whole, name)[places]
            return held
        begin = time.perf_counter()
        found = read_entries(self.files[name], places)
        self.read_s += time.perf_counter() - begin
        return found

    def answers(self, draws: Draws, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Return the edges that each request of a hop draws; see ``hoptrain.samplers.superbatch.window.Answers``."""
        return draws.read(self, hop, requests)

    def nothing(self, requests: Sequence[Request]) -> list[Drawn]:
        """Return no edges and empty weights."""
        none, ids = np.empty(0, id_dtype(self.whole.num_edges)), np.empty(0, self.whole.indices.dtype)
        return [Drawn(np.zeros(len(own.nodes) + 1, np.int64), none, ids, np.empty(0, np.float32)) for own in requests]

    def uniformly(self, rule: kernels.DrawOptions, requests: Sequence[Request]) -> list[Drawn]:
        """Draw edges uniformly, which needs only degrees, and read the sources of the drawn edges."""
        return self._with_sources([self._uniformly(rule, own) for own in requests])

    def by_weight(self, rule: kernels.DrawOptions, requests: Sequence[Request]) -> list[Drawn]:
        """Draw edges in proportion to weights, which are read for whole columns, and read the sources of the drawn edges."""
        return self._with_sources(self._draws_by_weight(rule, requests))

    def by_time(self, rule: TimedDrawOptions, requests: Sequence[Request]) -> list[Drawn]:
        """Draw edges under time bounds, with times that are read for whole columns, and read the sources of the drawn edges."""
        drawn = self._with_sources(self._draws_by_time(rule, requests))
        roots = (
            np.repeat(own.nodes >> TREE_SHIFT << TREE_SHIFT, np.diff(found.indptr)) for own, found in zip(requests, drawn, strict=True)
        )
        return [found._replace(sources=root | found.sources) for root, found in zip(roots, drawn, strict=True)]

    def _with_sources(self, drawn: Sequence[tuple[Array, Array]]) -> list[Drawn]:
        """Read the sources of drawn edges, given as offsets (n+1,) and CSC positions (M,), and return edges with sources."""
        sources, dtype = self.read("indices", [places for _, places in drawn]), id_dtype(self.whole.num_edges)
        return [Drawn(indptr, places.astype(dtype, copy=False), own) for (indptr, places), own in zip(drawn, sources, strict=True)]

    @cached_property
    def _draws_by_time(self) -> DrawsByTime:
        return DrawsByTime(self.whole.indptr, None if self.whole.times is None else partial(self._read, "times"))

    @cached_property
    def _draws_by_weight(self) -> DrawsByWeight:
        return DrawsByWeight(self.whole.indptr, partial(self._read, "weights"))

    def _uniformly(self, rule: kernels.DrawOptions, request: Request) -> tuple[Array, Array]:
        """Return offsets (n+1,) and CSC positions (M,) of the edges that each node draws, without reading their sources."""
        whole, number, nodes = self.whole, len(request.nodes), request.nodes
        columns = kernels.CscColumns(whole.indptr, whole.indices[:0], *NO_TABLES)
        most = most_edges(number, rule.fanout, lambda: count_edges(columns, nodes, 0, number, rule))
        places, none = np.empty(most, id_dtype(whole.num_edges)), np.empty(0, whole.indices.dtype)
        edges = kernels.HopEdges(np.zeros(number + 1, id_dtype(most + 1)), places, none)
        total = draw_places(Hop(self._workspace, columns, nodes, 0, number, rule, request.address, edges, 0))
        return edges.indptr, places[:total]

    @cached_property
    def _starts(self) -> Array:
        """Array (V+1,) for the offsets of columns that were read."""
        return np.empty_like(self.whole.indptr)

    def from_columns(self, draws: AloneDraws, hop: int, requests: Sequence[Request], names: Sequence[str]) -> list[Drawn]:
        """Sample by ``draws`` from whole columns, of which only the arrays ``names`` are read."""
        found: list[Drawn] = []
        columns = [NodeColumns.of(own.nodes, self.whole.indptr) for own in requests]
        for some in in_parts(int(own.degrees.sum()) for own in columns):
            places = [columns[i].places() for i in some]
            arrays = zip(*(self.read(name, places) for name in names), strict=True)
            for i, own in zip(some, arrays, strict=True):
                columns[i].enter(self._starts)
                found.append(self._drawn_from(draws, hop, requests[i], dict(zip(names, own, strict=True))))
        return found

    def _drawn_from(self, draws: AloneDraws, hop: int, request: Request, own: Mapping[str, Array]) -> Drawn:
        whole, starts = self.whole, self._starts
        at_hand = PartialGraph(starts, own["indices"], weights=own.get("weights"), is_sorted=False, validate=False)
        drawn = draws.draw(at_hand, hop, request, self._workspace)
        shift = np.repeat(whole.indptr[request.nodes].astype(np.int64) - starts[request.nodes], np.diff(drawn.indptr))
        weights = None if drawn.weights is None else drawn.weights.copy()
        return Drawn(drawn.indptr.copy(), (drawn.edge_ids + shift).astype(id_dtype(whole.num_edges)), drawn.sources.copy(), weights)
