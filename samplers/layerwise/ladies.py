"""LADIES: layer-dependent importance sampling (Zou, Hu, Wang, Jiang, Sun, Gu 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.layerwise.layers import Distribution, LayerWiseSampler, check_norm, compute_distribution


class LadiesSampler(LayerWiseSampler):
    """A layer-wise sampler with t independent draws for every layer among the in-neighbours of its destinations, which are all nodes reached so far.

    "Layer-Dependent Importance Sampling for Training Deep and Large Graph Convolutional Networks", NeurIPS 2019. The probability q(u) of a node
    u is proportional to the sum of A[v, u]**2 over the edges u -> v into the layer's destinations v. Parallel edges count separately.
    The block has all edges from drawn nodes to destinations. The weight of an edge is c / (t q(u)) if u was drawn c times, so
    estimates are unbiased. (The paper draws without replacement but weights edges as if it drew with replacement, which is biased.)

    A destination is also a source, with weight 1, so that a model may use its features exactly. Edges from it are present only if it was drawn.
    The paper's self loops are therefore left out of q. Destinations without in-edges get no edge.

    Examples:
        >>> from hoptrain import LadiesSampler, load_dataset
        >>> batch = LadiesSampler([64, 64]).sample(load_dataset("digits-knn").graph, range(32), seed=1)
        >>> [(block.num_dst, block.num_src, block.num_edges) for block in batch.blocks]  # at most 64 more sources in each layer
        [(83, 127, 141), (32, 83, 70)]
        >>> batch.blocks[-1].weights[:3]
        array([11.325829 ,  2.508142 ,  4.0772986], dtype=float32)
    """

    def __init__(self, layer_sizes: Sequence[int], norm: str = "mean", normalize: bool = False) -> None:
        """Check and keep the options.

        Args:
            layer_sizes: number of draws t for each layer, from the seeds outward.
            norm: entry A[v, u] of an edge, with in-degrees d: 1 / d_v for "mean", 1 / sqrt((d_v + 1) (d_u + 1)) for "gcn".
            normalize: scale the weights of each destination's edges so that their sum is its degree, the paper's row normalisation. It lowers the
                variance and adds a bias that falls with t.

        Raises:
            InputError: there is no layer, a number of draws is out of range, or the norm is unknown.
        """
        super().__init__(layer_sizes)
        self.norm = norm
        self.normalize: bool = normalize
        self.normalizes: bool = normalize
        self.key_kind: int = check_norm(norm)

    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        return compute_distribution(graph, nodes, self.key_kind, workspace)
