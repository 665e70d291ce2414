"""What the layer-wise samplers share: t nodes are drawn for all destinations of a layer together, and the edges between them are kept.

With q the probability of a node in one of t independent draws, and c how often it was drawn, each of its edges into the layer stands for
c / (t q) edges; the mean of that is 1, so sums over in-edges are estimated without bias. q is a ratio of integers (the node's *key* and the
sum of all keys), so draws and weights do not depend on who adds the keys up, and in what order.

A destination is always a source too, the block's first ones, so that a model may use the node itself: exactly, with the weight 1. That gives
it no edge: edges *from* a destination are there only if it was drawn as well, and then with the same weight as any other's.
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
from hoptrain.samplers.batch.minibatch import Block, MiniBatch, batch_of_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace

NORMS = {"mean": MEAN_SQUARED, "gcn": GCN_SQUARED}
SCORE_BITS = 16
"""Scores multiply keys as integers of up to so many bits."""

KEY_BITS = 60
"""All keys together stay below 2**60 (and what rounding adds): a draw is 64 bits wide."""
_FILTER = 64
"""Bits of the filter for each node drawn: one in 64 of the other nodes passes."""
_NO_SCORES = np.zeros(0, np.uint32)
_LANE = np.zeros(1, np.int64)


class Distribution(NamedTuple):
    """A distribution on nodes."""

    candidates: Array
    """(m,) global ids."""
    prefix: Array
    """(m,) uint64, inclusive sums of their keys."""


class LayerWiseSampler(Sampler):
    """The common part: everything but the distribution.

    Threads of a workspace take whole batches; a single batch is made by one. ``extra`` of a mini-batch is empty unless a sampler says otherwise.

    Attributes:
        normalizes: whether the weights of a destination are scaled to add up to its degree.
        describes_draws: whether ``extra`` tells of the draws.
        key_kind: of the candidates' keys, see ``hoptrain.kernels.shared.layerwise``.
    """

    normalizes = False
    describes_draws = False
    key_kind = MEAN_SQUARED

    def __init__(self, layer_sizes: Sequence[int]) -> None:
        """State the number of draws of every layer, from the seeds outward.

        Raises:
            InputError: no layer, or a number of draws out of range.
        """
        self.layer_sizes: tuple[int, ...] = tuple(int(size) for size in layer_sizes)
        if not 0 < len(self.layer_sizes) < MAX_HOP:
            raise InputError(
                f"layer_sizes are {list(layer_sizes)}: give one number of draws for each layer, at least one, for instance [512, 512]"
            )
        for size in self.layer_sizes:
            if not 0 < size < MAX_DRAWS // 2:  # a draw takes two words
                raise InputError(f"layer size {size} in {list(layer_sizes)}: a layer makes 1 to {MAX_DRAWS // 2 - 1} draws; correct it")

    @property
    def num_hops(self) -> int:
        """One for each layer."""
        return len(self.layer_sizes)

    def distribution_of_graph(self, graph: Graph) -> Distribution | None:
        """The law, where it is the same for all layers."""
        return None

    def checked_scores(self, graph: Graph) -> Array | None:
        """(V,) uint32 that multiply the keys, or None for ones."""
        return None

    @abstractmethod
    def _distribution(self, graph: Graph, nodes: Array, workspace: Workspace) -> Distribution:
        """What a layer with the destinations ``nodes`` is drawn from; no candidate where they have no in-edge."""

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
        return batch_of_hops(frontier.nodes(), blocks, num_seeds, extra)

    def _draw(self, graph: Graph, nodes: Array, size: int, address: HopAddress, workspace: Workspace) -> tuple[kernels.Draws, np.uint64]:
        """``size`` draws, and the sum of all keys; none where the destinations have no in-edge."""
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
    """The kind of key for ``norm``.

    Raises:
        InputError: there is none.
    """
    if norm not in NORMS:
        raise InputError(f'norm is {norm!r}: an edge weighs 1 / degree ("mean") or as GCN normalises ("gcn"); choose one')
    return NORMS[norm]


def distribution_of(graph: Graph, nodes: Array, kind: int, workspace: Workspace, scores: Array | None = None) -> Distribution:
    """The law on the in-neighbours of ``nodes``: keys of a kind (``hoptrain.kernels.shared.layerwise``), times ``scores`` (V,) uint32, if any.

    The arrays are views of the workspace.
    """
    num_edges = total_degree(graph.indptr, nodes, len(nodes))
    room = min(num_edges, graph.num_nodes)
    bits = KEY_BITS - len(nodes).bit_length() - (0 if scores is None else SCORE_BITS)
    candidates = workspace.array("candidates", room + 1, graph.indices.dtype)  # relabelling writes one entry beyond the last
    sums = workspace.array("candidate_keys", room, np.uint64)
    workspace.table.start(graph.num_nodes, max(room, 1))
    neighbors = workspace.array("layer_neighbors", kernels.CHUNK, graph.indices.dtype)
    shares = workspace.array("layer_shares", kernels.CHUNK, np.uint64)
    table = workspace.table.view()
    found = kernels.sum_shares(
        graph.indptr, graph.indices, nodes, len(nodes), kind, np.uint64(1 << bits), table, neighbors, shares, candidates, sums
    )
    kernels.accumulate_keys(graph.indptr, candidates, found, kind, _NO_SCORES if scores is None else scores, sums)
    return Distribution(candidates[:found], sums[:found])


def _connect(graph: Graph, frontier: Frontier, draws: kernels.Draws, total: np.uint64, hop: int, normalize: bool) -> tuple[Block, Array]:
    """The block of the destinations, which are the nodes so far, and the draws, which become local ids behind them; and these ids' places in the block.

    The nodes are afterwards the block's sources. The law of the draws has used the table.
    """
    workspace, num_dst = frontier.workspace, frontier.num_nodes
    room = num_dst + len(draws.vertices)
    frontier.forget(num_dst)
    most = total_degree(graph.indptr, frontier.nodes(), num_dst)
    nodes = frontier.make_room(len(draws.vertices))
    known = kernels.Known(
        counts=workspace.array("draw_counts", room, np.int32),
        weights=workspace.array("draw_weights", room, np.float32),
        places=workspace.array("draw_places", room, graph.indices.dtype),
    )
    edges = kernels.Edges(
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
