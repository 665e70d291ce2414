"""What samplers of typed edges have in common: fanouts for each relation, seeds of one type or of several, hops relation by relation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.errors import some_of
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.cpu.nodewise.neighbor import Edges
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch, nested_hops
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.checks import as_fanout, fanout_rule, is_fanout
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS, TypedSampler, TypedSeeds

Fanouts = Sequence[int | float] | Mapping[str | Relation, Sequence[int | float]]


class HeteroFanoutSampler(TypedSampler):
    """Goes hop by hop and relation by relation; each takes up to a number, or a share, of a vertex's edges: ``fanouts``.

    Attributes:
        expand: which vertices a hop expands, "all" found so far or the "new" ones of the hop before.
    """

    expand: str = "all"

    def __init__(self, fanouts: Fanouts, seed_type: str | None, default: Sequence[int | float] | None, limit: int) -> None:
        """State the hops; fanouts lie below ``limit``.

        Raises:
            InputError: no hop or more than 16, lists of different lengths, a fanout that is out of range, a default that nothing needs.
        """
        super().__init__(seed_type)
        given: Mapping[Any, Sequence[int | float]] = fanouts if isinstance(fanouts, Mapping) else {"": fanouts}
        if default is not None:
            if "" in given:
                raise InputError(f"default is {list(default)} beside fanouts for all relations, {fanouts}: leave one of them out")
            given = {**given, "": default}
        try:
            self.fanouts: dict[str, tuple[int | float, ...]] = {
                name if isinstance(name, str) else ":".join(name): tuple(map(as_fanout, own)) for name, own in given.items()
            }
        except TypeError:
            raise InputError(
                f"fanouts are {fanouts!r}: give whole numbers or shares, one for each hop, such as [15, 10], or a list for each relation"
            ) from None
        """By the name of a relation; "" stands for all that are not named."""
        lengths = {len(own) for own in self.fanouts.values()}
        if len(lengths) != 1 or not 0 < max(lengths) <= MOST_HOPS:
            numbers = " and ".join(map(str, sorted(lengths))) or "no"
            raise InputError(
                f"fanouts have {numbers} hops: give 1 to {MOST_HOPS} numbers, one for each hop, equally many for all relations"
            )
        bad = [(name, fanout) for name, own in self.fanouts.items() for fanout in own if not is_fanout(fanout, limit)]
        if bad:
            (name, fanout), *_ = bad
            raise InputError(f"fanout {fanout}{name and f' of {name}'}: {fanout_rule(0, limit)}; correct it")

    def _shown_fanouts(self) -> str:
        """As they were given."""
        named = {name: list(own) for name, own in self.fanouts.items() if name}
        common = [list(own) for name, own in self.fanouts.items() if not name]
        return f"{named or common[0]}" + (f", default={common[0]}" if named and common else "")

    @property
    def num_hops(self) -> int:
        """Number of dictionaries of blocks in a mini-batch: the number of layers of the model."""
        return len(next(iter(self.fanouts.values())))

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroFanoutSampler:
        """As it is.

        Raises:
            InputError: fanouts that do not fit the graph's relations.
        """
        self.fanouts_of(graph)
        return self

    def fanouts_of(self, graph: HeteroGraph) -> dict[Relation, tuple[int, ...]]:
        """The fanouts of each of the graph's relations, as kernels take them.

        Raises:
            InputError: they do not fit the graph's relations, or ``seed_type`` none of its types.
        """
        self.check_graph(graph)
        names = {relation: relation_name(relation) for relation in graph.relations}
        named, common = self.fanouts.keys() - {""}, self.fanouts.get("")
        if not named <= set(names.values()) or (common is None and named != set(names.values())):
            remedy = "name each once, or give some for the others (default, or without a name)" if common is None else "name some of these"
            raise InputError(f"fanouts name {some_of(sorted(named))}, the graph's relations are {some_of(names.values())}: {remedy}")
        return {relation: tuple(map(fanout_code, self.fanouts.get(name, common or ()))) for relation, name in names.items()}


def no_relation_has_weights() -> InputError:
    """The error for edges that are to be drawn by weights that they do not have."""
    return InputError("weighted=True, but no relation has weights: give them to HeteroGraph or its from_edges, or sample unweighted")


class Step(NamedTuple):
    """One relation in one hop."""

    relation: Relation
    number: int
    """Of the relation, in the graph's order."""
    hop: int
    first: int
    last: int
    """The nodes ``first`` to ``last`` of the destinations' type are expanded."""
    num_edges: int
    """Edges of the hops before that stand in the step's arrays already, and stay."""
    name: str
    """Of the step's arrays in the workspace."""


