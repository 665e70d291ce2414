"""Base class of layer-wise samplers, which draw t nodes for all destinations of a layer together and keep the edges between them.

Let q be the probability of a node in one of t independent draws, and c how often it was drawn. The weight of each of its edges into the layer is
c / (t q). The mean of that weight is 1, so estimates of sums over in-edges are unbiased. q is a ratio of integers (the node's *key* and the
sum of all keys), so draws and weights do not depend on the order in which threads or devices sum the keys.

The destinations are always sources too, the first ones of the block, so that a model may use a destination's own features exactly, with weight 1.
That adds no edge: edges *from* a destination are present only if it was drawn, and then with the same weight as those from any other node.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.columns import total_degree
from hoptrain.kernels.cpu.layerwise import layers as kernels
from hoptrain.kernels.cpu.offsets import random_words
from hoptrain.kernels.shared.layerwise import GCN_SQUARED, MEAN_SQUARED
from hoptrain.kernels.shared.philox import MAX_DRAWS, MAX_HOP
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_from_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace

NORMS = {"mean": MEAN_SQUARED, "gcn": GCN_SQUARED}
SCORE_BITS = 16
"""Number of bits of a node's score, an integer that multiplies the node's key."""

KEY_BITS = 60
"""Maximum number of bits of the sum of all keys, apart from rounding. It must be below 64, since a draw is a 64-bit random number."""
_FILTER = 64
"""Number of bits of the filter per drawn node, so that about one in 64 nodes that were not drawn passes the filter."""
_NO_SCORES = np.zeros(0, np.uint32)
_LANE = np.zeros(1, np.int64)


class Distribution(NamedTuple):
    """A distribution on nodes, with probabilities proportional to integer keys."""

    candidates: Array
    """(m,) global ids of the candidates, the nodes that may be drawn."""
    prefix: Array
    """(m,) uint64, inclusive prefix sums of the candidates' keys."""


