"""GraphSAGE's neighbour sampling (Hamilton, Ying, Leskovec 2017), node-wise; on heterogeneous graphs with fanouts of each relation, as for R-GCN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables, build_alias_tables, drawable_weights, positive_of
from hoptrain.samplers.buffers.hop import Hop, count_edges, draw_edges, is_distinct_by_weight, most_edges, sample_hops
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_fanouts
from hoptrain.samplers.hetero import Fanouts, HeteroFanoutSampler, no_relation_has_weights
from hoptrain.samplers.hops import Drawn, EdgeReader, GrowingBatch, Request, Step, columns_of

EXPANSIONS = ("all", "new")


class Weights(NamedTuple):
    """What edges of a relation are drawn by weight with."""

    tables: AliasTables
    positive: Array
    """(V,) int32, each column's edges of positive weight."""


class NeighborDraws(NamedTuple):
    """Uniform or weighted draws along one relation; they are ``hoptrain.samplers.hops.AloneDraws``.

    Attributes:
        fanouts: one a hop.
        replace: whether they are with replacement.
        number: of the relation in the addresses of random numbers.
        weights: makes what weighted draws need, once for a graph; None for uniform ones.
    """

    fanouts: tuple[int | float, ...]
    replace: bool
    number: int
    weights: Callable[[], Weights] | None

    @property
    def has_weights(self) -> bool:
        """False: blocks have no weights."""
        return False

    @property
    def needs_weight(self) -> bool:
        """Whether edges are drawn by weight."""
        return self.weights is not None

    def rule(self, hop: int) -> kernels.Rule:
        """Return how a hop takes edges."""
        return kernels.Rule(fanout_code(self.fanouts[hop]), self.replace, self.weights is not None)

    def kernel_columns(self, columns: RelationColumns, rule: kernels.Rule) -> kernels.Columns | WeightedColumns:
        """Return what a hop with a rule draws from."""
        if self.weights is None:
            return kernels.Columns(columns.indptr, columns.indices, *NO_TABLES)
        tables, positive = self.weights()
        if is_distinct_by_weight(rule):
            return WeightedColumns(columns.indptr, columns.indices, *tables, columns.weights, positive)
        return kernels.Columns(columns.indptr, columns.indices, *tables)

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the sources, and the weights that edges are drawn by.

        Raises:
            InputError: there are no weights, or all are 0.
        """
        weights = {} if self.weights is None else {"weights": drawable_weights(columns)}
        return {"indices": columns.indices, **weights}

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw from files; a hop that takes no edges reads no weights."""
        rule = self.rule(hop)
        return (files.by_weight if rule.weighted and rule.fanout else files.uniformly)(rule, requests)

    def draw(self, columns: RelationColumns, hop: int, request: Request, workspace: Workspace) -> Drawn:
        """Draw the edges of a request from columns in memory, with global ids of sources."""
        nodes, number, rule = request.nodes, len(request.nodes), self.rule(hop)
        drawn_from = self.kernel_columns(columns, rule)
        most = most_edges(number, rule.fanout, lambda: count_edges(drawn_from, nodes, 0, number, rule))
        edges = kernels.Edges(
            indptr=workspace.array("drawn.indptr", number + 1, id_dtype(most + 1)),
            edge_ids=workspace.array("drawn.edge_ids", most, id_dtype(columns.num_edges)),
            indices=workspace.array("drawn.sources", most, columns.indices.dtype),
        )
        edges.indptr[: 1 if most else None] = 0
        total = draw_edges(Hop(workspace, drawn_from, nodes, 0, number, rule, request.address, edges, 0))
        return _drawn(edges, total)

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[NeighborDraws]]) -> list[Drawn]:
        """Draw the edges of all steps of a hop; the threads of the workspace share the relations."""
        hops = [step.draws._hop(batch, step) for step in steps]
        totals = sample_hops(hops, [batch.frontiers[step.relation[0]] for step in steps])
        return [_drawn(hop.edges, total) for hop, total in zip(hops, totals, strict=True)]

    def _hop(self, batch: GrowingBatch, step: Step[NeighborDraws]) -> Hop:
        relation, _, hop, first, last, num_edges, _ = step
        rule, nodes = self.rule(hop), batch.frontiers[relation[2]].nodes()
        columns = self.kernel_columns(batch.columns[relation], rule)
        most = most_edges(last - first, rule.fanout, lambda: count_edges(columns, nodes, first, last, rule))
        edges, is_loop = batch.buffers(step, most), relation[0] == relation[2]
        return Hop(batch.workspace, columns, nodes, first, last, rule, batch.at(step), edges, num_edges, is_loop)


def _drawn(edges: kernels.Edges, total: int) -> Drawn:
    return Drawn(edges.indptr, edges.edge_ids[:total], edges.indices[:total])


