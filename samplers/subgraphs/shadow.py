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
"""Minimum number of hash table slots per node of a set. Most lookups are of nodes outside the set, and should find an empty slot."""


class DisjointSampler(SquareSampler):
    """A sampler of one small subgraph around each seed, with all edges between its nodes; a batch is their disjoint union.

    A node of the graph that is in the subgraphs of several seeds occurs in the batch once for each seed. The seeds come first, then the other
    nodes of each seed's subgraph in turn. ``batch_size`` counts seeds, as for ``NeighborSampler``. A model may have more layers than a subgraph
    has hops. Blocks have no weights.
    """

    distinct_nodes = False

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        reached, kept = self.most_vertices(graph)
        own, sets = _set_buffers(graph, reached, workspace), _enter_seeds(graph, seeds, kept, workspace)
        self.find_sets(graph, len(seeds), address.at_hop(0), own, sets, workspace)
        block = _induce_union(graph, len(seeds), own, sets, workspace)
        sizes = tuple(np.diff(sets.begins[: len(seeds) + 1]).tolist())
        return replace(self.batch_of(sets.nodes[: block.num_src], block, len(seeds)), subgraph_sizes=sizes)

    @abstractmethod
    def most_vertices(self, graph: Graph) -> tuple[int, int]:
        """Return the maximum number of nodes that the search for a subgraph reaches, and the maximum number that it keeps, both with the seed."""

    @abstractmethod
    def find_sets(
        self, graph: Graph, num_seeds: int, address: HopAddress, own: kernels.Own, sets: kernels.Sets, workspace: Workspace
    ) -> None:
        """Find the nodes of each seed's subgraph and write them to ``sets``, whose ``nodes`` begin with the seeds."""


class ShadowSampler(DisjointSampler):
    """A ShaDow sampler by hops: the subgraph of a seed has the nodes that neighbour sampling reaches from it in ``depth`` hops.

    A hop takes up to ``num_neighbors`` distinct in-edges of every node that the previous hop found, every subset equally likely. Two seeds of
    a batch that reach the same node in the same hop draw the same neighbours of it.

    Examples:
        >>> from hoptrain import ShadowSampler, load_dataset
        >>> batch = ShadowSampler(depth=2, num_neighbors=3).sample(load_dataset("digits-knn").graph, [7, 8], seed=1)
        >>> batch.subgraph_sizes  # nodes around each of the two seeds
        (11, 11)
        >>> [block.num_dst for block in batch.blocks]
        [24, 24, 2]
    """

    def __init__(self, depth: int = 2, num_neighbors: int = 10, num_layers: int = 3) -> None:
        """Check and keep the options.

        Args:
            depth: number of hops from a seed to the nodes of its subgraph.
            num_neighbors: in-edges taken for each node in a hop, the paper's budget.
            num_layers: number of layers of the model, and of blocks of a batch.

        Raises:
            InputError: a number is out of range, or a subgraph could have 2**20 nodes or more.
        """
        super().__init__(num_layers)
        if not all(isinstance(number, Integral) for number in (depth, num_neighbors)) or depth < 1 or num_neighbors < 1:
            raise InputError(
                f"depth is {depth} and num_neighbors {num_neighbors}: both must be whole numbers, at least 1; give for instance 2 and 10"
            )
        self.depth = depth
        self.num_neighbors = num_neighbors
        self._most = 1 + sum(num_neighbors ** (hop + 1) for hop in range(min(depth, 20)))
        if depth > 20 or self._most >= kernels.MOST_PLACES:
            raise InputError(
                f"depth is {depth} and num_neighbors {num_neighbors}: a seed's subgraph must have fewer than {kernels.MOST_PLACES:,} nodes; lower them"
            )

    def most_vertices(self, graph: Graph) -> tuple[int, int]:
        """Return the maximum number of nodes that neighbour sampling reaches, twice, since all of them are kept."""
        most = min(self._most, graph.num_nodes)
        return most, most

    def find_sets(
        self, graph: Graph, num_seeds: int, address: HopAddress, own: kernels.Own, sets: kernels.Sets, workspace: Workspace
    ) -> None:
        """Find the nodes of each seed's subgraph; see ``DisjointSampler.find_sets``."""
        rule = neighbor.DrawOptions(self.num_neighbors, False, False)
        scratch = scratch_for(workspace, rule)
        of_hop = min(self._most, graph.num_nodes * self.num_neighbors)
        edges = neighbor.HopEdges(
            indptr=workspace.array("hop_indptr", len(own.members), np.int32),
            edge_ids=workspace.array("hop_edge_ids", of_hop, id_dtype(graph.num_edges)),
            indices=workspace.array("hop_indices", of_hop, graph.indices.dtype),
        )
        columns = neighbor.CscColumns(graph.indptr, graph.indices, *NO_TABLES)
        kernels.neighbor_sets(columns, num_seeds, self.depth, rule, address, scratch, edges, own, sets)


