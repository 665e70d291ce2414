"""What samplers of typed graphs have in common: seeds of one type or of several, and room among the addresses of random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.kernels.shared.philox import MAX_HOP
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.checks import check_ids, check_vertices

MOST_HOPS = 16
MOST_RELATIONS = MAX_HOP // MOST_HOPS
"""A relation's hops have a range of their own among the hops of a random number's address."""


class TypedSeeds(NamedTuple):
    """The seeds of a batch."""

    kind: str | None
    """The type of all of them; None where they may be of several."""
    by_type: dict[str, tuple[Array, Array]]
    """For each type vertices (B_t,), and their places (B_t,) among the seeds asked for."""
    number: int


class TypedSampler(Sampler[HeteroGraph, HeteroMiniBatch]):
    """Goes from seeds outward in a typed graph.

    Seeds are vertices (B,) of ``seed_type``. Where that is None they may be of several types: ``sample`` takes a dictionary from types to
    vertices, or (B,) numbers that ``HeteroGraph.numbered`` makes of it, which are what a loader's schedule deals out.
    """

    def __init__(self, seed_type: str | None) -> None:
        """State the type of the seeds."""
        self.seed_type = seed_type
        self.by_seeds: bool = seed_type is not None

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Refuse a plain data set, or one whose seeds are of another type."""
        own = type(self).__name__
        if not isinstance(data, HeteroDataset):
            raise InputError(f"{own} on {data.name}, which is no HeteroDataset: make one of a HeteroGraph, or take NeighborSampler")
        if self.seed_type not in (None, data.seed_type):
            raise InputError(f"seed_type is {self.seed_type!r}, that of {data.name} {data.seed_type!r}: give the sampler the data's")

    def items(self, graph: HeteroGraph, seeds: Array) -> Array:
        """The seeds.

        Raises:
            InputError: nothing says of which type they are.
        """
        if self.seed_type is None:
            raise InputError(
                f"{type(self).__name__} without seed_type: a split has vertices of one type; give seed_type, or the loader a schedule"
            )
        return seeds

    def check_graph(self, graph: HeteroGraph) -> None:
        """Refuse one that has not ``seed_type``, no relation, or too many types or relations for the addresses of random numbers."""
        if self.seed_type is not None and self.seed_type not in graph.num_nodes:
            raise InputError(f"seed_type is {self.seed_type!r}: the graph has {', '.join(graph.num_nodes)}; choose one of them")
        if not graph.relations:
            raise InputError("the graph has no relations: there are no edges to sample; give it some by HeteroGraph.from_edges")
        for what, number in (("relations", len(graph.relations)), ("types", len(graph.num_nodes))):
            if number > MOST_RELATIONS:
                raise InputError(f"the graph has {number} {what}: {type(self).__name__} takes at most {MOST_RELATIONS}; join some")

    def seeds_of(self, graph: HeteroGraph, seeds: Array | Mapping[str, Array]) -> TypedSeeds:
        """The seeds by type, checked for kind and range."""
        if self.seed_type is not None:
            if isinstance(seeds, Mapping):
                raise InputError(f"seeds by type, and seed_type is {self.seed_type!r}: give an array, or the sampler no seed_type")
            ids = check_vertices(seeds, graph.num_nodes[self.seed_type])
            return TypedSeeds(self.seed_type, {self.seed_type: (ids, np.arange(len(ids)))}, len(ids))
        numbers = graph.numbered(seeds) if isinstance(seeds, Mapping) else seeds
        numbers = check_ids(numbers, sum(graph.num_nodes.values()), "seed", "vertex", "vertices")
        return TypedSeeds(None, graph.by_type(numbers), len(numbers))
