"""Batches of a graph whose edges lie in files, many together: for each hop what any of them needs of the edges is read in the order of the file.

So a part of the file is read once for all of them, and not once for each. Every batch draws what it would draw alone, since its random numbers are addressed.
Of a heterogeneous graph this goes relation by relation.
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
from hoptrain.samplers.wrappers.ends import Links
from hoptrain.samplers.wrappers.link import HeteroLinkSampler, LinkSampler
from hoptrain.samplers.wrappers.timed import TimedSeeds

EDGE_ROWS = "edge_attr"
"""The store of the features of a plain graph's edges; those of a heterogeneous graph's are ``named`` after it."""

_ARRAYS = ("indices", "weights", "times", "edge_ids")


class EdgeFiles:
    """What lies in files of a graph's edges, which it samples from. Pickled it is where they are.

    Attributes:
        graph: of which only ``indptr`` is looked at.
        files: by the names of the graph's arrays (E,): "indices", and "weights", "times" and "edge_ids" where they are needed; of a hetero graph ``named``
            by relation.
    """

    def __init__(self, graph: Graph | HeteroGraph, files: Mapping[str, FileRows]) -> None:
        """Nothing is opened yet."""
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
        """Seconds of reads so far."""
        return sum(part.read_s for part in self._parts.values())

    def batches(self, sampler: Any, asked: Sequence[tuple[Array, Address]]) -> list[tuple[SampledBatch, EdgeIds]]:
        """Sample together; see ``hoptrain.samplers.superbatch.window.grow_together``.

        Args:
            sampler: one with a ``hop_sampler``.
            asked: items (B,) of each batch, with its address.

        Returns:
            The batches that ``Sampler.sample`` makes, whose arrays are their own, each with the ids of its edges, where these have features by them.

        Raises:
            InputError: as ``Sampler.sample``, and as ``FileRows.read``.
        """
        if not asked:
            return []
        hops = sampler.hop_sampler
        answers = {relation: partial(self._parts[relation].answers, own) for relation, own in hops.along(self.graph).items()}
        links = list[Links]()
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

    def _links(self, sampler: Any, asked: Sequence[tuple[Array, Address]]) -> list[Links]:
        """What batches of links ask for; what that takes of their edges is read for all of them together."""
        places = [sampler.links_of(self.graph, items) for items, _ in asked]
        looked: list[dict[str, dict[Relation, Array]]] = [{} for _ in asked]
        for name in ("indices", "times") if sampler.hop_sampler.is_timed else ("indices",):
            for relation, part in ((relation, self._parts[relation]) for relation in places[0]):
                if getattr(part.whole, name) is None:
                    continue  # whoever asks for times says so
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