class ShadowPPRSampler(DisjointSampler):
    """A ShaDow sampler by PageRank: a subgraph has the seed and the ``top`` nodes with the highest personalised PageRank. Nothing is random.

    The PageRank of v is the probability that a walk from the seed against the edges ends at v. The walk ends at every step with probability
    ``alpha``, and always at a node without in-edges. The PageRank is computed by pushing (Andersen, Chung, Lang 2006), plus the contribution of the
    final residues at their own nodes. It is never too large and, if all edges go in both directions, too small by at most ``epsilon`` times the
    in-degree. Ties go to the node found first.

    The bound holds for the scores, not for the set: nodes whose scores differ by less than this error may replace one another, and with high
    degrees there are many such nodes. Compared with the exact scores, for 40 random seeds, ``top`` 100 and ``epsilon`` 1e-4 (1e-5): for Cora 5 % (2 %)
    of the nodes differ, and 0.2 % (0.02 %) of the exact sets' PageRank is missing; for PubMed 10 % (3 %) and 0.6 % (0.05 %); for Amazon Computers, with
    mean degree 36 and hubs of thousands, 23 % (17 %) and 4 % (3 %). A tenth of ``epsilon`` takes about twice the time.

    Examples:
        >>> from hoptrain import ShadowPPRSampler, load_dataset
        >>> batch = ShadowPPRSampler(top=5).sample(load_dataset("digits-knn").graph, [7])
        >>> batch.node_ids  # the seed, and the five nodes with the highest PageRank
        array([   7,  533, 1201,   44, 1164,  634], dtype=int32)
    """

    def __init__(self, top: int = 100, alpha: float = 0.15, epsilon: float = 1e-4, num_layers: int = 3) -> None:
        """Check and keep the options.

        Args:
            top: maximum number of nodes of a subgraph in addition to the seed.
            alpha: probability that a walk ends at a step, rounded to a multiple of 2**-16.
            epsilon: precision of the PageRank: a node is pushed while its residue is at least ``epsilon`` times its in-degree.
            num_layers: number of layers of the model, and of blocks of a batch.

        Raises:
            InputError: a number is out of range, or ``epsilon`` is so small that a search could reach 2**20 nodes or more.
        """
        super().__init__(num_layers)
        if top < 1:
            raise InputError(f"top is {top}: a subgraph has at least one node in addition to the seed; give 1 or more")
        self._alpha = round(alpha * (1 << kernels.ALPHA_BITS)) if 0 < alpha < 1 else 0
        if not 0 < self._alpha < 1 << kernels.ALPHA_BITS:
            raise InputError(f"alpha is {alpha}: it must be a probability between 0 and 1; give for instance 0.15")
        least = 1.01 / alpha / kernels.MOST_PLACES
        if not least < epsilon < 1:
            raise InputError(f"epsilon is {epsilon}: with alpha {alpha} it must be between {least:.1e} and 1; give a number in this range")
        self.top = top
        self.alpha = alpha
        self.epsilon = epsilon
        self._threshold = round(epsilon * kernels.MASS)

    @property
    def push_precision(self) -> tuple[int, int]:
        """``alpha`` in units of 2**-16, and ``epsilon`` in units of the integer residues."""
        return self._alpha, self._threshold

    def most_vertices(self, graph: Graph) -> tuple[int, int]:
        """Return the maximum number of nodes that pushing reaches, and the maximum number that is kept, both with the seed.

        Each push settles at least ``alpha * epsilon`` of the total mass for every in-edge that it follows, which bounds the reached nodes.
        """
        reached = min(math.ceil(1.01 / self.alpha / self.epsilon), graph.num_nodes)
        return reached, min(1 + self.top, reached)

    def find_sets(
        self, graph: Graph, num_seeds: int, address: HopAddress, own: kernels.Own, sets: kernels.Sets, workspace: Workspace
    ) -> None:
        """Find the nodes of each seed's subgraph; see ``DisjointSampler.find_sets``."""
        capacity = len(own.members)
        push = kernels.Push(
            residue=workspace.array("residue", capacity, np.int64),
            score=workspace.array("score", capacity, np.int64),
            queue=workspace.array("queue", capacity, np.int32),
            least=workspace.array("least", capacity, np.int64),
            keys=workspace.array("keys", capacity, np.uint64),
            found=workspace.array("found", 1, graph.indices.dtype),
        )
        kernels.pagerank_sets(graph.indptr, graph.indices, num_seeds, self.top, self._alpha, self._threshold, push, own, sets)


def _set_buffers(graph: Graph, most: int, workspace: Workspace) -> kernels.Own:
    """Return arrays of the workspace for the set of one seed, of at most ``most`` nodes."""
    slot_bits = max(4, (_SPARSE * most - 1).bit_length())
    entries = workspace.array("set_entries", 1 << slot_bits, np.uint32)
    entries[:] = 0
    turn = workspace.array("set_turn", 1, np.int64)
    turn[0] = 0
    return kernels.Own(workspace.array("members", most + 1, graph.indices.dtype), entries, slot_bits, max(1, (most - 1).bit_length()), turn)


def _enter_seeds(graph: Graph, seeds: Array, most: int, workspace: Workspace) -> kernels.Sets:
    """Return arrays of the workspace for the sets of all seeds, with the seeds entered.

    Raises:
        InputError: a seed is outside the graph, or is given twice.
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