class NeighborSampler(FanoutSampler):
    """For every hop, up to ``fanout`` in-neighbours of every node reached so far.

    Without replacement (the default) a node gives min(degree, fanout), or ceil(share * degree), distinct edges, every subset equally likely; with
    replacement it gives as many if it has any, each draw uniform or by weight. By weight without replacement the edges are drawn one after
    the other, each by weight among those that are left (successive sampling). Edges, not neighbours, are drawn: of a multi-edge each copy
    counts.

    Blocks have no weights. By weight with replacement, the plain mean over a node's edges estimates the weighted mean over its in-edges
    without bias; without replacement heavy edges come less often than their weights say, and the mean is pulled towards the plain one.

    Examples:
        >>> from hoptrain import NeighborSampler, load_dataset
        >>> graph = load_dataset("digits-knn").graph
        >>> batch = NeighborSampler([3, 2]).sample(graph, [7, 8], seed=1)
        >>> batch.node_ids  # the seeds, then what they drew
        array([   7,    8,  634, 1135, 1164, 1069, 1123, 1705, 1314,  943,  248,
               1405,  533, 1674, 1348,  568,   40, 1141,  294,  296, 1067],
              dtype=int32)
        >>> [(block.num_dst, block.num_src, block.num_edges) for block in batch.blocks]
        [(8, 21, 16), (2, 8, 6)]
    """

    def __init__(self, fanouts: Sequence[int | float], replace: bool = False, weighted: bool = False, expand: str = "all") -> None:
        """State the hops.

        Args:
            fanouts: edges per node, one number a hop, from the seeds outward; -1 takes all edges, each once; a float above
                0 and at most 1.0 is a share: ceil(share * degree) edges, where by weight and without replacement only those of a weight count.
            replace: draw with replacement.
            weighted: draw an edge with a probability proportional to its weight (``graph.weights``). One of weight 0 is never taken, nor with
                a fanout of -1, and a node without any other gives none.
            expand: which nodes a hop expands: "all" found so far, resampled in each hop, as DGL does; or the "new" ones, found on the hop
                before, as PyG does. With "new" a node has the same edges in all blocks: they are nested.

        Raises:
            InputError: no hop, a fanout that is neither positive nor -1 nor a share, or options that exclude each other.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, MAX_DRAWS // (2 if replace else 16) if weighted else MAX_DRAWS)
        self.replace: bool = replace
        self.repeats_edges: bool = replace
        self.weighted = weighted
        self.expand: str = expand
        _check_expand(expand)
        self._weights = OncePerGraph[dict[Relation, Weights]]()

    def along(self, graph: Graph) -> Mapping[Relation, NeighborDraws]:
        """Return the draws of the only relation."""
        return {ONLY: NeighborDraws(self.fanouts, self.replace, 0, partial(self._weights_of, graph) if self.weighted else None)}

    def draws_alone(self, graph: Graph) -> NeighborDraws:
        """Return the draws of the only relation: a node needs its own edges alone."""
        return self.along(graph)[ONLY]

    def columns(self, graph: Graph) -> list[kernels.Columns | WeightedColumns]:
        """Return what each hop draws from."""
        draws = self.along(graph)[ONLY]
        return [draws.kernel_columns(graph, draws.rule(hop)) for hop in range(self.num_hops)]

    def _weights_of(self, graph: Graph) -> Weights:
        """Return what is made once for a graph; it travels to the workers with the sampler."""
        return self._weights.get(graph, _weigh)[ONLY]


class HeteroSampler(HeteroFanoutSampler):
    """For every hop and relation, up to ``fanout`` in-neighbours of every node of the relation's destination type reached so far.

    The law is ``NeighborSampler``'s, relation by relation: without replacement (the default) a node gives min(degree, fanout) distinct edges
    of the relation, every subset equally likely; with replacement ``fanout`` edges if it has any; by weight as there. The draws of different
    relations are independent. Of relation number k (in the graph's order) hop h draws what ``NeighborSampler`` would draw in hop 16 k + h: for
    a single type and relation the two samplers give the same blocks bit for bit.

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
            fanouts: edges per node, one number a hop, from the seeds outward, for all relations; or such a list for each relation, by
                "source:name:destination" or the tuple of the three. -1 takes all neighbours, 0 leaves the relation out of a hop,
                a float above 0 and at most 1.0 is a share of the relation's edges, as of ``NeighborSampler``.
            seed_type: the type of nodes that seeds are of; None for several (``BaseHeteroSampler``).
            replace: draw with replacement.
            weighted: draw the edges of the relations that have weights by these, as ``NeighborSampler`` does; those of others uniformly.
            expand: which nodes a hop expands: "all" found so far, as DGL does; or the "new" ones, found on the hop before, as PyG does: then
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
        _check_expand(expand)
        self._weights = OncePerGraph[dict[Relation, Weights]]()

    def __repr__(self) -> str:
        further = f", weighted={self.weighted}, expand={self.expand!r}" if self.weighted or self.expand != "all" else ""
        return f"HeteroSampler(fanouts={self._shown_fanouts()}, seed_type={self.seed_type!r}, replace={self.replace}{further})"

    def along(self, graph: HeteroGraph) -> Mapping[Relation, NeighborDraws]:
        """Return the draws of each relation.

        Raises:
            InputError: fanouts that do not fit the graph's relations, or edges are to be drawn by weight and no relation has weights.
        """
        fanouts = self.fanouts_of(graph)
        weighted = {relation for relation, columns in graph.relations.items() if self.weighted and columns.weights is not None}
        if self.weighted and not weighted:
            raise no_relation_has_weights()
        return {
            relation: NeighborDraws(own, self.replace, number, partial(self._weights_of, graph, relation) if relation in weighted else None)
            for number, (relation, own) in enumerate(fanouts.items())
        }

    def _weights_of(self, graph: HeteroGraph, relation: Relation) -> Weights:
        """Return what is made once for a graph; it travels to the workers with the sampler."""
        return self._weights.get(graph, _weigh)[relation]


def _check_expand(expand: str) -> None:
    if expand not in EXPANSIONS:
        raise InputError(f'expand is {expand!r}: a hop expands "all" nodes found so far or the "new" ones; choose one')


def _weigh(graph: Graph | HeteroGraph) -> dict[Relation, Weights]:
    weighted = {
        relation: columns for relation, columns in columns_of(graph).items() if isinstance(graph, Graph) or columns.weights is not None
    }
    return {relation: Weights(build_alias_tables(columns), positive_of(columns)) for relation, columns in weighted.items()}
