"""Mini-batches of heterogeneous graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import HeteroGraph, Relation
from hoptrain.samplers.batch.minibatch import Block, SampledBatch


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroMiniBatch(SampledBatch):
    """Seeds, of one type or of several, and for every hop a block of each relation; further fields are those of ``SampledBatch``.

    Global and local ids count within a type: local id i of type t is the node ``node_ids[t][i]``. A block of relation (s, name, d) has the
    first ``num_dst`` nodes of type d as destinations and the first ``num_src`` nodes of type s as sources; only where s is d are the
    destinations among the sources.

    Attributes:
        node_ids: (S_t,) global ids of each type's nodes: the seeds first, then every other node in order of first appearance.
        blocks: one dictionary a hop, in the order in which a model applies them; the last one's destinations are the seeds.
        seed_counts: number of seeds of each type of the graph; ``num_seeds`` in all.
        seed_type: the type of the seeds; None where they may be of several.
        seed_relation: where edges were asked for, their relation; None of several.
        x: features of the nodes, by type; empty where none were gathered.
        graph_edge_ids: the ``edge_ids`` of the relations that have some, not copied: on the host, wherever the batch is.
    """

    node_ids: dict[str, Any]
    blocks: tuple[dict[Relation, Block], ...]
    seed_counts: dict[str, int]
    seed_type: str | None = None
    seed_relation: Relation | None = None
    x: dict[str, Any] = field(default_factory=dict)
    graph_edge_ids: dict[Relation, Array] = field(default_factory=dict)

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds of ``seed_type``; without one they are a dictionary, of the types that have some."""
        if self.seed_type is not None:
            return self.node_ids[self.seed_type][: self.num_seeds]
        return {name: self.node_ids[name][:number] for name, number in self.seed_counts.items() if number}

    def num_seeds_by_type(self) -> dict[str, int]:
        """See ``SampledBatch.num_seeds_by_type``."""
        return self.seed_counts

    def out_of(self, graph: HeteroGraph, repeats_edges: bool = False) -> HeteroMiniBatch:
        """See ``SampledBatch.out_of``."""
        own = {relation: columns.edge_ids for relation, columns in graph.relations.items() if columns.edge_ids is not None}
        if not own and not repeats_edges:
            return self
        return replace(self, graph_edge_ids=own, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, relation: Relation, places: Any) -> Any:
        """Return the ids (``RelationColumns.edge_ids``) of the edges at ``places`` (N,); see ``ids_along``."""
        return self.ids_along(relation, places)


def nested_hops(outermost: dict[Relation, Block], counts: Sequence[dict[str, int]]) -> tuple[dict[Relation, Block], ...]:
    """Return blocks that are beginnings of those of the outermost hop (NumPy arrays), by the numbers of nodes of each type as in ``node_counts``."""
    return tuple(
        {
            (source, name, kind): block.beginning(before[kind], after[source], int(block.indptr[before[kind]]))
            for (source, name, kind), block in outermost.items()
        }
        for before, after in reversed(list(pairwise(counts)))
    )
