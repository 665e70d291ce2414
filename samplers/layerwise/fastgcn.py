"""FastGCN: layer-independent importance sampling (Chen, Ma, Xiao 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.layerwise.layers import Distribution, LayerWiseSampler, check_norm, compute_distribution


class FastGCNSampler(LayerWiseSampler):
    """A layer-wise sampler with t independent draws for every layer among all nodes of the graph, from the same distribution for all layers.

    "FastGCN: Fast Learning with Graph Convolutional Networks via Importance Sampling", ICLR 2018. The probability q(u) of a node u is proportional
    to the sum of A[v, u]**2 over all edges u -> v of the graph. Parallel edges count separately. The block has all edges from drawn
    nodes to the layer's destinations, which are all nodes reached so far. The weight of an edge is c / (t q(u)) if u was drawn c times,
    so estimates are unbiased. On a large sparse graph few drawn nodes have an edge into the layer; the others have no effect and are left
    out of the mini-batch.

    A destination is also a source, with weight 1, so that a model may use its features exactly. Edges from it are present only if it was drawn.
    The paper's self loops are therefore left out of q.

    Examples:
        >>> from hoptrain import FastGCNSampler, load_dataset
        >>> batch = FastGCNSampler([64, 64]).sample(load_dataset("digits-knn").graph, range(32), seed=1)
        >>> [(block.num_dst, block.num_src, block.num_edges) for block in batch.blocks]  # at most 64 more sources in each layer
        [(41, 50, 12), (32, 41, 10)]
    """

    def __init__(self, layer_sizes: Sequence[int], norm: str = "mean") -> None:
        """Check and keep the options.

        Args:
            layer_sizes: number of draws t for each layer, from the seeds outward.
            norm: entry A[v, u] of an edge, with in-degrees d: 1 / d_v for "mean", 1 / sqrt((d_v + 1) (d_u + 1)) for "gcn".

        Raises:
            InputError: there is no layer, a number of draws is out of range, or the norm is unknown.
        """
        super().__init__(layer_sizes)
        self.norm = norm
        self.key_kind: int = check_norm(norm)
        self._made = OncePerGraph[Distribution]()

    def prepare(self, graph: Graph, seeds: Array) -> Sampler:
        """Return this sampler, after it has computed the distribution of the graph."""
        self.distribution_of_graph(graph)
        return self

    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        return self.distribution_of_graph(graph)

    def distribution_of_graph(self, graph: Graph) -> Distribution:
        """Return the distribution of all layers, which is computed once for a graph and pickled with the sampler for the workers."""
        return self._made.get(graph, self._distribution_of_all)

    def _distribution_of_all(self, graph: Graph) -> Distribution:
        distribution = compute_distribution(graph, np.arange(graph.num_nodes, dtype=graph.indices.dtype), self.key_kind, Workspace())
        return Distribution(*(array.copy() for array in distribution))
