"""Base classes of samplers of heterogeneous graphs, with seeds of one node type or of several, and fanouts of each relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self, TypeAlias

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import join_limited
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.shared.philox import MAX_HOP
from hoptrain.samplers.base import HopSampler, Sampler
from hoptrain.samplers.batch.minibatch import HeteroMiniBatch
from hoptrain.samplers.checks import as_fanout, check_ids, check_nodes, fanout_rule, is_fanout
from hoptrain.samplers.hops import MOST_HOPS, GrowingBatch, SeedsByType, seeds_of_one_type

MOST_RELATIONS = MAX_HOP // MOST_HOPS
"""Maximum number of relations, and of node types, of a graph: each needs ``MOST_HOPS`` of the ``MAX_HOP`` hop numbers in random addresses."""
Fanouts: TypeAlias = Sequence[int | float] | Mapping[str | Relation, Sequence[int | float]]


class BaseHeteroSampler(Sampler[HeteroGraph, HeteroMiniBatch]):
    """A sampler of heterogeneous graphs that expands outward from seeds.

    Seeds are nodes (B,) of ``seed_type``. If that is None, they may be of several types: ``sample`` takes a dictionary from types to
    nodes, or the (B,) numbers that ``HeteroGraph.numbered`` returns for it, which are what a loader's schedule yields.
    """

    def __init__(self, seed_type: str | None) -> None:
        """Set the node type of the seeds, or None for several types."""
        self.seed_type = seed_type
        self.by_seeds: bool = seed_type is not None

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` for a homogeneous data set, or one whose seeds are of another type than ``seed_type``."""
        own = type(self).__name__
        if not isinstance(data, HeteroDataset):
            raise InputError(
                f"{own} on {data.name}, a homogeneous data set: it samples a HeteroDataset; make one of a HeteroGraph, or use NeighborSampler"
            )
        if self.seed_type not in (None, data.seed_type):
            raise InputError(f"seed_type is {self.seed_type!r}, that of {data.name} {data.seed_type!r}: give the sampler the data's")

    def with_seed_type(self, seed_type: str) -> Self:
        """Return this sampler if it has a ``seed_type``, else a copy for seeds of the given type."""
        if self.seed_type is not None:
            return self
        own = copy(self)
        own.seed_type, own.by_seeds = seed_type, True
        return own

    def items(self, graph: HeteroGraph, seeds: Array) -> Array:
        """Return the seeds of a split, which are of ``seed_type``.

        Raises:
            InputError: ``seed_type`` is None, so the type of the split's nodes is unknown.
        """
        if self.seed_type is None:
            raise InputError(
                f"{type(self).__name__} without seed_type: a split has nodes of one type; give seed_type, or give the loader a schedule"
            )
        return seeds

    def check_graph(self, graph: HeteroGraph) -> None:
        """Raise ``InputError`` if a graph lacks ``seed_type``, has no relation, or has more than ``MOST_RELATIONS`` types or relations."""
        if self.seed_type is not None and self.seed_type not in graph.num_nodes:
            raise InputError(f"seed_type is {self.seed_type!r}: the graph has {', '.join(graph.num_nodes)}; choose one of them")
        if not graph.relations:
            raise InputError("the graph has no relations: there are no edges to sample; give it some by HeteroGraph.from_edges")
        for what, number in (("relations", len(graph.relations)), ("types", len(graph.num_nodes))):
            if number > MOST_RELATIONS:
                raise InputError(f"the graph has {number} {what}: {type(self).__name__} takes at most {MOST_RELATIONS}; join some")

    def seeds_of(self, graph: HeteroGraph, seeds: Array | Mapping[str, Array]) -> SeedsByType:
        """Return the seeds by type, checked for dtype and range."""
        if self.seed_type is not None:
            if isinstance(seeds, Mapping):
                raise InputError(
                    f"seeds are by type, and seed_type is {self.seed_type!r}: give an array of nodes, or give the sampler no seed_type"
                )
            ids = check_nodes(seeds, graph.num_nodes[self.seed_type])
            return seeds_of_one_type(self.seed_type, ids)
        numbers = graph.numbered(seeds) if isinstance(seeds, Mapping) else seeds
        numbers = check_ids(numbers, sum(graph.num_nodes.values()), "seed", "node", "nodes")
        return SeedsByType(None, graph.by_type(numbers), len(numbers))


