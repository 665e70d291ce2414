"""VR-GCN's sampler (Chen, Zhu, Song, "Stochastic Training of Graph Convolutional Networks with Variance Reduction", ICML 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.columns import copy_columns, total_degree
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.nodewise.neighbor import NeighborSampler


class VRGCNSampler(Sampler):
    """A neighbour sampler with small fanouts that also returns all in-neighbours of the destinations, for variance reduction by past activations.

    Let h be the activations, H their history and A the sum over in-edges. A layer computes the control variate S (h - H) + A H instead of A h,
    where S is the sum over the sampled edges, each weighted by degree / number of sampled edges. It is unbiased for any H and has no variance if
    H = h. Only A H needs all in-neighbours, and of these only rows of H, no further hops.

    The blocks are those of ``NeighborSampler(fanouts)``: uniform, without replacement. ``extra`` holds the in-edges of all D destinations of the
    outermost block; the destinations of the other blocks are the first of these:

    * ``history_indptr`` (D+1,) int64 offsets,
    * ``history_indices`` (M,) global ids of the in-neighbours, which are rows of the history.

    ``NodeClassifier`` keeps H and computes the estimate (``hoptrain.trainers.feedback.variance_reduction``).

    Examples:
        >>> from hoptrain import VRGCNSampler, load_dataset
        >>> batch = VRGCNSampler([2, 2]).sample(load_dataset("digits-knn").graph, [7, 8], seed=1)
        >>> batch.num_edges, batch.extra["history_indices"].shape  # few sampled edges, all in-edges for the history
        (16, (57,))
    """

    feedback: tuple[str, ...] = ("history",)

    def __init__(self, fanouts: Sequence[int | float] = (2, 2)) -> None:
        """Check and keep the fanouts.

        Args:
            fanouts: in-edges taken for each node, one number for each hop, from the seeds outward; the paper takes 2.

        Raises:
            InputError: there is no hop, or a fanout is neither positive nor -1 nor a share.
        """
        self.neighbors: NeighborSampler = NeighborSampler(fanouts)

    def __repr__(self) -> str:
        return f"VRGCNSampler(fanouts={list(self.neighbors.fanouts)})"

    @property
    def num_hops(self) -> int:
        """Number of hops, one for each fanout."""
        return self.neighbors.num_hops

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        sampled = self.neighbors.sample(graph, seeds, **address._asdict(), workspace=workspace)
        nodes, num = sampled.node_ids, sampled.blocks[0].num_dst
        indptr = workspace.array("history_indptr", num + 1, np.int64)
        indices = workspace.array("history_indices", total_degree(graph.indptr, nodes, num), id_dtype(graph.num_nodes))
        copy_columns(graph.indptr, graph.indices, nodes, num, indptr, indices)
        return replace(sampled, extra={"history_indptr": indptr, "history_indices": indices})
