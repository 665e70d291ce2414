"""GraphSAGE's neighbour sampling (Hamilton, Ying, Leskovec 2017), node-wise."""

from __future__ import annotations

from collections.abc import Sequence

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns
from hoptrain.kernels.shared.philox import MAX_DRAWS
from hoptrain.samplers.base import FanoutSampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, nested_blocks
from hoptrain.samplers.checks import check_fanouts
from hoptrain.samplers.scratch.alias import NO_TABLES, AliasTables, build_alias_tables, positive_of
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.hop import Hop, count_edges, is_distinct_by_weight, most_edges, sample_hop
from hoptrain.samplers.scratch.once import OncePerGraph
from hoptrain.samplers.scratch.workspace import Workspace

EXPANSIONS = ("all", "new")


class NeighborSampler(FanoutSampler):
    """For every hop, up to ``fanout`` in-neighbours of every vertex reached so far.

    Without replacement (the default) a vertex gives min(degree, fanout), or ceil(share * degree), distinct edges, every subset equally likely; with
    replacement it gives as many if it has any, each draw uniform or by weight. By weight without replacement the edges are drawn one after
    the other, each by weight among those that are left (successive sampling). Edges, not neighbours, are drawn: of a multi-edge each copy
    counts.

    Blocks have no weights. By weight with replacement, the plain mean over a vertex's edges estimates the weighted mean over its in-edges
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
            fanouts: edges per vertex, one number a hop, from the seeds outward; -1 takes all edges, each once; a float above
                0 and at most 1.0 is a share: ceil(share * degree) edges, where by weight and without replacement only those of a weight count.
            replace: draw with replacement.
            weighted: draw an edge with a probability proportional to its weight (``graph.weights``). One of weight 0 is never taken, nor with
                a fanout of -1, and a vertex without any other gives none.
            expand: which vertices a hop expands: "all" found so far, resampled in each hop, as DGL does; or the "new" ones, found on the hop
                before, as PyG does. With "new" a vertex has the same edges in all blocks: they are nested.

        Raises:
            InputError: no hop, a fanout that is neither positive nor -1 nor a share, or options that exclude each other.
        """
        self.fanouts: tuple[int | float, ...] = check_fanouts(fanouts, MAX_DRAWS // (2 if replace else 16) if weighted else MAX_DRAWS)
        self.replace: bool = replace
        self.repeats_edges: bool = replace
        self.weighted = weighted
        self.expand: str = expand
        self._tables = OncePerGraph[AliasTables]()
        self._positive = OncePerGraph[Array]()
        if expand not in EXPANSIONS:
            raise InputError(f'expand is {expand!r}: a hop expands "all" vertices found so far or the "new" ones; choose one')

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        frontier = Frontier.of_seeds(graph, seeds, workspace)
        num_seeds, nested = frontier.num_nodes, self.expand == "new"
        blocks: list[Block] = []
        first = 0
        for hop, (rule, columns) in enumerate(zip(self.rules(), self.columns(graph), strict=True)):
            how = columns, rule, address.at_hop(hop)
            if nested:
                known = frontier.num_nodes
                blocks.append(_sample_hop(graph, frontier, first, *how, "", blocks[-1].num_edges if blocks else 0))
                first = known
            else:
                blocks.append(_sample_hop(graph, frontier, 0, *how, f"{hop}", 0))
        return MiniBatch(
            node_ids=frontier.nodes(),
            blocks=nested_blocks(blocks[-1], [b.num_src for b in reversed(blocks)], num_seeds) if nested else tuple(reversed(blocks)),
            num_seeds=num_seeds,
            nested=nested,
        )

    def rules(self) -> list[kernels.Rule]:
        """How each hop takes edges."""
        return [kernels.Rule(fanout, self.replace, self.weighted) for fanout in self.fanout_codes]

    def columns(self, graph: Graph) -> list[kernels.Columns | WeightedColumns]:
        """What each hop draws from."""
        return [self._columns(graph, rule) for rule in self.rules()]

    def _columns(self, graph: Graph, rule: kernels.Rule) -> kernels.Columns | WeightedColumns:
        tables = self._alias_tables(graph)
        if not is_distinct_by_weight(rule):
            return kernels.Columns(graph.indptr, graph.indices, *tables)
        positive = self._positive.get(graph, positive_of)
        return WeightedColumns(graph.indptr, graph.indices, *tables, graph.weights, positive)

    def _alias_tables(self, graph: Graph) -> AliasTables:
        """Made once for a graph; they travel to the workers with the sampler."""
        if not self.weighted:
            return NO_TABLES
        return self._tables.get(graph, build_alias_tables)


def _sample_hop(
    graph: Graph,
    frontier: Frontier,
    first: int,
    columns: kernels.Columns | WeightedColumns,
    rule: kernels.Rule,
    address: HopAddress,
    name: str,
    num_edges: int,
) -> Block:
    """Expand the nodes from ``first`` on. ``num_edges`` edges stand in the arrays called ``name`` already, and stay."""
    workspace, last = frontier.workspace, frontier.num_nodes
    most = most_edges(last - first, rule.fanout, lambda: count_edges(columns, frontier.nodes(), first, last, rule))
    nodes = frontier.make_room(most)
    edges = kernels.Edges(
        indptr=workspace.array(f"indptr{name}", last + 1, id_dtype(num_edges + most + 1), keep=first + 1 if first else 0),
        edge_ids=workspace.array(f"edge_ids{name}", num_edges + most, id_dtype(graph.num_edges), keep=num_edges),
        indices=workspace.array(f"indices{name}", num_edges + most, graph.indices.dtype, keep=num_edges),
    )
    edges.indptr[first : first + 1 if most else None] = num_edges
    frontier.num_nodes, total = sample_hop(Hop(workspace, columns, nodes, first, last, rule, address, edges, num_edges))
    return Block(indptr=edges.indptr, indices=edges.indices[:total], edge_ids=edges.edge_ids[:total], num_src=frontier.num_nodes)
