"""FastGCN: layer-independent importance sampling (Chen, Ma, Xiao 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.buffers.once import OncePerGraph
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.layerwise.layers import Distribution, LayerWiseSampler, check_norm, distribution_of


class FastGCNSampler(LayerWiseSampler):
    """For every layer t independent draws among all nodes, whatever the layer above.

    "FastGCN: Fast Learning with Graph Convolutional Networks via Importance Sampling", ICLR 2018. The probability of a node u is proportional
    to the sum of A[v, u]**2 over all edges u -> v of the graph. Of a multi-edge every copy counts. The block has all edges from drawn
    nodes to the layer's destinations, which are all nodes reached so far; an edge stands for c / (t q(u)) edges if u was drawn c times,
    so estimates are unbiased. On a large sparse graph few drawn nodes have an edge into the layer; the others change nothing, and are left
    out of the mini-batch.

    A destination is a source as well, so that a model may use the node itself, exactly; its edges are there only if it was drawn. The paper's
    self loops are therefore left out of q.

    Examples:
        >>> from hoptrain import FastGCNSampler, load_dataset
        >>> batch = FastGCNSampler([64, 64]).sample(load_dataset("digits-knn").graph, range(32), seed=1)
        >>> [(block.num_dst, block.num_src, block.num_edges) for block in batch.blocks]  # at most 64 sources more a layer
        [(41, 50, 12), (32, 41, 10)]
    """

    def __init__(self, layer_sizes: Sequence[int], norm: str = "mean") -> None:
        """State the layers.

        Args:
            layer_sizes: draws t of every layer, from the seeds outward.
            norm: A[v, u] of an edge, from in-degrees d: 1 / d_v with "mean", 1 / sqrt((d_v + 1) (d_u + 1)) with "gcn".

        Raises:
            InputError: no layer, a number of draws out of range, an unknown norm.
        """
        super().__init__(layer_sizes)
        self.norm = norm
        self.key_kind: int = check_norm(norm)
        self._made = OncePerGraph[Distribution]()

    def prepare(self, graph: Graph, seeds: Array) -> Sampler:
        """With the law of the graph; see ``Sampler.prepare``."""
        self.distribution_of_graph(graph)
        return self

    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        return self.distribution_of_graph(graph)

    def distribution_of_graph(self, graph: Graph) -> Distribution:
        """Made once for a graph, as if all nodes were destinations; it travels to the workers with the sampler."""
        return self._made.get(graph, self._distribution_of_all)

    def _distribution_of_all(self, graph: Graph) -> Distribution:
        distribution = distribution_of(graph, np.arange(graph.num_nodes, dtype=graph.indices.dtype), self.key_kind, Workspace())
        return Distribution(*(array.copy() for array in distribution))