class HeteroFanoutSampler(BaseHeteroSampler, HopSampler[HeteroGraph, HeteroMiniBatch]):
    """A sampler of heterogeneous graphs whose hops take at most a number, or a share, of the in-edges of each node by each relation."""

    def __init__(self, fanouts: Fanouts, seed_type: str | None, default: Sequence[int | float] | None, limit: int) -> None:
        """Check and keep the fanouts, which must be below ``limit``.

        Raises:
            InputError: there is no hop or more than 16, lists differ in length, a fanout is out of range, or a default is given for
                fanouts that already hold for all relations.
        """
        super().__init__(seed_type)
        given: Mapping[Any, Sequence[int | float]] = fanouts if isinstance(fanouts, Mapping) else {"": fanouts}
        if default is not None:
            if "" in given:
                raise InputError(f"default is {list(default)}, and fanouts {fanouts} hold for all relations: leave one of them out")
            given = {**given, "": default}
        try:
            self.fanouts: dict[str, tuple[int | float, ...]] = {
                name if isinstance(name, str) else ":".join(name): tuple(map(as_fanout, own)) for name, own in given.items()
            }
        except TypeError:
            raise InputError(
                f"fanouts is {fanouts!r}: give whole numbers or shares, one for each hop, such as [15, 10], or a list for each relation"
            ) from None
        """Fanouts by the name of a relation; those of "" hold for all relations that are not named."""
        lengths = {len(own) for own in self.fanouts.values()}
        if len(lengths) != 1 or not 0 < max(lengths) <= MOST_HOPS:
            numbers = " and ".join(map(str, sorted(lengths))) or "no"
            raise InputError(
                f"fanouts have {numbers} hops: give 1 to {MOST_HOPS} numbers, one for each hop, the same number of hops for all relations"
            )
        bad = [(name, fanout) for name, own in self.fanouts.items() for fanout in own if not is_fanout(fanout, limit)]
        if bad:
            (name, fanout), *_ = bad
            raise InputError(f"fanout is {fanout}{name and f' for {name}'}: {fanout_rule(0, limit)}")

    def _shown_fanouts(self) -> str:
        """Return the fanouts as they were given, for ``repr``."""
        named = {name: list(own) for name, own in self.fanouts.items() if name}
        common = [list(own) for name, own in self.fanouts.items() if not name]
        return f"{named or common[0]}" + (f", default={common[0]}" if named and common else "")

    @property
    def num_hops(self) -> int:
        """Number of dictionaries of blocks of a mini-batch, which is the number of layers of the model."""
        return len(next(iter(self.fanouts.values())))

    def prepare(self, graph: HeteroGraph, seeds: Array) -> Self:
        """Return this sampler, after a check that its options fit the graph.

        Raises:
            InputError: the options do not fit the graph's types or relations.
        """
        self.along(graph)
        return self

    def roots(self, graph: HeteroGraph, seeds: Array | Mapping[str, Array]) -> tuple[SeedsByType, Array | None]:
        """Return the seeds by type, checked for dtype and range, and None for the times."""
        return self.seeds_of(graph, seeds), None

    def finished(
        self, graph: HeteroGraph, batch: GrowingBatch, nodes: Mapping[str, Array], extra: dict[str, Array] | None = None
    ) -> HeteroMiniBatch:
        """Turn ``batch``, whose hops are all sampled, into a mini-batch; see ``HopSampler.finished``."""
        return HeteroMiniBatch(
            node_ids=dict(nodes),
            blocks=batch.blocks(),
            seed_counts=batch.counts[0],
            seed_type=batch.seeds.kind,
            num_seeds=batch.seeds.number,
            extra=extra or {},
            nested=batch.nested,
        )

    def fanouts_of(self, graph: HeteroGraph) -> dict[Relation, tuple[int | float, ...]]:
        """Return the fanouts of each of the graph's relations.

        Raises:
            InputError: the fanouts do not fit the graph's relations, or ``seed_type`` is not one of its types.
        """
        self.check_graph(graph)
        names = {relation: relation_name(relation) for relation in graph.relations}
        named, common = self.fanouts.keys() - {""}, self.fanouts.get("")
        if not named <= set(names.values()) or (common is None and named != set(names.values())):
            remedy = "name each once, or give default for the others" if common is None else "name only relations of the graph"
            raise InputError(
                f"fanouts name {join_limited(sorted(named))}, the graph's relations are {join_limited(names.values())}: {remedy}"
            )
        return {relation: self.fanouts.get(name, common or ()) for relation, name in names.items()}


def no_relation_has_weights() -> InputError:
    """Return the error of a weighted sampler on a graph none of whose relations has weights."""
    return InputError("weighted=True, but no relation has weights: give them to HeteroGraph or its from_edges, or sample unweighted")
