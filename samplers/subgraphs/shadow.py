"""ShaDow's samplers (Zeng, Zhang, Xia, et al. 2021, "Decoupling the depth and scope of graph neural networks")."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from numbers import Integral

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.columns import total_degree
from hoptrain.kernels.cpu.nodewise import neighbor
from hoptrain.kernels.cpu.subgraphs import shadow as kernels
from hoptrain.samplers.batch.minibatch import Block, MiniBatch
from hoptrain.samplers.buffers.alias import NO_TABLES
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.hop import scratch_for
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.subgraphs.induced import SquareSampler, bitmap

_SPARSE = 8
"""Slots of a set's hash table for each node, at least: most nodes that are looked up are not in it, and should meet an empty slot."""


class DisjointSampler(SquareSampler):
    """One small subgraph for each seed, with all edges between its nodes; a batch is their disjoint union.

    A node in the subgraphs of several seeds is several nodes of the batch; seeds come first, then the other nodes of each seed's subgraph
    in turn. ``batch_size`` counts seeds, as it does for ``NeighborSampler``. A model may have more layers than a subgraph has hops. No
    weights: a destination's edges stand for as many each.
    """

    distinct_nodes = False

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        reached, kept = self.most_vertices(graph)
        own, sets = _own(graph, reached, workspace), _sets(graph, seeds, kept, workspace)
        self.find_sets(graph, len(seeds), address.at_hop(0), own, sets, workspace)
        block = _induce_union(graph, len(seeds), own, sets, workspace)
        sizes = tuple(np.diff(sets.begins[: len(seeds) + 1]).tolist())
        return replace(self.batch_of(sets.nodes[: block.num_src], block, len(seeds)), subgraph_sizes=sizes)

    @abstractmethod
    def most_vertices(self, graph: Graph) -> tuple[int, int]:
        """How many nodes the search for a subgraph may reach, and how many of them it may keep, the seed among them."""

    @abstractmethod
    def find_sets(
        self, graph: Graph, num_seeds: int, address: HopAddress, own: kernels.Own, sets: kernels.Sets, workspace: Workspace
    ) -> None:
        """Find the nodes of each seed's subgraph; ``sets.nodes`` begins with the seeds."""


class ShadowSampler(DisjointSampler):
    """ShaDow by hops: the subgraph of what neighbour sampling reaches from the seed in ``depth`` hops.

    A hop takes up to ``num_neighbors`` distinct in-edges of every node that the hop before found, every subset equally likely. Two seeds of
    a batch that reach the same node in the same hop draw the same of its neighbours.

    Examples:
        >>> from hoptrain import ShadowSampler, load_dataset
        >>> batch = ShadowSampler(depth=2, num_neighbors=3).sample(load_dataset("digits-knn").graph, [7, 8], seed=1)
        >>> batch.subgraph_sizes  # nodes around each of the two seeds
        (11, 11)
        >>> [block.num_dst for block in batch.blocks]
        [24, 24, 2]
    """

    def __init__(self, depth: int = 2, num_neighbors: int = 10, num_layers: int = 3) -> None:
        """State the hops.

        Args:
            depth: hops.
            num_neighbors: in-edges of a node in a hop, the paper's budget.
            num_layers: layers of the model: blocks of a batch.

        Raises:
            InputError: a number out of range, or a subgraph could have 2**20 nodes or more.
        """
        super().__init__(num_layers)
        if not all(isinstance(number, Integral) for number in (depth, num_neighbors)) or depth < 1 or num_neighbors < 1:
            raise InputError(f"depth is {depth} and num_neighbors {num_neighbors}: both are whole numbers, at least 1; correct them")
        self.depth = depth
        self.num_neighbors = num_neighbors
        self._most = 1 + sum(num_neighbors ** (hop + 1) for hop in range(min(depth, 20)))
        if depth > 20 or self._most >= kernels.MOST_PLACES:
            raise InputError(
                f"depth {depth} with {num_neighbors} neighbours a node: a seed's subgraph could have {kernels.MOST_PLACES:,} nodes or more; "
                "lower them"
            )

    def most_vertices(self, graph: Graph) -> tuple[int, int]:
        """All that neighbour sampling reaches is kept."""
        most = min(self._most, graph.num_nodes)
        return most, most

    def find_sets(
        self, graph: Graph, num_seeds: int, address: HopAddress, own: kernels.Own, sets: kernels.Sets, workspace: Workspace
    ) -> None:
        """Find the nodes of each seed's subgraph."""
        rule = neighbor.Rule(self.num_neighbors, False, False)
        scratch = scratch_for(workspace, rule)
        of_hop = min(self._most, graph.num_nodes * self.num_neighbors)
        edges = neighbor.Edges(
            indptr=workspace.array("hop_indptr", len(own.members), np.int32),
            edge_ids=workspace.array("hop_edge_ids", of_hop, id_dtype(graph.num_edges)),
            indices=workspace.array("hop_indices", of_hop, graph.indices.dtype),
        )
        columns = neighbor.Columns(graph.indptr, graph.indices, *NO_TABLES)
        kernels.neighbor_sets(columns, num_seeds, self.depth, rule, address, scratch, edges, own, sets)


