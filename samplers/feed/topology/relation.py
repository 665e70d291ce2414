"""What vertices draw along one relation, or in a plain graph, whose edges lie in files: what any of some batches needs is read in the order of the file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.graph import PartialGraph
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.ahead.draws import Asked, Drawn, draw
from hoptrain.samplers.feed.topology.columns import Columns, in_parts, read_entries
from hoptrain.samplers.feed.topology.timed import DrawsByTime
from hoptrain.samplers.feed.topology.weighted import DrawsByWeight
from hoptrain.samplers.nodewise.hetero_labor import OneLabor
from hoptrain.samplers.nodewise.labor import LaborSampler
from hoptrain.samplers.scratch.alias import NO_TABLES
from hoptrain.samplers.scratch.hop import Hop, count_edges, draw_places, most_edges
from hoptrain.samplers.scratch.workspace import Workspace


class RelationFiles:
    """The files of a relation's edges, which are drawn from.

    Attributes:
        whole: the relation, or a plain graph: of what lies in files only ``indptr`` is looked at.
        files: by the names of its arrays (E,), "indices", "weights", "times", "edge_ids"; what has none lies in memory.
        read_s: seconds of reads so far.
    """

    def __init__(self, whole: Graph | RelationColumns, files: Mapping[str, FileRows], workspace: Workspace) -> None:
        """Nothing is opened yet."""
        self.whole: Any = whole
        self.files: Mapping[str, FileRows] = files
        self.read_s: float = 0.0
        self._workspace = workspace

    def read(self, name: str, places: Sequence[Array]) -> list[Array]:
        """The entries of an array at some ``places`` (M,) each, all together."""
        return np.split(self._read(name, np.concatenate(places)), np.cumsum([len(own) for own in places])[:-1])

    def _read(self, name: str, places: Array) -> Array:
        if name not in self.files:
            held: Array = getattr(self.whole, name)[places]
            return held
        begin = time.perf_counter()
        found = read_entries(self.files[name], places)
        self.read_s += time.perf_counter() - begin
        return found

    def draws(self, _: int, asked: Sequence[Asked]) -> list[Drawn]:
        """What some batches draw at a hop; see ``hoptrain.samplers.ahead.draws.Draws``."""
        sampler: Any = asked[0].sampler
        if isinstance(sampler, LaborSampler | OneLabor):
            if not sampler.fanouts[asked[0].hop]:
                return [self._nothing(own) for own in asked]
            return self._from_columns(asked, ("indices", "weights") if sampler.weighted else ("indices",))
        if asked[0].bounds is not None:
            return self._by_time(asked)
        is_by_weight = sampler.weighted and sampler.rules()[asked[0].hop].fanout != 0
        drawn = self._by_weight(asked) if is_by_weight else [self._uniformly(own) for own in asked]
        sources = self.read("indices", [places for _, places in drawn])
        dtype = id_dtype(self.whole.num_edges)
        return [Drawn(indptr, places.astype(dtype, copy=False), own) for (indptr, places), own in zip(drawn, sources, strict=True)]

    def _nothing(self, asked: Asked) -> Drawn:
        """A hop that leaves the relation out, of a sampler with weights."""
        none, ids = np.empty(0, id_dtype(self.whole.num_edges)), np.empty(0, self.whole.indices.dtype)
        return Drawn(np.zeros(len(asked.nodes) + 1, np.int64), none, ids, np.empty(0, np.float32))

    def _by_time(self, asked: Sequence[Asked]) -> list[Drawn]:
        drawn = self._draws_by_time(asked)
        sources = self.read("indices", [places for _, places in drawn])
        dtype, found = id_dtype(self.whole.num_edges), []
        for own, (indptr, places), ids in zip(asked, drawn, sources, strict=True):
            roots = np.repeat(own.nodes >> TREE_SHIFT << TREE_SHIFT, np.diff(indptr))
            found.append(Drawn(indptr, places.astype(dtype, copy=False), roots | ids))
        return found

    @cached_property
    def _draws_by_time(self) -> DrawsByTime:
        return DrawsByTime(self.whole.indptr, None if self.whole.times is None else partial(self._read, "times"))

    @cached_property
    def _by_weight(self) -> DrawsByWeight:
        return DrawsByWeight(self.whole.indptr, partial(self._read, "weights"))

    def _uniformly(self, asked: Asked) -> tuple[Array, Array]:
        """The offsets (n+1,) of the edges that each vertex draws, and their places (M,); sources need not be known for that."""
        whole, number, rule = self.whole, len(asked.nodes), asked.sampler.rules()[asked.hop]
        columns = kernels.Columns(whole.indptr, whole.indices[:0], *NO_TABLES)
        most = most_edges(number, rule.fanout, lambda: count_edges(columns, asked.nodes, 0, number, rule))
        places, none = np.empty(most, id_dtype(whole.num_edges)), np.empty(0, whole.indices.dtype)
        edges = kernels.Edges(np.zeros(number + 1, id_dtype(most + 1)), places, none)
        total = draw_places(Hop(self._workspace, columns, asked.nodes, 0, number, rule, asked.at, edges, 0))
        return edges.indptr, places[:total]

    @cached_property
    def _starts(self) -> Array:
        """(V+1,) where columns that are at hand begin."""
        return np.empty_like(self.whole.indptr)

    def _from_columns(self, asked: Sequence[Asked], names: Sequence[str]) -> list[Drawn]:
        """What is drawn with a look at whole columns, those of these vertices alone."""
        found: list[Drawn] = []
        columns = [Columns.of(own.nodes, self.whole.indptr) for own in asked]
        for some in in_parts(int(own.degrees.sum()) for own in columns):
            places = [columns[i].places() for i in some]
            arrays = zip(*(self.read(name, places) for name in names), strict=True)
            for i, own in zip(some, arrays, strict=True):
                columns[i].enter(self._starts)
                found.append(self._drawn_from(asked[i], dict(zip(names, own, strict=True))))
        return found

    def _drawn_from(self, asked: Asked, own: Mapping[str, Array]) -> Drawn:
        whole, starts = self.whole, self._starts
        at_hand = PartialGraph(starts, own["indices"], weights=own.get("weights"), is_sorted=False, validate=False)
        drawn = draw(at_hand, asked, self._workspace)
        shift = np.repeat(whole.indptr[asked.nodes].astype(np.int64) - starts[asked.nodes], np.diff(drawn.indptr))
        weights = None if drawn.weights is None else drawn.weights.copy()
        return Drawn(drawn.indptr.copy(), (drawn.edge_ids + shift).astype(id_dtype(whole.num_edges)), drawn.sources.copy(), weights)
