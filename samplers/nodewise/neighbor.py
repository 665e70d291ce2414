"""GraphSAGE's neighbour sampling (Hamilton, Ying, Leskovec 2017), node-wise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.cpu.nodewise.weighted import WeightedColumns, count_positive
from hoptrain.kernels.shared.philox import MAX_DRAWS, MAX_HOP
from hoptrain.samplers.base import BatchAddress, Sampler, check_seeds, seed_given_twice
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, nested_blocks
from hoptrain.samplers.scratch.alias import NO_TABLES, AliasTables, build_alias_tables
from hoptrain.samplers.scratch.hop import Hop, count_edges, is_distinct_by_weight, sample_hop
from hoptrain.samplers.scratch.workspace import Workspace

EXPANSIONS = ("all", "new")

_EXACT_COUNT = 1 << 22
"""Where a hop could have more edges than this, they are counted first, so that no memory is asked for that low degrees leave unused."""


class NeighborSampler(Sampler):
    """For every hop, up to ``fanout`` in-neighbours of every vertex reached so far.

    Without replacement (the default) a vertex gives min(degree, fanout) distinct edges, every subset equally likely; with replacement it
    gives ``fanout`` edges if it has any, each draw uniform or by weight. By weight without replacement the edges are drawn one after the
    other, each by weight among those that are left (successive sampling). Edges, not neighbours, are drawn: of a multi-edge each copy counts.

    Blocks have no weights. By weight with replacement, the plain mean over a vertex's edges estimates the weighted mean over its in-edges
    without bias; without replacement heavy edges come less often than their weights say, and the mean is pulled towards the plain one.
    """

    def __init__(self, fanouts: Sequence[int], replace: bool = False, weighted: bool = False, expand: str = "all") -> None:
        """State the hops.

        Args:
            fanouts: edges per vertex, one number a hop, from the seeds outward; -1 takes all edges, each once.
            replace: draw with replacement.
            weighted: draw an edge with a probability proportional to its weight (``graph.weights``). One of weight 0 is never taken, nor with
                a fanout of -1, and a vertex without any other gives none.
            expand: which vertices a hop expands: "all" found so far, resampled in each hop, as DGL does; or the "new" ones, found on the hop
                before, as PyG does. With "new" a vertex has the same edges in all blocks: they are nested.

        Raises:
            InputError: no hop, a fanout that is neither positive nor -1, or options that exclude each other.
        """
        self.fanouts = tuple(int(fanout) for fanout in fanouts)
        self.replace = replace
        self.weighted = weighted
        self.expand = expand
        self._tables: tuple[Graph, AliasTables] | None = None
        self._positive: tuple[Graph, Array] | None = None
        if not 0 < len(self.fanouts) < MAX_HOP:
            raise InputError(f"fanouts are {list(fanouts)}: give one number for each hop, at least one, for instance [15, 10]")
        most = MAX_DRAWS // (2 if replace else 16) if weighted else MAX_DRAWS
        for fanout in self.fanouts:
            if not (fanout == -1 or 0 < fanout < most):
                raise InputError(
                    f"fanout {fanout} in {list(fanouts)}: a hop takes 1 to {most - 1} edges a vertex, or -1 for all; correct it"
                )
        if expand not in EXPANSIONS:
            raise InputError(f'expand is {expand!r}: a hop expands "all" vertices found so far or the "new" ones; choose one')

    def __repr__(self) -> str:
        options = [f"fanouts={list(self.fanouts)}", f"replace={self.replace}", f"weighted={self.weighted}", f"expand={self.expand!r}"]
        return f"NeighborSampler({', '.join(options)})"

    @property
    def num_hops(self) -> int:
        """One for each fanout."""
        return len(self.fanouts)

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: BatchAddress, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        seeds = check_seeds(graph, seeds)
        work = _Batch(graph, workspace)
        work.enter_seeds(seeds)
        blocks: list[Block] = []
        first = 0
        for hop, (rule, columns) in enumerate(zip(self._rules(), self.columns(graph), strict=True)):
            how = columns, rule, address.at_hop(hop)
            if self.expand == "all":
                blocks.append(work.sample_hop(0, *how, f"{hop}", 0))
            else:
                known = work.num_nodes
                blocks.append(work.sample_hop(first, *how, "", blocks[-1].num_edges if blocks else 0))
                first = known
        nested = self.expand == "new"
        return MiniBatch(
            node_ids=work.nodes(),
            blocks=nested_blocks(blocks[-1], [b.num_src for b in reversed(blocks)], len(seeds)) if nested else tuple(reversed(blocks)),
            num_seeds=len(seeds),
            num_step_seeds=len(seeds),
            nested=nested,
            **address._asdict(),
        )

    def _rules(self) -> list[kernels.Rule]:
        """How each hop takes edges."""
        return [kernels.Rule(fanout, self.replace, self.weighted) for fanout in self.fanouts]

    def columns(self, graph: Graph) -> list[kernels.Columns | WeightedColumns]:
        """What each hop draws from."""
        return [self._columns(graph, rule) for rule in self._rules()]

    def _columns(self, graph: Graph, rule: kernels.Rule) -> kernels.Columns | WeightedColumns:
        tables = self._alias_tables(graph)
        if not is_distinct_by_weight(rule):
            return kernels.Columns(graph.indptr, graph.indices, *tables)
        if self._positive is None or self._positive[0] is not graph:
            self._positive = graph, np.empty(graph.num_nodes, np.int32)
            count_positive(graph.indptr, graph.weights, self._positive[1])
        return WeightedColumns(graph.indptr, graph.indices, *tables, graph.weights, self._positive[1])

    def _alias_tables(self, graph: Graph) -> AliasTables:
        """Made once for a graph; they travel to the workers with the sampler."""
        if not self.weighted:
            return NO_TABLES
        if self._tables is None or self._tables[0] is not graph:
            self._tables = graph, build_alias_tables(graph)
        return self._tables[1]


@dataclass(eq=False, slots=True)
class _Batch:
    """A mini-batch in the making."""

    graph: Graph
    workspace: Workspace
    num_nodes: int = 0

    def nodes(self, room: int = 0) -> Array:
        """The nodes so far, with room for ``room`` more."""
        return self.workspace.array("nodes", self.num_nodes + room, self.graph.indices.dtype, keep=self.num_nodes)

    def enter_seeds(self, seeds: Array) -> None:
        nodes = self.nodes(len(seeds))
        nodes[:] = seeds
        table = self.workspace.table
        table.start(self.graph.num_nodes, len(seeds))
        again = table.enter(nodes, len(seeds))
        if again >= 0:
            raise seed_given_twice(nodes[again])
        self.num_nodes = len(seeds)

    def sample_hop(
        self,
        first: int,
        columns: kernels.Columns | WeightedColumns,
        rule: kernels.Rule,
        address: kernels.Address,
        name: str,
        num_edges: int,
    ) -> Block:
        """Expand the nodes from ``first`` on. ``num_edges`` edges stand in the arrays called ``name`` already, and stay."""
        graph, workspace, last = self.graph, self.workspace, self.num_nodes
        most = (last - first) * rule.fanout
        if rule.fanout < 0 or most > _EXACT_COUNT:
            most = count_edges(columns, self.nodes(), first, last, rule)
        self.workspace.table.reserve(self.nodes(), last, min(last + most, graph.num_nodes))
        nodes = self.nodes(min(most, graph.num_nodes - last) + 1)  # relabelling writes one entry beyond the last new node
        edges = kernels.Edges(
            indptr=workspace.array(f"indptr{name}", last + 1, id_dtype(num_edges + most + 1), keep=first + 1 if first else 0),
            positions=workspace.array(f"edge_ids{name}", num_edges + most, id_dtype(graph.num_edges), keep=num_edges),
            indices=workspace.array(f"indices{name}", num_edges + most, graph.indices.dtype, keep=num_edges),
        )
        edges.indptr[first] = num_edges
        self.num_nodes, total = sample_hop(Hop(workspace, columns, nodes, first, last, rule, address, edges, num_edges))
        return Block(indptr=edges.indptr, indices=edges.indices[:total], edge_ids=edges.positions[:total], num_src=self.num_nodes)
