"""PinSAGE's neighbourhoods by random walks (Ying et al., "Graph Convolutional Neural Networks for Web-Scale Recommender Systems", KDD 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import pinsage as kernels
from hoptrain.kernels.shared.philox import MAX_HOP
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_from_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import as_counts, no_edges

_MOST_VISITS = 1 << 24
"""Exclusive upper bound of the visits of all walks from one node: the kernel counts visits in float32, which is exact below 2**24."""
_CHUNK_WALKS = 256
"""Approximate number of walks that one kernel iteration advances together."""


class PinSAGESampler(Sampler):
    """A PinSAGE sampler: in every hop, the neighbours of each node reached so far are the nodes that short random walks from it visit most often.

    From each destination v start ``num_walks`` walks. A step follows a uniformly drawn in-edge of the walk's current node. After each step the walk
    ends with probability ``restart``; it also ends after ``walk_length`` steps or at a node without in-edges. Visits are counted at
    every step, except those to v itself, since a layer uses v anyway. The ``num_neighbors`` most visited nodes become v's neighbours;
    ties go to the smaller id. The expected counts are proportional to v's personalised PageRank, truncated at ``walk_length``.

    The weight of an edge is v's in-degree times the neighbour's share of the counted visits: a layer that takes the mean (arch sage) then computes
    PinSAGE's importance pooling, the mean weighted by visits. That does not estimate a sum over the in-edges, so full-neighbour evaluation,
    which takes plain means over all in-edges, computes another function. A neighbour need not be adjacent to v: ``edge_ids`` are -1.

    Attributes:
        stride: in-edges that a step follows, of which the last one leads to the visited node: 1 here, more in ``HeteroPinSAGESampler``.
        by_degree: whether weights are multiplied by v's in-degree.

    Examples:
        >>> from hoptrain import PinSAGESampler, load_dataset
        >>> batch = PinSAGESampler([3], num_walks=20).sample(load_dataset("digits-knn").graph, [7], seed=1)
        >>> batch.node_ids, batch.blocks[0].weights  # node 7, the nodes that its walks visit most, and their shares times its degree
        (array([   7, 1135,  533, 1164], dtype=int32), array([3.0769231, 2.4615386, 2.4615386], dtype=float32))
    """

    stride = 1
    by_degree = True

    def __init__(self, num_neighbors: Sequence[int], num_walks: int = 50, walk_length: int = 4, restart: float = 0.5) -> None:
        """Check and keep the options.

        Args:
            num_neighbors: neighbours taken for each node, one number for each hop, from the seeds outward.
            num_walks: number of walks from each node.
            walk_length: maximum number of steps of a walk.
            restart: probability in [0, 1) that a walk ends after a step.

        Raises:
            InputError: there is no hop, or a number is out of range.
        """
        self.num_neighbors: tuple[int, ...] = as_counts("num_neighbors", num_neighbors)
        self.num_walks = num_walks
        self.walk_length = walk_length
        self.restart = restart
        if not 0 < len(self.num_neighbors) < MAX_HOP or min(self.num_neighbors) < 1:
            raise InputError(f"num_neighbors is {list(num_neighbors)}: give one number for each hop, at least 1, for instance [10, 5]")
        if num_walks < 1 or walk_length < 1 or num_walks * walk_length >= _MOST_VISITS:
            raise InputError(
                f"num_walks is {num_walks} and walk_length {walk_length}: both must be at least 1, and their product below {_MOST_VISITS}; "
                "give for instance 50 and 4"
            )
        if not 0 <= restart < 1:
            raise InputError(f"restart is {restart}: it must be a probability in [0, 1); give for instance 0.5")

    @property
    def num_hops(self) -> int:
        """Number of hops, one for each entry of ``num_neighbors``."""
        return len(self.num_neighbors)

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` for a heterogeneous data set, or one with edge features: the sampled pairs need not be edges."""
        super().check_data(data)
        if isinstance(data, Dataset) and data.edge_attr is not None:
            raise no_edges(type(self).__name__)

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        frontier = Frontier.of_seeds(graph, seeds, workspace)
        num_seeds = frontier.num_nodes
        blocks = [self._sample_hop(graph, frontier, address.at_hop(hop), hop) for hop in range(self.num_hops)]
        return batch_from_hops(frontier.nodes(), blocks, num_seeds)

    def _sample_hop(self, graph: Graph, frontier: Frontier, address: HopAddress, hop: int) -> Block:
        last, array = frontier.num_nodes, frontier.workspace.array
        most = min(self.num_neighbors[hop], self.num_walks * self.walk_length)
        indptr = array(f"indptr{hop}", last + 1, id_dtype(last * most + 1))
        sources, weights = array(f"indices{hop}", last * most, graph.indices.dtype), array(f"weights{hop}", last * most, np.float32)
        indptr[0] = 0
        walks = kernels.Walks(self.num_walks, self.walk_length, np.uint64(self.restart * 2**32), most, self.stride, self.by_degree)
        edges = indptr, sources, weights
        num_edges = kernels.sample_hop(
            graph.indptr, graph.indices, frontier.nodes(), last, walks, address, self._scratch(frontier.workspace), edges, 0
        )
        edge_ids = array(f"edge_ids{hop}", num_edges, id_dtype(graph.num_edges))
        edge_ids[:] = -1
        frontier.relabel(sources[:num_edges])
        return Block(indptr=indptr, indices=sources[:num_edges], edge_ids=edge_ids, num_src=frontier.num_nodes, weights=weights[:num_edges])

    def _scratch(self, workspace: Workspace) -> kernels.PinSAGEScratch:
        chunk, visits = max(1, _CHUNK_WALKS // self.num_walks), self.num_walks * self.walk_length
        num_words, num_lanes = (visits * self.stride + 3) // 4 * chunk, chunk * self.num_walks
        return kernels.PinSAGEScratch(
            words=workspace.array("words", 4 * num_words, np.uint32).reshape(4, num_words),
            lanes=workspace.array("lanes", 3 * num_lanes, np.int64).reshape(3, num_lanes),
            visits=workspace.array("visits", chunk * visits, np.int64).reshape(chunk, visits),
            num_visits=workspace.array("num_visits", chunk, np.int64),
        )