class ShadowPPRSampler(DisjointSampler):
    """ShaDow by PageRank: the subgraph of the seed and the ``top`` nodes with the highest personalised PageRank. Nothing is random.

    PageRank of v is the probability that a walk from the seed against the edges, which ends at every step with probability ``alpha``, ends in
    v (at a node without in-edges it ends for certain). It is found by pushing (Andersen, Chung, Lang 2006), to which is added what the last
    residues contribute at their own places: never too much, and too little by at most ``epsilon`` times the in-degree where edges go in both
    directions. Ties go to the node that was found first.

    That is a law of the scores, not of the set: nodes whose scores are nearer to each other than this error may stand for one another, and
    where degrees are high such are many. Against the exact scores, 40 random seeds, ``top`` 100 and ``epsilon`` 1e-4 (1e-5): of Cora's sets 5 % (2 %)
    are others and 0.2 % (0.02 %) of the exact sets' PageRank is missing; of PubMed's 10 % (3 %) and 0.6 % (0.05 %); of Amazon's computers, where
    the mean degree is 36 and hubs have thousands, 23 % (17 %) and 4 % (3 %). A tenth of ``epsilon`` takes about twice the time.

    Examples:
        >>> from hoptrain import ShadowPPRSampler, load_dataset
        >>> batch = ShadowPPRSampler(top=5).sample(load_dataset("digits-knn").graph, [7])
        >>> batch.node_ids  # the seed, and the five with the highest PageRank
        array([   7,  533, 1201,   44, 1164,  634], dtype=int32)
    """

    def __init__(self, top: int = 100, alpha: float = 0.15, epsilon: float = 1e-4, num_layers: int = 3) -> None:
        """State the scope.

        Args:
            top: nodes of a subgraph beside the seed, at most.
            alpha: probability that a walk ends at a step; rounded to a multiple of 2**-16.
            epsilon: precision: a node is pushed while it has at least this share of the walks for each in-edge.
            num_layers: layers of the model: blocks of a batch.

        Raises:
            InputError: a number out of range, or a precision that could reach 2**20 nodes or more.
        """
        super().__init__(num_layers)
        if top < 1:
            raise InputError(f"top is {top}: a subgraph has at least one node beside the seed; correct it")
        self._alpha = round(alpha * (1 << kernels.ALPHA_BITS)) if 0 < alpha < 1 else 0
        if not 0 < self._alpha < 1 << kernels.ALPHA_BITS:
            raise InputError(f"alpha is {alpha}: it is a probability between 0 and 1; correct it")
        least = 1.01 / alpha / kernels.MOST_PLACES
        if not least < epsilon < 1:
            raise InputError(f"epsilon is {epsilon}: with alpha {alpha} it lies between {least:.1e} and 1; correct it")
        self.top = top
        self.alpha = alpha
        self.epsilon = epsilon
        self._threshold = round(epsilon * kernels.MASS)

    @property
    def push_precision(self) -> tuple[int, int]:
        """What a push is told: ``alpha`` of 2**16, and how many walks for each in-edge it takes."""
        return self._alpha, self._threshold

    def most_vertices(self, graph: Graph) -> tuple[int, int]:
        """Each push takes ``alpha * epsilon`` of all walks, or more, for every in-edge that it follows."""
        reached = min(math.ceil(1.01 / self.alpha / self.epsilon), graph.num_nodes)
        return reached, min(1 + self.top, reached)

    def find_sets(
        self, graph: Graph, num_seeds: int, address: HopAddress, own: kernels.Own, sets: kernels.Sets, workspace: Workspace
    ) -> None:
        """Find the nodes of each seed's subgraph."""
        room = len(own.members)
        push = kernels.Push(
            residue=workspace.array("residue", room, np.int64),
            score=workspace.array("score", room, np.int64),
            queue=workspace.array("queue", room, np.int32),
            least=workspace.array("least", room, np.int64),
            keys=workspace.array("keys", room, np.uint64),
            found=workspace.array("found", 1, graph.indices.dtype),
        )
        kernels.pagerank_sets(graph.indptr, graph.indices, num_seeds, self.top, self._alpha, self._threshold, push, own, sets)


def _own(graph: Graph, most: int, workspace: Workspace) -> kernels.Own:
    """Memory for the set of one seed, of at most ``most`` nodes."""
    slot_bits = max(4, (_SPARSE * most - 1).bit_length())
    entries = workspace.array("set_entries", 1 << slot_bits, np.uint32)
    entries[:] = 0
    turn = workspace.array("set_turn", 1, np.int64)
    turn[0] = 0
    return kernels.Own(workspace.array("members", most + 1, graph.indices.dtype), entries, slot_bits, max(1, (most - 1).bit_length()), turn)


def _sets(graph: Graph, seeds: Array, most: int, workspace: Workspace) -> kernels.Sets:
    """Room for the sets of the seeds, which it begins with.

    Raises:
        InputError: a seed is no node, or stands there twice.
    """
    frontier = Frontier.of_seeds(graph, seeds, workspace)
    nodes = frontier.nodes(len(seeds) * (most - 1))
    return kernels.Sets(nodes, workspace.array("begins", len(seeds) + 1, np.int64))


def _induce_union(graph: Graph, num_seeds: int, own: kernels.Own, sets: kernels.Sets, workspace: Workspace) -> Block:
    num_nodes = num_seeds + int(sets.begins[num_seeds])
    most = total_degree(graph.indptr, sets.nodes, num_nodes) + 1
    indptr = workspace.array("indptr", num_nodes + 1, id_dtype(most))
    indices = workspace.array("indices", most, graph.indices.dtype)
    edge_ids = workspace.array("edge_ids", most, id_dtype(graph.num_edges))
    bits = bitmap(graph.num_nodes, workspace)
    num_edges = kernels.induce_union(graph.indptr, graph.indices, num_seeds, bits, own, sets, indptr, indices, edge_ids)
    return Block(indptr=indptr, indices=indices[:num_edges], edge_ids=edge_ids[:num_edges], num_src=num_nodes)
