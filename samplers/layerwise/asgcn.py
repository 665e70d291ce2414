"""AS-GCN: adaptive layer-wise sampling (Huang, Zhang, Rong, Huang 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.shared.layerwise import MEAN
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.layerwise.layers import SCORE_BITS, Distribution, LayerWiseSampler, compute_distribution


class ASGCNSampler(LayerWiseSampler):
    """A layer-wise sampler with t independent draws for every layer among the in-neighbours of its destinations, by scores that may be learned.

    "Adaptive Sampling Towards Fast Graph Representation Learning", NeurIPS 2018. The probability q(u) of a node u is proportional to g(u) times the
    sum of p(u | v) over the edges u -> v into the layer's destinations v, with p(u | v) = 1 / degree of v. Parallel edges count
    separately. The block has all edges from drawn nodes to destinations. The weight of an edge is c / (t q(u)) if u was drawn c times, so
    estimates are unbiased, whatever the scores.

    The trainer sets the scores g between epochs by ``set_scores``, for instance to max(0, x_u . w + b) with learned w and b. For a variance term in
    the loss, ``extra`` of a mini-batch holds for each block i: ``draws{i}`` (num_src,) int32, how often each source was drawn, and
    ``probabilities{i}`` (num_src,) float32, its q. Both are 0 for a destination that was not drawn. Since draws are independent, the mean of
    any function over them is an unbiased estimate of its mean under q, as the gradient of log q needs it.

    A destination is also a source, with weight 1, so that a model may use its features exactly. Edges from it are present only if it was drawn.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import ASGCNSampler, load_dataset
        >>> graph = load_dataset("digits-knn").graph
        >>> sampler = ASGCNSampler([16])
        >>> sampler.set_scores(np.arange(graph.num_nodes))
        >>> batch = sampler.sample(graph, range(32), seed=1)
        >>> int(batch.extra["draws0"].sum()), len(batch.node_ids)  # 16 draws; the 32 seeds and the drawn nodes
        (16, 48)
    """

    describes_draws = True
    key_kind = MEAN

    def __init__(self, layer_sizes: Sequence[int]) -> None:
        """Check and keep the layer sizes, and set all scores to 1.

        Args:
            layer_sizes: number of draws t for each layer, from the seeds outward.

        Raises:
            InputError: there is no layer, or a number of draws is out of range.
        """
        super().__init__(layer_sizes)
        self._scores: Array | None = None

    def set_scores(self, scores: Array | None) -> None:
        """Set the scores (V,) of the nodes for the following batches; None sets all scores to 1.

        Scores are rounded up to a multiple of the highest score / 2**16, and to at least one such unit, so that every node with an edge can be
        drawn: otherwise estimates would be biased. Sampler processes have a copy of the sampler. Call the loader's ``close()`` afterwards, so
        that they restart with the new scores.

        Raises:
            InputError: ``scores`` is not a vector of finite, non-negative numbers.
        """
        self._scores = None if scores is None else _as_integers(np.asarray(scores))

    def checked_scores(self, graph: Graph) -> Array | None:
        """Return the scores as integers, checked to have one for each node of ``graph``; None if all are 1.

        Raises:
            InputError: the number of scores is not the graph's number of nodes.
        """
        if self._scores is not None and len(self._scores) != graph.num_nodes:
            raise InputError(
                f"{len(self._scores)} scores for a graph of {graph.num_nodes} nodes: set_scores takes one for each; give {graph.num_nodes}"
            )
        return self._scores

    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        return compute_distribution(graph, nodes, MEAN, workspace, self.checked_scores(graph))


def _as_integers(scores: Array) -> Array:
    """Return scores (V,) as uint32 in [1, 2**16], in units of the highest score / 2**16."""
    if scores.ndim != 1 or scores.dtype.kind not in "fiu" or not (np.isfinite(scores) & (scores >= 0)).all():
        raise InputError(
            f"scores are {scores.dtype} of shape {scores.shape}: give a vector of finite, non-negative numbers, one for each node"
        )
    highest = scores.max(initial=0)
    if highest == 0:
        return np.ones(len(scores), np.uint32)
    units = np.ceil(scores.astype(np.float64) / float(highest) * (1 << SCORE_BITS))
    return np.maximum(units, 1).astype(np.uint32)
