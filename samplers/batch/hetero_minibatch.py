"""What a sampler of typed edges makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.samplers.batch.minibatch import Block, ids_like
from hoptrain.samplers.batch.sampled import SampledBatch


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroMiniBatch(SampledBatch):
    """Seeds, of one type or of several, and for every hop a block of each relation; further fields are those of ``SampledBatch``.

    Global and local ids count within a type: local id i of type t is the vertex ``node_ids[t][i]``. A block of relation (s, name, d) has the
    first ``num_dst`` nodes of type d as destinations and the first ``num_src`` nodes of type s as sources; only where s is d are the
    destinations among the sources.

    Attributes:
        node_ids: (S_t,) global ids of each type's nodes: the seeds first, then every other vertex in order of first appearance.
        blocks: one dictionary a hop, in the order in which a model applies them; the last one's destinations are the seeds.
        seed_counts: how many seeds there are of each type of the graph; ``num_seeds`` in all.
        seed_type: the type of the seeds; None where they may be of several.
        seed_relation: where edges were asked for, their relation; None of several.
        x: features of the nodes, by type; empty where none were gathered.
        y: labels of the seeds of ``seed_type``, or None.
        extra: further arrays of a sampler, by names that its docstring tells.
        nested: whether the blocks of every hop are the beginnings of those of the hop before (the same rows of the same arrays): each vertex was
            expanded once.
        repeats_edges: whether hops draw with replacement.
        graph_edge_ids: the ``edge_ids`` of the relations that have some, themselves and no copies: on the host, wherever the batch is.
    """

    node_ids: dict[str, Any]
    blocks: tuple[dict[Relation, Block], ...]
    seed_counts: dict[str, int]
    seed_type: str | None = None
    seed_relation: Relation | None = None
    x: dict[str, Any] = field(default_factory=dict)
    y: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    nested: bool = False
    repeats_edges: bool = False
    graph_edge_ids: dict[Relation, Array] = field(default_factory=dict)

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds of ``seed_type``; without one they are a dictionary, of the types that have some."""
        seeds = {name: self.node_ids[name][:number] for name, number in self.seed_counts.items() if number}
        return seeds if self.seed_type is None else self.node_ids[self.seed_type][: self.num_seeds]

    @property
    def num_edges(self) -> int:
        """Sampled edges of all hops and relations; in nested blocks an edge counts once."""
        return sum(block.num_edges for hop in self._own_blocks() for block in hop.values())

    @property
    def node_counts(self) -> list[dict[str, int]]:
        """How many nodes there are of each type: the seeds, and then after every hop, from the seeds outward."""
        counts = [dict(self.seed_counts)]
        for hop in reversed(self.blocks):
            counts.append(counts[-1] | {source: block.num_src for (source, _, _), block in hop.items()})
        return counts

    def _own_blocks(self) -> tuple[dict[Relation, Block], ...]:
        """The blocks but those that are beginnings of the first."""
        return self.blocks[:1] if self.nested else self.blocks

    def _with_blocks(self, own: tuple[dict[Relation, Block], ...]) -> tuple[dict[Relation, Block], ...]:
        """All blocks, from what ``_own_blocks`` became."""
        if not self.nested:
            return own
        return tuple({r: own[0][r].beginning(b.num_dst, b.num_src, b.num_edges) for r, b in hop.items()} for hop in self.blocks)

    def map(self, function: Callable[[Any], Any]) -> HeteroMiniBatch:
        """With ``function`` of each array in its place."""
        return replace(
            self,
            node_ids={name: function(ids) for name, ids in self.node_ids.items()},
            blocks=self._with_blocks(
                tuple({relation: block.map(function) for relation, block in hop.items()} for hop in self._own_blocks())
            ),
            x={name: function(rows) for name, rows in self.x.items()},
            y=None if self.y is None else function(self.y),
            extra={name: function(array) for name, array in self.extra.items()},
        )

    def out_of(self, graph: HeteroGraph, repeats_edges: bool = False) -> HeteroMiniBatch:
        """See ``SampledBatch.out_of``."""
        own = {relation: columns.edge_ids for relation, columns in graph.relations.items() if columns.edge_ids is not None}
        return replace(self, graph_edge_ids=own, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, relation: Relation, places: Any) -> Any:
        """The ids (``RelationColumns.edge_ids``) of the edges at ``places`` (N,); see ``MiniBatch.ids_of``."""
        return ids_like(self.graph_edge_ids.get(relation), places)

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.HeteroData``, see ``hoptrain.samplers.batch.hetero_convert.to_pyg``."""
        from hoptrain.samplers.batch.hetero_convert import to_pyg

        return to_pyg(self)

    def to_dgl(self) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
        """Input nodes, seeds and DGL blocks, see ``hoptrain.samplers.batch.hetero_convert.to_dgl``."""
        from hoptrain.samplers.batch.hetero_convert import to_dgl

        return to_dgl(self)

    def arrays(self) -> dict[str, Array]:
        """See ``SampledBatch.arrays``."""
        arrays = {f"node_ids.{name}": ids for name, ids in self.node_ids.items()}
        arrays |= {f"extra.{name}": array for name, array in self.extra.items()}
        for h, hop in enumerate(self._own_blocks()):
            for number, block in enumerate(hop.values()):
                arrays |= {f"block.{h}.{number}.{name}": array for name, array in block.arrays().items()}
        return arrays

    def row_ids(self) -> dict[str, Any]:
        """Features of each type's nodes, labels of the seeds of ``seed_type``."""
        return {f"x.{name}": ids for name, ids in self.node_ids.items()} | ({} if self.seed_type is None else {"y": self.seeds})

    def with_rows(self, rows: dict[str, Any]) -> HeteroMiniBatch:
        """See ``SampledBatch.with_rows``."""
        x = {name.removeprefix("x."): own for name, own in rows.items() if name.startswith("x.")}
        blocks = tuple(
            {relation: replace(block, edge_attr=rows.get(_name_of_edges(relation, h))) for relation, block in hop.items()}
            for h, hop in enumerate(self._own_blocks())
        )
        return replace(self, x=x, y=rows.get("y"), blocks=self._with_blocks(blocks))

    def edge_places(self, store: str) -> dict[str, Any]:
        """See ``SampledBatch.edge_places``."""
        return {
            name: block.edge_ids
            for h, hop in enumerate(self._own_blocks())
            for relation, block in hop.items()
            if (name := _name_of_edges(relation, h)).rpartition(".")[0] == store
        }

    def header(self, **changes: Any) -> HeteroMiniBatch:
        """See ``SampledBatch.header``."""
        blocks = tuple(
            {relation: Block(indptr=None, indices=None, edge_ids=None, num_src=block.num_src) for relation, block in hop.items()}
            for hop in self.blocks
        )
        return replace(self, node_ids={}, blocks=blocks, extra={}, graph_edge_ids={}, **changes)

    def filled(self, arrays: dict[str, Array]) -> HeteroMiniBatch:
        """See ``SampledBatch.filled``."""
        of: dict[str, dict[str, Array]] = {"node_ids": {}, "extra": {}, "x": {}, "block": {}, "y": {}, "edge_attr": {}}
        for name, array in arrays.items():
            kind, _, key = name.partition(".")
            of[kind][key] = array
        of_block: dict[str, dict[str, Any]] = {}
        for key, array in of["block"].items():
            place, _, name = key.rpartition(".")
            of_block.setdefault(place, {})[name] = array
        blocks = tuple(
            {
                relation: replace(block, **of_block[f"{h}.{number}"], edge_attr=arrays.get(_name_of_edges(relation, h)))
                for number, (relation, block) in enumerate(hop.items())
            }
            for h, hop in enumerate(self._own_blocks())
        )
        if self.nested:
            blocks = nested_hops(blocks[0], self.node_counts)
        return replace(self, node_ids=of["node_ids"], blocks=blocks, x=of["x"], y=of["y"].get(""), extra=of["extra"])


def _name_of_edges(relation: Relation, hop: int) -> str:
    """What features of the edges of a hop are called."""
    return f"edge_attr.{relation_name(relation)}.{hop}"


def nested_hops(outermost: dict[Relation, Block], counts: Sequence[dict[str, int]]) -> tuple[dict[Relation, Block], ...]:
    """Blocks that are beginnings of those of the outermost hop (NumPy arrays), by the numbers of nodes of each type as ``node_counts`` has them."""
    return tuple(
        {
            (source, name, kind): block.beginning(before[kind], after[source], int(block.indptr[before[kind]]))
            for (source, name, kind), block in outermost.items()
        }
        for before, after in reversed(list(pairwise(counts)))
    )
