"""Sampling of many batches together from edges in files: for each hop, the edges that the batches need are read in the order of the file.

So a region of the file is read once for all batches and not once per batch. A batch draws the same edges as if it were sampled alone, since its random
numbers depend on its address. In a heterogeneous graph, relations are read one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import Relation
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers.batch.minibatch import SampledBatch, named
from hoptrain.samplers.batch.serialise import EdgeIds
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.hops import columns_of
from hoptrain.samplers.loader.topology.relation import RelationFiles
from hoptrain.samplers.superbatch.window import grow_together
from hoptrain.samplers.wrappers.ends import BatchLinks
from hoptrain.samplers.wrappers.link import HeteroLinkSampler, LinkSampler
from hoptrain.samplers.wrappers.timed import TimedSeeds

EDGE_ROWS = "edge_attr"
"""Name of the table of edge features; in a heterogeneous graph, ``named`` appends the relation."""

_ARRAYS = ("indices", "weights", "times", "edge_ids")


class EdgeFiles:
    """The files of a graph's edges, with methods that sample from them. Pickling transfers only the paths.

    Attributes:
        graph: the graph, of which only ``indptr`` is used.
        files: files of the graph's arrays (E,) by name: "indices", and "weights", "times" and "edge_ids" if needed; in a heterogeneous graph ``named``
            by relation.
    """

    def __init__(self, graph: Graph | HeteroGraph, files: Mapping[str, FileRows]) -> None:
        """Store the files; they are opened later."""
        self.graph: Graph | HeteroGraph = graph
        self.files: Mapping[str, FileRows] = files
        self._workspace = Workspace()
        self._parts: dict[Relation, RelationFiles] = {}
        for relation, columns in columns_of(graph).items():
            own = {name: files[key] for name in _ARRAYS if (key := named(name, relation)) in files}
            self._parts[relation] = RelationFiles(columns, own, self._workspace)

    def __reduce__(self) -> tuple[Any, ...]:
        return EdgeFiles, (self.graph, self.files)

    @property
    def read_s(self) -> float:
        """Seconds of all reads so far."""
        return sum(part.read_s for part in self._parts.values())

    def batches(self, sampler: Any, asked: Sequence[tuple[Array, Address]]) -> list[tuple[SampledBatch, EdgeIds]]:
        """Sample the batches of ``asked`` together, by ``hoptrain.samplers.superbatch.window.grow_together``.

        Args:
            sampler: a sampler with a ``hop_sampler``.
            asked: items (B,) and address of each batch.

        Returns:
            The batches that ``Sampler.sample`` would return, each with its own arrays, and with the ids of its edges if edge features are stored by id.

        Raises:
            InputError: ``Sampler.sample`` or ``FileRows.read`` raises it.
        """
        if not asked:
            return []
        hops = sampler.hop_sampler
        answers = {relation: partial(self._parts[relation].answers, own) for relation, own in hops.along(self.graph).items()}
        links = list[BatchLinks]()
        wanted: list[tuple[Array, Address, Array | None]] = [(items, address, None) for items, address in asked]
        if isinstance(sampler, LinkSampler | HeteroLinkSampler):
            links = self._links(sampler, asked)
            wanted = [(own.seeds, address, own.times) for own, (_, address) in zip(links, asked, strict=True)]
        elif isinstance(sampler, TimedSeeds):
            wanted = [(seeds, address, times) for items, address in asked for seeds, times in [np.split(items, 2)]]
        made: list[Any] = grow_together(hops, self.graph, wanted, answers, self._workspace)
        if links:
            made = [sampler.with_links(self.graph, batch, own, self._workspace) for batch, own in zip(made, links, strict=True)]
        made = [batch.out_of(self.graph, sampler.repeats_edges) for batch in made]
        return list(zip(made, self._ids_of(made), strict=True))

    def _links(self, sampler: Any, asked: Sequence[tuple[Array, Address]]) -> list[BatchLinks]:
        """Return the links of each batch; the sources and times of these edges are read for all batches together."""
        places = [sampler.links_of(self.graph, items) for items, _ in asked]
        looked: list[dict[str, dict[Relation, Array]]] = [{} for _ in asked]
        for name in ("indices", "times") if sampler.hop_sampler.is_timed else ("indices",):
            for relation, part in ((relation, self._parts[relation]) for relation in places[0]):
                if getattr(part.whole, name) is None:
                    continue  # the sampler reports missing times
                for own, entries in zip(looked, part.read(name, [of[relation] for of in places]), strict=True):
                    own.setdefault(name, {})[relation] = entries
        batches = zip(asked, looked, strict=True)
        return [sampler.asked(self.graph, items, address, self._workspace, own).copied() for (items, address), own in batches]

    def _ids_of(self, batches: Sequence[SampledBatch]) -> list[dict[str, Array]]:
        found: list[dict[str, Array]] = [{} for _ in batches]
        for relation, part in self._parts.items():
            if "edge_ids" in part.files:
                places = [batch.edge_places(named(EDGE_ROWS, relation)) for batch in batches]
                ids = iter(part.read("edge_ids", [own for of_batch in places for own in of_batch.values()]))
                for of_batch, names in zip(found, places, strict=True):
                    of_batch.update((name, next(ids)) for name in names)
        return found