class LayerWiseSampler(Sampler):
    """A sampler that draws nodes for all destinations of a layer together. A subclass defines the distribution.

    Each thread of a workspace samples whole batches; a single batch uses one thread. ``extra`` of a mini-batch is empty unless the docstring of
    a subclass lists arrays.

    Attributes:
        normalizes: whether the weights of a destination's edges are scaled so that their sum is its degree.
        describes_draws: whether ``extra`` holds the draws and probabilities of each block.
        key_kind: kind of the candidates' keys, see ``hoptrain.kernels.shared.layerwise``.
    """

    normalizes = False
    describes_draws = False
    key_kind = MEAN_SQUARED

    def __init__(self, layer_sizes: Sequence[int]) -> None:
        """Check and keep the number of draws for each layer, from the seeds outward.

        Raises:
            InputError: there is no layer, or a number of draws is out of range.
        """
        self.layer_sizes: tuple[int, ...] = tuple(int(size) for size in layer_sizes)
        if not 0 < len(self.layer_sizes) < MAX_HOP:
            raise InputError(
                f"layer_sizes is {list(layer_sizes)}: give one number of draws for each layer, at least one, for instance [512, 512]"
            )
        for size in self.layer_sizes:
            if not 0 < size < MAX_DRAWS // 2:  # a draw takes two random words
                raise InputError(
                    f"layer size {size} in {list(layer_sizes)}: a layer makes 1 to {MAX_DRAWS // 2 - 1} draws; give for instance 512"
                )

    @property
    def num_hops(self) -> int:
        """Number of layers, one for each layer size."""
        return len(self.layer_sizes)

    def distribution_of_graph(self, graph: Graph) -> Distribution | None:
        """Return the distribution of all layers if they have the same one, else None."""
        return None

    def checked_scores(self, graph: Graph) -> Array | None:
        """Return the scores (V,) uint32 that multiply the keys, or None if all are 1."""
        return None

    @abstractmethod
    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        """Return the distribution of a layer with the destinations ``nodes``; it is empty if these have no in-edges."""

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch; see ``Sampler.sample_on_cpu``."""
        frontier = Frontier.of_seeds(graph, seeds, workspace)
        num_seeds = frontier.num_nodes
        blocks: list[Block] = []
        extra: dict[str, Array] = {}
        for hop, size in enumerate(self.layer_sizes):
            draws, total = self._draw(graph, frontier.nodes(), size, address.at_hop(hop), workspace)
            block, places = _connect(graph, frontier, draws, total, hop, self.normalizes)
            if self.describes_draws:
                extra |= _describe(draws, total, places, block.num_src, self.num_hops - 1 - hop, workspace)
            blocks.append(block)
        return batch_from_hops(frontier.nodes(), blocks, num_seeds, extra)

    def _draw(self, graph: Graph, nodes: Array, size: int, address: HopAddress, workspace: Workspace) -> tuple[kernels.Draws, np.uint64]:
        """Return ``size`` draws and the sum of the keys of all candidates; there are no draws if the destinations have no in-edges."""
        distribution = self._distribution(graph, nodes, workspace)
        count = size if len(distribution.candidates) else 0
        draws = kernels.Draws(workspace.array("drawn", count, graph.indices.dtype), workspace.array("drawn_keys", count, np.uint64))
        if not count:
            return draws, np.uint64(0)
        groups = (count + 1) // 2
        words = workspace.array("layer_words", 4 * groups, np.uint32).reshape(4, groups)
        random_words(_LANE, 1, groups, *address, words)
        kernels.draw(distribution.candidates, distribution.prefix, words, draws)
        return draws, distribution.prefix[-1]


def check_norm(norm: str) -> int:
    """Return the kernels' code for the option ``norm``, which defines the nodes' keys.

    Raises:
        InputError: ``norm`` is neither "mean" nor "gcn".
    """
    if norm not in NORMS:
        raise InputError(f'norm is {norm!r}: it must be "mean" (1 / degree) or "gcn" (GCN\'s normalisation); choose one')
    return NORMS[norm]


def compute_distribution(graph: Graph, nodes: Array, kind: int, workspace: Workspace, scores: Array | None = None) -> Distribution:
    """Return the distribution on the in-neighbours of ``nodes``, in arrays that are views of the workspace.

    Args:
        graph: graph to sample.
        nodes: (N,) global ids of the destinations.
        kind: kind of the keys (``hoptrain.kernels.shared.layerwise``).
        workspace: owner of the arrays.
        scores: (V,) uint32 that multiply the keys, or None.
    """
    num_edges = total_degree(graph.indptr, nodes, len(nodes))
    capacity = min(num_edges, graph.num_nodes)
    bits = KEY_BITS - len(nodes).bit_length() - (0 if scores is None else SCORE_BITS)
    # one element more, since relabelling writes one element past the last
    candidates = workspace.array("candidates", capacity + 1, graph.indices.dtype)
    sums = workspace.array("candidate_keys", capacity, np.uint64)
    workspace.table.start(graph.num_nodes, max(capacity, 1))
    neighbors = workspace.array("layer_neighbors", kernels.CHUNK, graph.indices.dtype)
    shares = workspace.array("layer_shares", kernels.CHUNK, np.uint64)
    table = workspace.table.view()
    found = kernels.sum_shares(
        graph.indptr, graph.indices, nodes, len(nodes), kind, np.uint64(1 << bits), table, neighbors, shares, candidates, sums
    )
    kernels.accumulate_keys(graph.indptr, candidates, found, kind, _NO_SCORES if scores is None else scores, sums)
    return Distribution(candidates[:found], sums[:found])


def _connect(graph: Graph, frontier: Frontier, draws: kernels.Draws, total: np.uint64, hop: int, normalize: bool) -> tuple[Block, Array]:
    """Return the block from the drawn nodes to all nodes so far, and the local id of each destination and distinct drawn node.

    A drawn node with an edge to a destination becomes a node of the batch; otherwise its local id is -1. The computation of the distribution has
    used the relabelling table, so the destinations are entered again.
    """
    workspace, num_dst = frontier.workspace, frontier.num_nodes
    capacity = num_dst + len(draws.vertices)
    frontier.forget(num_dst)
    most = total_degree(graph.indptr, frontier.nodes(), num_dst)
    nodes = frontier.reserve(len(draws.vertices))
    known = kernels.LayerNodes(
        counts=workspace.array("draw_counts", capacity, np.int32),
        weights=workspace.array("draw_weights", capacity, np.float32),
        places=workspace.array("draw_places", capacity, graph.indices.dtype),
    )
    edges = kernels.LayerEdges(
        indptr=workspace.array(f"indptr{hop}", num_dst + 1, id_dtype(most + 1)),
        edge_ids=workspace.array(f"edge_ids{hop}", most + 1, id_dtype(graph.num_edges)),
        indices=workspace.array(f"indices{hop}", most, graph.indices.dtype),
        weights=workspace.array(f"weights{hop}", most, np.float32),
    )
    filter_bits = max(10, (_FILTER * len(draws.vertices) - 1).bit_length())
    bits = workspace.array("drawn_bits", (1 << filter_bits) // 64, np.uint64)
    arrivals = workspace.array("arrivals", len(draws.vertices), graph.indices.dtype)
    table = frontier.table.view()
    kernels.enter_draws(draws, total, table, nodes, num_dst, known, bits, filter_bits)
    num_src, num_edges = kernels.connect(
        graph.indptr, graph.indices, nodes, num_dst, table, known, bits, filter_bits, arrivals, normalize, edges
    )
    frontier.num_nodes = num_src
    _, edge_ids, indices, weights = (array[:num_edges] for array in edges)
    return Block(indptr=edges.indptr, indices=indices, edge_ids=edge_ids, num_src=num_src, weights=weights), known.places


def _describe(draws: kernels.Draws, total: np.uint64, places: Array, num_src: int, block: int, workspace: Workspace) -> dict[str, Array]:
    counts = workspace.array(f"draws{block}", num_src, np.int32)
    probabilities = workspace.array(f"probabilities{block}", num_src, np.float32)
    kernels.describe_sources(draws, total, places, num_src, counts, probabilities)
    return {f"draws{block}": counts, f"probabilities{block}": probabilities}
