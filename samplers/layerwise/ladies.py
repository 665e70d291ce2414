"""LADIES: layer-dependent importance sampling (Zou, Hu, Wang, Jiang, Sun, Gu 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.layerwise.layers import Distribution, LayerWiseSampler, check_norm, distribution_of


class LadiesSampler(LayerWiseSampler):
    """For every layer t independent draws among the in-neighbours of its destinations, which are all nodes reached so far.

    "Layer-Dependent Importance Sampling for Training Deep and Large Graph Convolutional Networks", NeurIPS 2019. The probability of a node
    u is proportional to the sum of A[v, u]**2 over the edges u -> v into the layer's destinations v. Of a multi-edge every copy counts.
    The block has all edges from drawn nodes to destinations; an edge stands for c / (t q(u)) edges if u was drawn c times, so
    estimates are unbiased. (The paper draws without replacement and weighs as if it did not, which is biased.)

    A destination is a source as well, so that a model may use the node itself, exactly; its edges are there only if it was drawn. The paper's
    self loops are therefore left out of q. Destinations without any in-edge get no edge.

    Examples:
        >>> from hoptrain import LadiesSampler, load_dataset
        >>> batch = LadiesSampler([64, 64]).sample(load_dataset("digits-knn").graph, range(32), seed=1)
        >>> [(block.num_dst, block.num_src, block.num_edges) for block in batch.blocks]  # at most 64 sources more a layer
        [(83, 127, 141), (32, 83, 70)]
        >>> batch.blocks[-1].weights[:3]
        array([11.325829 ,  2.508142 ,  4.0772986], dtype=float32)
    """

    def __init__(self, layer_sizes: Sequence[int], norm: str = "mean", normalize: bool = False) -> None:
        """State the layers.

        Args:
            layer_sizes: draws t of every layer, from the seeds outward.
            norm: A[v, u] of an edge, from in-degrees d: 1 / d_v with "mean", 1 / sqrt((d_v + 1) (d_u + 1)) with "gcn".
            normalize: scale the weights of a destination's edges to add up to its degree, the paper's row normalisation: less variance,
                and a bias that falls with t. A destination without a sampled edge stays without.

        Raises:
            InputError: no layer, a number of draws out of range, an unknown norm.
        """
        super().__init__(layer_sizes)
        self.norm = norm
        self.normalize: bool = normalize
        self.normalizes: bool = normalize
        self.key_kind: int = check_norm(norm)

    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        return distribution_of(graph, nodes, self.key_kind, workspace)
