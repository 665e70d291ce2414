"""GraphSAGE's neighbour sampling (Hamilton, Ying, Leskovec 2017), node-wise, uniform."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu import neighbor as kernels
from hoptrain.kernels.shared.philox import MAX_DRAWS, MAX_HOP
from hoptrain.samplers.base import Sampler, Workspace, check_address, check_seeds, seed_given_twice
from hoptrain.samplers.minibatch import Block, MiniBatch


class NeighborSampler(Sampler):
    """For every hop, up to ``fanout`` in-neighbours of every vertex reached so far, each draw uniform.

    Without replacement (the default) a vertex gives min(degree, fanout) distinct edges, every subset equally likely; with replacement it
    gives ``fanout`` edges if it has any. A vertex is resampled in every hop in which it is a destination, as in DGL. Edges, not neighbours,
    are drawn: of a multi-edge each copy counts.
    """

    def __init__(self, fanouts: Sequence[int], replace: bool = False) -> None:
        """State the hops.

        Args:
            fanouts: edges per vertex, one number a hop, from the seeds outward; -1 takes all neighbours.
            replace: draw with replacement.

        Raises:
            InputError: no hop, or a fanout that is neither positive nor -1.
        """
        self.fanouts = tuple(int(fanout) for fanout in fanouts)
        self.replace = replace
        if not 0 < len(self.fanouts) < MAX_HOP:
            raise InputError(f"fanouts are {list(fanouts)}: give one number for each hop, at least one, for instance [15, 10]")
        for fanout in self.fanouts:
            if not (fanout == -1 or 0 < fanout < MAX_DRAWS):
                raise InputError(
                    f"fanout {fanout} in {list(fanouts)}: a hop takes 1 to {MAX_DRAWS - 1} edges a vertex, or -1 for all; correct it"
                )

    def __repr__(self) -> str:
        return f"NeighborSampler(fanouts={list(self.fanouts)}, replace={self.replace})"

    @property
    def num_hops(self) -> int:
        """One for each fanout."""
        return len(self.fanouts)

    def sample(
        self, graph: Graph, seeds: Array, *, seed: int = 0, epoch: int = 0, batch: int = 0, workspace: Workspace | None = None
    ) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample``."""
        check_address(seed, epoch, batch)
        seeds = check_seeds(graph, seeds)
        workspace = workspace or Workspace()
        table = workspace.array("table", graph.num_nodes, np.uint32)
        num_nodes = _enter_seeds(graph, seeds, table, workspace)
        blocks = []
        for hop, fanout in enumerate(self.fanouts):
            key = np.array([seed, epoch, batch, hop], np.uint64)
            block = self._sample_hop(graph, num_nodes, fanout, key, table, workspace)
            num_nodes = block.num_src
            blocks.append(block)
        return MiniBatch(
            node_ids=workspace.array("nodes", num_nodes, graph.indices.dtype, keep=num_nodes),
            blocks=tuple(reversed(blocks)),
            num_seeds=len(seeds),
            seed=seed,
            epoch=epoch,
            batch=batch,
            num_step_seeds=len(seeds),
        )

    def _sample_hop(self, graph: Graph, num_dst: int, fanout: int, key: Array, table: Array, workspace: Workspace) -> Block:
        hop = int(key[3])
        most = graph.num_edges if fanout < 0 else num_dst * fanout
        nodes = workspace.array("nodes", num_dst, graph.indices.dtype, keep=num_dst)
        indptr = workspace.array(f"indptr{hop}", num_dst + 1, id_dtype(most + 1))
        num_edges = kernels.count_neighbors(graph.indptr, nodes, fanout, self.replace, indptr)
        edge_ids = workspace.array(f"edge_ids{hop}", num_edges, id_dtype(graph.num_edges))
        indices = workspace.array(f"indices{hop}", num_edges, graph.indices.dtype)
        kernels.draw_neighbors(graph.indptr, graph.indices, nodes, fanout, self.replace, key, indptr, edge_ids, indices)
        room = min(num_dst + num_edges, graph.num_nodes)
        nodes = workspace.array("nodes", room, graph.indices.dtype, keep=num_dst)
        num_src = kernels.relabel(indices, table, nodes, num_dst)
        return Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=num_src)


def _enter_seeds(graph: Graph, seeds: Array, table: Array, workspace: Workspace) -> int:
    """Give the seeds the first local ids; returns their number."""
    nodes = workspace.array("nodes", len(seeds), graph.indices.dtype)
    local = seeds.astype(graph.indices.dtype)
    num_nodes: int = kernels.relabel(local, table, nodes, 0)
    if num_nodes != len(seeds):
        raise seed_given_twice(seeds[np.flatnonzero(local != np.arange(len(seeds)))[0]])
    return num_nodes
