"""Neighbour sampling over typed edges: a fanout for each relation (as in R-GCN's samplers of DGL and PyG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hoptrain.engine import Address, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.samplers.batch.hetero_minibatch import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block
from hoptrain.samplers.nodewise.hetero_hops import Fanouts, HeteroFanoutSampler, Step, TypedHops, drawn_block, no_relation_has_weights
from hoptrain.samplers.nodewise.neighbor import EXPANSIONS
from hoptrain.samplers.scratch.alias import NO_TABLES, AliasTables, build_alias_tables, positive_of
from hoptrain.samplers.scratch.hop import Hop, count_edges, draw_in_order, is_distinct_by_weight, most_edges
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS


class OneRelation(NamedTuple):
    """What of a ``HeteroSampler`` draws along one relation, as a ``NeighborSampler`` would."""

    fanouts: tuple[int | float, ...]
    replace: bool
    weighted: bool

    def rules(self) -> list[kernels.Rule]:
        """How each hop takes edges."""
        return [kernels.Rule(fanout_code(fanout), self.replace, self.weighted) for fanout in self.fanouts]


class HeteroSampler(HeteroFanoutSampler):
    """For every hop and relation, up to ``fanout`` in-neighbours of every vertex of the relation's destination type reached so far.

    The law is ``NeighborSampler``'s, relation by relation: without replacement (the default) a vertex gives min(degree, fanout) distinct edges
    of the relation, every subset equally likely; with replacement ``fanout`` edges if it has any; by weight as there. The draws of different
    relations are independent. Of relation number k (in the graph's order) hop h draws what ``NeighborSampler`` would draw in hop 16 k + h: for
    a single type and relation the two samplers give the same blocks to the bit.

    Like any sampler it is a pure function of (graph, seeds, seed, epoch, batch) and keeps no state. On the CPU the threads of the workspace share
    a batch's large hops, or the batches of a bulk; on CUDA a bulk is sampled at once.

    Examples:
        >>> from hoptrain import HeteroGraph, HeteroSampler
        >>> graph = HeteroGraph.from_edges({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 0, 1], [0, 2, 2])}).with_reverse()
        >>> batch = HeteroSampler([2, 2], seed_type="item").sample(graph, [0], seed=1)
        >>> batch.node_ids
        {'user': array([0], dtype=int32), 'item': array([0, 2], dtype=int32)}
    """

    def __init__(
        self,
        fanouts: Fanouts,
        seed_type: str | None = None,
        replace: bool = False,
        *,
        weighted: bool = False,
        expand: str = "all",
        default: Sequence[int | float] | None = None,
    ) -> None:
        """State the hops.

        Args:
            fanouts: edges per vertex, one number a hop, from the seeds outward, for all relations; or such a list for each relation, by
                "source:name:destination" or the tuple of the three. -1 takes all neighbours, 0 leaves the relation out of a hop,
                a float above 0 and at most 1.0 is a share of the relation's edges, as of ``NeighborSampler``.
            seed_type: the type of vertices that seeds are of; None for several (``TypedSampler``).
            replace: draw with replacement.
            weighted: draw the edges of the relations that have weights by these, as ``NeighborSampler`` does; those of others uniformly.
            expand: which vertices a hop expands: "all" found so far, as DGL does; or the "new" ones, found on the hop before, as PyG does: then
                blocks are nested.
            default: the list of the relations that ``fanouts`` does not name; without it all are named.

        Raises:
            InputError: no hop or more than 16, lists of different lengths, a fanout that is out of range, options that exclude each other.
        """
        super().__init__(fanouts, seed_type, default, MAX_DRAWS // (2 if replace else 16) if weighted else MAX_DRAWS)
        self.replace: bool = replace
        self.repeats_edges: bool = replace
        self.weighted = weighted
        self.expand = expand
        self._tables = OncePerGraph[dict[Relation, tuple[AliasTables, Array]]]()
        if expand not in EXPANSIONS:
            raise InputError(f'expand is {expand!r}: a hop expands "all" vertices found so far or the "new" ones; choose one')

    def __repr__(self) -> str:
        further = f", weighted={self.weighted}, expand={self.expand!r}" if self.weighted or self.expand != "all" else ""
        return f"HeteroSampler(fanouts={self._shown_fanouts()}, seed_type={self.seed_type!r}, replace={self.replace}{further})"

    def prepare(self, graph: HeteroGraph, seeds: Array) -> HeteroSampler:
        """As it is.

        Raises:
            InputError: as ``along``.
        """
        self.along(graph)
        return self

    def along(self, graph: HeteroGraph) -> dict[Relation, OneRelation]:
        """What draws along each of the graph's relations.

        Raises:
            InputError: fanouts that do not fit these, or edges are to be drawn by weight and no relation has weights.
        """
        self.fanouts_of(graph)
        weighted = {relation for relation, columns in graph.relations.items() if self.weighted and columns.weights is not None}
        if self.weighted and not weighted:
            raise no_relation_has_weights()
        common = self.fanouts.get("", ())
        return {
            relation: OneRelation(self.fanouts.get(relation_name(relation), common), self.replace, relation in weighted)
            for relation in graph.relations
        }

    def sample_on_cpu(
        self, graph: HeteroGraph, seeds: Array | Mapping[str, Array], address: Address, workspace: Workspace
    ) -> HeteroMiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``.

        Raises:
            InputError: besides, fanouts that do not fit the graph's relations.
        """
        rules = {relation: own.rules() for relation, own in self.along(graph).items()}
        weights, asked = self._weights_of(graph), self.seeds_of(graph, seeds)
        work = TypedHops.begin(graph, asked, workspace, self.expand == "new")

        def begin(step: Step) -> Hop:
            rule = rules[step.relation][step.hop]
            columns = _columns_of(graph.relations[step.relation], rule, weights.get(step.relation))
            return _begin(work, step, columns, rule, address.at_hop(step.number * MOST_HOPS + step.hop))

        def draw(steps: list[Step]) -> list[Block]:
            hops = [begin(step) for step in steps]

            def relabel(number: int, first: int, last: int) -> None:
                work.frontiers[steps[number].relation[0]].relabel(hops[number].edges.indices[first:last])

            totals = draw_in_order(hops, relabel)
            return [drawn_block(hop.edges, total) for hop, total in zip(hops, totals, strict=True)]

        return work.batch(work.run(self.num_hops, draw), asked)

    def _weights_of(self, graph: HeteroGraph) -> dict[Relation, tuple[AliasTables, Array]]:
        """Alias tables and numbers of edges of positive weight; made once for a graph, they travel to the workers with the sampler."""
        return self._tables.get(graph, _weigh) if self.weighted else {}


def _weigh(graph: HeteroGraph) -> dict[Relation, tuple[AliasTables, Array]]:
    weighted = {relation: columns for relation, columns in graph.relations.items() if columns.weights is not None}
    return {relation: (build_alias_tables(columns), positive_of(columns)) for relation, columns in weighted.items()}


def _columns_of(
    columns: RelationColumns, rule: kernels.Rule, weights: tuple[AliasTables, Array] | None
) -> kernels.Columns | WeightedColumns:
    """What the edges of a relation are drawn from."""
    tables, positive = weights or (NO_TABLES, None)
    if is_distinct_by_weight(rule):
        return WeightedColumns(columns.indptr, columns.indices, *tables, columns.weights, positive)
    return kernels.Columns(columns.indptr, columns.indices, *tables)


def _begin(work: TypedHops, step: Step, columns: kernels.Columns | WeightedColumns, rule: kernels.Rule, address: HopAddress) -> Hop:
    """What there is before a step."""
    nodes, first, last = work.frontiers[step.relation[2]].nodes(), step.first, step.last
    most = most_edges(last - first, rule.fanout, lambda: count_edges(columns, nodes, first, last, rule))
    return Hop(work.workspace, columns, nodes, first, last, rule, address, work.room(step, most), step.num_edges)
