"""Batches of a graph whose edges lie in files, many together: for each hop what any of them needs of the edges is read in the order of the file.

So a part of the file is read once for all of them, and not once for each. Every batch draws what it would draw alone, since its random numbers are addressed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.topology.columns import OwnGraph
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.samplers.ahead.draws import Asked, Drawn, draw
from hoptrain.samplers.ahead.handover import EdgeIds
from hoptrain.samplers.ahead.window import grow_together
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.feed.topology.columns import Columns, in_parts, read_entries
from hoptrain.samplers.feed.topology.weighted import DrawsByWeight
from hoptrain.samplers.nodewise.labor import LaborSampler
from hoptrain.samplers.scratch.alias import NO_TABLES
from hoptrain.samplers.scratch.hop import Hop, count_edges, draw_places, most_edges
from hoptrain.samplers.scratch.workspace import Workspace

EDGE_ROWS = "edge_attr"
"""The store of the features of a plain graph's edges."""


class EdgeFiles:
    """What lies in files of a graph's edges, which it samples from. Pickled it is where they are.

    Attributes:
        graph: of which only ``indptr`` is looked at.
        files: by the names of the graph's arrays (E,): "indices", and "weights" and "edge_ids" where they are needed.
        read_s: seconds of reads so far.
    """

    def __init__(self, graph: Graph, files: Mapping[str, FileRows]) -> None:
        """Nothing is opened yet."""
        self.graph: Graph = graph
        self.files: Mapping[str, FileRows] = files
        self.read_s: float = 0.0
        self._workspace = Workspace()

    def __reduce__(self) -> tuple[Any, ...]:
        return EdgeFiles, (self.graph, self.files)

    def batches(self, sampler: Any, asked: Sequence[tuple[Array, Address]]) -> list[tuple[MiniBatch, EdgeIds]]:
        """Sample together; see ``hoptrain.samplers.ahead.window.grow_together``.

        Args:
            sampler: one with ``can_be_drawn``.
            asked: seeds (B,) of each batch, with its address.

        Returns:
            The batches that ``Sampler.sample`` makes, whose arrays are their own, each with the ids of its edges, where these have features by them.

        Raises:
            InputError: as ``Sampler.sample``, and as ``FileRows.read``.
        """
        if not asked:
            return []
        made = grow_together(sampler, self.graph, asked, self._draws, self._workspace)
        made = [batch.out_of(self.graph, sampler.repeats_edges) for batch in made]
        return list(zip(made, self._ids_of(made), strict=True))

    def _ids_of(self, batches: Sequence[MiniBatch]) -> list[dict[str, Array]]:
        places = [batch.edge_places(EDGE_ROWS) if "edge_ids" in self.files else {} for batch in batches]
        lists = [own for of_batch in places for own in of_batch.values()]
        found = iter(self._read_of_all("edge_ids", lists) if lists else ())
        return [{name: next(found) for name in of_batch} for of_batch in places]

    def _read(self, name: str, places: Array) -> Array:
        begin = time.perf_counter()
        found = read_entries(self.files[name], places)
        self.read_s += time.perf_counter() - begin
        return found

    def _read_of_all(self, name: str, places: Sequence[Array]) -> list[Array]:
        return np.split(self._read(name, np.concatenate(places)), np.cumsum([len(own) for own in places])[:-1])

    def _draws(self, _: int, asked: Sequence[Asked]) -> list[Drawn]:
        sampler: Any = asked[0].sampler
        if isinstance(sampler, LaborSampler):
            return self._from_columns(asked, ("indices", "weights") if sampler.weighted else ("indices",))
        drawn = self._by_weight(asked) if sampler.weighted else [self._uniformly(own) for own in asked]
        sources = self._read_of_all("indices", [places for _, places in drawn])
        dtype = id_dtype(self.graph.num_edges)
        return [Drawn(indptr, places.astype(dtype, copy=False), own) for (indptr, places), own in zip(drawn, sources, strict=True)]

    @cached_property
    def _by_weight(self) -> DrawsByWeight:
        return DrawsByWeight(self.graph.indptr, partial(self._read, "weights"))

    def _uniformly(self, asked: Asked) -> tuple[Array, Array]:
        """The offsets (n+1,) of the edges that each vertex draws, and their places (M,); sources need not be known for that."""
        graph, number, rule = self.graph, len(asked.nodes), asked.sampler.rules()[asked.hop]
        columns = kernels.Columns(graph.indptr, graph.indices[:0], *NO_TABLES)
        most = most_edges(number, rule.fanout, lambda: count_edges(columns, asked.nodes, 0, number, rule))
        places, none = np.empty(most, id_dtype(graph.num_edges)), np.empty(0, graph.indices.dtype)
        edges = kernels.Edges(np.zeros(number + 1, id_dtype(most + 1)), places, none)
        total = draw_places(Hop(self._workspace, columns, asked.nodes, 0, number, rule, asked.address.at_hop(asked.hop), edges, 0))
        return edges.indptr, places[:total]

    @cached_property
    def _starts(self) -> Array:
        """(V+1,) where columns that are at hand begin."""
        return np.empty_like(self.graph.indptr)

    def _from_columns(self, asked: Sequence[Asked], names: Sequence[str]) -> list[Drawn]:
        """What is drawn with a look at whole columns, those of these vertices alone."""
        found: list[Drawn] = []
        columns = [Columns.of(own.nodes, self.graph.indptr) for own in asked]
        for some in in_parts(int(own.degrees.sum()) for own in columns):
            places = [columns[i].places() for i in some]
            arrays = zip(*(self._read_of_all(name, places) for name in names), strict=True)
            for i, own in zip(some, arrays, strict=True):
                columns[i].enter(self._starts)
                found.append(self._drawn_from(asked[i], dict(zip(names, own, strict=True))))
        return found

    def _drawn_from(self, asked: Asked, own: Mapping[str, Array]) -> Drawn:
        whole, starts = self.graph, self._starts
        at_hand = OwnGraph(starts, own["indices"], weights=own.get("weights"), is_sorted=whole.is_sorted, validate=False)
        drawn = draw(at_hand, asked, self._workspace)
        shift = np.repeat(whole.indptr[asked.nodes].astype(np.int64) - starts[asked.nodes], np.diff(drawn.indptr))
        weights = None if drawn.weights is None else drawn.weights.copy()
        return Drawn(drawn.indptr.copy(), (drawn.edge_ids + shift).astype(id_dtype(whole.num_edges)), drawn.sources.copy(), weights)