@dataclass(eq=False, slots=True)
class TypedHops:
    """A mini-batch in the making.

    Attributes:
        graph: what is sampled.
        workspace: of the batch.
        frontiers: the nodes of each type.
        nested: whether a hop expands only the nodes that were found on the hop before.
    """

    graph: HeteroGraph
    workspace: Workspace
    frontiers: dict[str, Frontier]
    nested: bool

    @classmethod
    def begin(cls, graph: HeteroGraph, seeds: TypedSeeds, workspace: Workspace, nested: bool) -> TypedHops:
        """With the seeds alone.

        Raises:
            InputError: one of them stands there twice.
        """
        frontiers = {
            name: Frontier(workspace, workspace.table_of(name), number, id_dtype(number), f"nodes.{name}")
            for name, number in graph.num_nodes.items()
        }
        for name, frontier in frontiers.items():
            frontier.enter_seeds(seeds.by_type[name][0] if name in seeds.by_type else np.zeros(0, np.int64))
        return cls(graph, workspace, frontiers, nested)

    def run(self, num_hops: int, draw: Callable[[list[Step]], Iterable[Block]]) -> list[dict[Relation, Block]]:
        """The blocks of each hop, from the seeds outward, of what ``draw`` draws in its steps; it need not say how many sources there are."""
        hops: list[dict[Relation, Block]] = []
        first = dict.fromkeys(self.frontiers, 0)
        for hop in range(num_hops):
            known = {name: frontier.num_nodes for name, frontier in self.frontiers.items()}
            steps = []
            for number, relation in enumerate(self.graph.relations):
                num_edges = hops[-1][relation].num_edges if self.nested and hops else 0
                name = f".{number}" if self.nested else f".{hop}.{number}"
                steps.append(Step(relation, number, hop, first[relation[2]], known[relation[2]], num_edges, name))
            drawn = dict(zip(self.graph.relations, draw(steps), strict=True))
            hops.append({relation: replace(own, num_src=self.frontiers[relation[0]].num_nodes) for relation, own in drawn.items()})
            if self.nested:
                first = known
        return hops

    def batch(self, hops: list[dict[Relation, Block]], seeds: TypedSeeds) -> HeteroMiniBatch:
        """The mini-batch of the blocks of each hop."""
        made = HeteroMiniBatch(
            node_ids={name: frontier.nodes() for name, frontier in self.frontiers.items()},
            blocks=tuple(reversed(hops)),
            seed_counts={name: len(seeds.by_type[name][0]) if name in seeds.by_type else 0 for name in self.frontiers},
            seed_type=seeds.kind,
            num_seeds=seeds.number,
        )
        return replace(made, blocks=nested_hops(hops[-1], made.node_counts), nested=True) if self.nested else made

    def room(self, step: Step, most: int, sources: str = "indices", dtype: DTypeLike | None = None) -> Edges:
        """Arrays for ``most`` more edges, of which there are none yet; those of ``sources`` are called so, and have ids' dtype or another."""
        columns, workspace, before = self.graph.relations[step.relation], self.workspace, step.num_edges
        keep = step.first + 1 if step.first else 0
        edges = Edges(
            indptr=workspace.array(f"indptr{step.name}", step.last + 1, id_dtype(before + most + 1), keep=keep),
            edge_ids=workspace.array(f"edge_ids{step.name}", before + most, id_dtype(columns.num_edges), keep=before),
            indices=workspace.array(f"{sources}{step.name}", before + most, dtype or columns.indices.dtype, keep=before),
        )
        edges.indptr[step.first : step.first + 1 if most else None] = before
        return edges


def drawn_block(edges: Edges, num_edges: int) -> Block:
    """The first edges of ``edges``."""
    return Block(indptr=edges.indptr, indices=edges.indices[:num_edges], edge_ids=edges.edge_ids[:num_edges], num_src=0)
