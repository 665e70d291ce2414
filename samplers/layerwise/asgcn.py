"""AS-GCN: adaptive layer-wise sampling (Huang, Zhang, Rong, Huang 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.shared.layerwise import MEAN
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.layerwise.layers import SCORE_BITS, Distribution, LayerWiseSampler, distribution_of


class ASGCNSampler(LayerWiseSampler):
    """For every layer t independent draws among the in-neighbours of its destinations, by a score of each node that may be learnt.

    "Adaptive Sampling Towards Fast Graph Representation Learning", NeurIPS 2018. The probability of a node u is proportional to g(u) times the
    sum of p(u | v) over the edges u -> v into the layer's destinations v, with p(u | v) = 1 / degree of v. Of a multi-edge every copy
    counts. The block has all edges from drawn nodes to destinations; an edge stands for c / (t q(u)) edges if u was drawn c times, so
    estimates are unbiased, whatever the scores.

    The scores g are the trainer's: ``set_scores``, between epochs, for instance max(0, x_u . w + b) with w and b learnt. For a variance term in
    the loss a mini-batch tells of each block i in ``extra``: ``draws{i}`` (num_src,) int32, how often a source was drawn, and
    ``probabilities{i}`` (num_src,) float32, its q; both are 0 for a destination that was not drawn. Since draws are independent, the mean of
    any function over them estimates its mean under q, which the gradient of log q needs.

    A destination is a source as well, so that a model may use the node itself, exactly; its edges are there only if it was drawn.

    Examples:
        >>> import numpy as np
        >>> from hoptrain import ASGCNSampler, load_dataset
        >>> graph = load_dataset("digits-knn").graph
        >>> sampler = ASGCNSampler([16])
        >>> sampler.set_scores(np.arange(graph.num_nodes))
        >>> batch = sampler.sample(graph, range(32), seed=1)
        >>> int(batch.extra["draws0"].sum()), len(batch.node_ids)  # 16 draws; the 32 seeds and the nodes that were drawn
        (16, 48)
    """

    describes_draws = True
    key_kind = MEAN

    def __init__(self, layer_sizes: Sequence[int]) -> None:
        """State the layers; all scores are 1.

        Args:
            layer_sizes: draws t of every layer, from the seeds outward.

        Raises:
            InputError: no layer, or a number of draws out of range.
        """
        super().__init__(layer_sizes)
        self._scores: Array | None = None

    def set_scores(self, scores: Array | None) -> None:
        """Sample by these scores (V,) from now on; None for ones.

        They are rounded up to a multiple of the highest over 2**16, and above 0, so that no node with an edge is out of reach: that would bias
        estimates. Sampler processes have a copy of the sampler: call the loader's ``close()`` after it, and they start with the new scores.

        Raises:
            InputError: not a vector of finite numbers, none of them negative.
        """
        self._scores = None if scores is None else _as_integers(np.asarray(scores))

    def checked_scores(self, graph: Graph) -> Array | None:
        """The scores as integers; None for ones.

        Raises:
            InputError: they are of another graph.
        """
        if self._scores is not None and len(self._scores) != graph.num_nodes:
            raise InputError(
                f"{len(self._scores)} scores for a graph of {graph.num_nodes} nodes: set_scores takes one for each; give that many"
            )
        return self._scores

    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        return distribution_of(graph, nodes, MEAN, workspace, self.checked_scores(graph))


def _as_integers(scores: Array) -> Array:
    """(V,) uint32 in [1, 2**16]."""
    if scores.ndim != 1 or scores.dtype.kind not in "fiu" or not (np.isfinite(scores) & (scores >= 0)).all():
        raise InputError(
            f"scores are {scores.dtype} of shape {scores.shape}: give a vector of finite numbers, none negative, one for each node"
        )
    highest = scores.max(initial=0)
    if highest == 0:
        return np.ones(len(scores), np.uint32)
    units = np.ceil(scores.astype(np.float64) / float(highest) * (1 << SCORE_BITS))
    return np.maximum(units, 1).astype(np.uint32)
