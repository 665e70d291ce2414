"""GraphSAGE's node-wise neighbour sampling (Hamilton, Ying, Leskovec 2017), for homogeneous graphs and, with fanouts by relation, heterogeneous ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hoptrain.engine import Graph, HeteroGraph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.errors import explain_keywords
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.kernels.shared.draws import fanout_code
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.buffers.alias import NO_TABLES, AliasTables, build_alias_tables, count_positive_weights, drawable_weights
from hoptrain.samplers.buffers.hop import Hop, count_edges, draw_edges, is_distinct_by_weight, most_edges, sample_hops
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_fanouts
from hoptrain.samplers.hetero import Fanouts, HeteroFanoutSampler, no_relation_has_weights
from hoptrain.samplers.hops import Drawn, EdgeReader, GrowingBatch, Request, Step, columns_of

EXPANSIONS = ("all", "new")


class Weights(NamedTuple):
    """Precomputed arrays for weighted draws along one relation."""

    tables: AliasTables
    positive: Array
    """(V,) int32, number of edges of positive weight into each node."""


class NeighborDraws(NamedTuple):
    """Uniform or weighted draws along one relation; implements ``hoptrain.samplers.hops.AloneDraws``.

    Attributes:
        fanouts: number or share of edges for each hop.
        replace: whether edges are drawn with replacement.
        number: number of the relation in the addresses of random numbers.
        weights: function that returns the arrays for weighted draws, computed once for a graph; None for uniform draws.
    """

    fanouts: tuple[int | float, ...]
    replace: bool
    number: int
    weights: Callable[[], Weights] | None

    @property
    def has_weights(self) -> bool:
        """False: the blocks have no weights."""
        return False

    @property
    def needs_weight(self) -> bool:
        """True if edges are drawn by weight."""
        return self.weights is not None

    def rule(self, hop: int) -> kernels.DrawOptions:
        """Return the options of a hop's draws: the fanout, and whether draws are with replacement and by weight."""
        return kernels.DrawOptions(fanout_code(self.fanouts[hop]), self.replace, self.weights is not None)

    def kernel_columns(self, columns: RelationColumns, rule: kernels.DrawOptions) -> kernels.CscColumns | WeightedColumns:
        """Return the columns in the form that the kernel for ``rule`` takes."""
        if self.weights is None:
            return kernels.CscColumns(columns.indptr, columns.indices, *NO_TABLES)
        tables, positive = self.weights()
        if is_distinct_by_weight(rule):
            return WeightedColumns(columns.indptr, columns.indices, *tables, columns.weights, positive)
        return kernels.CscColumns(columns.indptr, columns.indices, *tables)

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the arrays that the draws read: the sources and, for weighted draws, the weights.

        Raises:
            InputError: weighted draws, and the relation has no weights or all are 0.
        """
        weights = {} if self.weights is None else {"weights": drawable_weights(columns)}
        return {"indices": columns.indices, **weights}

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw the edges of one hop of several batches from files. A hop with fanout 0 reads no weights."""
        rule = self.rule(hop)
        return (files.by_weight if rule.weighted and rule.fanout else files.uniformly)(rule, requests)

    def draw(self, columns: RelationColumns, hop: int, request: Request, workspace: Workspace) -> Drawn:
        """Draw the edges of a request from columns in memory; sources are global ids."""
        nodes, number, rule = request.nodes, len(request.nodes), self.rule(hop)
        drawn_from = self.kernel_columns(columns, rule)
        most = most_edges(number, rule.fanout, lambda: count_edges(drawn_from, nodes, 0, number, rule))
        edges = kernels.HopEdges(
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


def _drawn(edges: kernels.HopEdges, total: int) -> Drawn:
    return Drawn(edges.indptr, edges.edge_ids[:total], edges.indices[:total])


@explain_keywords
class NeighborSampler(FanoutSampler):
    """A sampler that takes, in every hop, up to ``fanout`` in-edges of every node reached so far.

    Without replacement (the default) a node draws min(degree, fanout), or ceil(share * degree), distinct edges, every subset equally likely. With
    replacement a node that has in-edges draws ``fanout``, or ceil(share * degree), edges, each draw uniform or by weight. By weight without
    replacement edges are drawn one after the other, each by weight among those that are left (successive sampling). Edges are drawn, not
    neighbours, so each of several parallel edges counts.

    Blocks have no weights. By weight with replacement, the plain mean over a node's sampled edges is an unbiased estimate of the weighted mean
    over its in-edges. By weight without replacement, heavy edges are drawn less often than their weights say, which pulls the estimate towards
    the unweighted mean.

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
        """Check and keep the options.

        Args:
            fanouts: in-edges taken for each node, one number for each hop, from the seeds outward. -1 takes all edges, each once. A float above
                0 and at most 1.0 is a share: ceil(share * degree) edges; by weight and without replacement, degree counts edges of positive weight.
            replace: draw edges with replacement.
            weighted: draw an edge with a probability proportional to its weight (``graph.weights``). An edge of weight 0 is never taken, not even with
                a fanout of -1.
            expand: nodes that a hop expands: "all" found so far, resampled in each hop, as in DGL; or the "new" ones that the previous hop
                found, as in PyG. With "new" a node has the same edges in all blocks, which are nested.

        Raises:
            InputError: there is no hop, a fanout is neither positive nor -1 nor a share, or ``expand`` is unknown.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, MAX_DRAWS // (2 if replace else 16) if weighted else MAX_DRAWS)
        self.replace: bool = replace
        self.repeats_edges: bool = replace
        self.weighted = weighted
        self.expand: str = expand
        _check_expand(expand)
        self._weights = OncePerGraph[dict[Relation, Weights]]()

    def along(self, graph: Graph) -> Mapping[Relation, NeighborDraws]:
        """Return, for the graph's only relation, the object that draws its edges."""
        return {ONLY: NeighborDraws(self.fanouts, self.replace, 0, partial(self._weights_of, graph) if self.weighted else None)}

    def draws_alone(self, graph: Graph) -> NeighborDraws:
        """Return the draws of the only relation, which need only the in-edges of the drawing nodes."""
        return self.along(graph)[ONLY]

    def columns(self, graph: Graph) -> list[kernels.CscColumns | WeightedColumns]:
        """Return the columns that each hop draws from, in the form that its kernel takes."""
        draws = self.along(graph)[ONLY]
        return [draws.kernel_columns(graph, draws.rule(hop)) for hop in range(self.num_hops)]

    def _weights_of(self, graph: Graph) -> Weights:
        """Return the arrays for weighted draws, which are computed once for a graph and pickled with the sampler for the workers."""
        return self._weights.get(graph, _weigh)[ONLY]


@explain_keywords
class HeteroSampler(HeteroFanoutSampler):
    """A neighbour sampler of heterogeneous graphs that takes, in every hop and by every relation, up to ``fanout`` in-edges of every node reached so far.

    Each relation has the distribution of ``NeighborSampler``. Without replacement (the default) a node draws min(degree, fanout) distinct edges
    of the relation, every subset equally likely; with replacement ``fanout`` edges if it has any. The draws of different relations are
    independent. Hop h of relation number k (in the graph's order) has the random numbers of hop 16 k + h of ``NeighborSampler``: for a single
    type and relation the blocks of the two samplers are bit-identical.

    Like any sampler it is a pure function of (graph, seeds, seed, epoch, batch) and keeps no state. On the CPU the threads of the workspace share
    the large hops of a batch, or the batches of a bulk; on CUDA all batches of a bulk are sampled together.

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
        """Check and keep the options.

        Args:
            fanouts: in-edges taken for each node, one number for each hop, from the seeds outward, for all relations; or such a list for each
                relation, by "source:name:destination" or the tuple of the three. -1 takes all edges, 0 leaves the relation out of a hop, and
                a float above 0 and at most 1.0 is a share of the node's edges of the relation, rounded up.
            seed_type: node type of the seeds; None if they may be of several types.
            replace: draw edges with replacement.
            weighted: draw edges with a probability proportional to their weights in the relations that have weights, uniformly in others.
            expand: nodes that a hop expands: "all" found so far, as in DGL; or the "new" ones that the previous hop found, as in PyG. With "new"
                the blocks are nested.
            default: fanouts of the relations that ``fanouts`` does not name. Without it ``fanouts`` must name every relation.

        Raises:
            InputError: there is no hop or more than 16, lists differ in length, a fanout is out of range, or ``expand`` is unknown.
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
        """Return the draws along each relation.

        Raises:
            InputError: the fanouts do not fit the graph's relations, or ``weighted`` and no relation has weights.
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
        """Return the arrays for weighted draws, which are computed once for a graph and pickled with the sampler for the workers."""
        return self._weights.get(graph, _weigh)[relation]


def _check_expand(expand: str) -> None:
    if expand not in EXPANSIONS:
        raise InputError(f'expand is {expand!r}: a hop expands "all" nodes found so far or the "new" ones; choose one')


def _weigh(graph: Graph | HeteroGraph) -> dict[Relation, Weights]:
    weighted = {
        relation: columns for relation, columns in columns_of(graph).items() if isinstance(graph, Graph) or columns.weights is not None
    }
    return {relation: Weights(build_alias_tables(columns), count_positive_weights(columns)) for relation, columns in weighted.items()}
