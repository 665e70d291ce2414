"""Minimal variance sampling of seeds (Cong et al., "Minimal Variance Sampling with Provable Guarantees for Fast Training of GNNs", KDD 2020)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hoptrain.engine import Address, Dataset, Graph, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.queue.shared_memory import SHARE_FROM_BYTES, shared_array
from hoptrain.kernels.cpu.seeds.mvs import draw_seeds
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace
from hoptrain.samplers.checks import check_seeds

_SCALE = float(1 << 31)
"""The largest norm of a batch as an integer."""


class MVSSampler(Sampler):
    """Draws the seeds of a mini-batch from a larger batch by the norms of their gradients; another sampler then samples their neighbourhoods.

    The loader deals out large batches: its ``batch_size`` is n, and an epoch has as many steps as there are large batches. From the n nodes
    of one, ``num_draws`` = m are drawn independently, i with probability

        p_i = (1 - uniform) norm_i / (sum of the norms) + uniform / n,

    so that no seed that has a gradient is left out. The b distinct ones among them are the seeds, in order of their first draw; one that was
    drawn k times has the weight b k / (m n p_i). The weighted sum of the losses divided by b is an unbiased estimate of the mean loss over
    the large batch, and so are the gradients; their variance is least where norms are the true ones.

    Norms belong to the trainer: ``update`` sets them, all being 1 before, between two epochs, as ``NodeClassifier`` does. Workers see them
    through shared memory. With the same norms batches are the same; norms are not part of a checkpoint. On CUDA the host, which has the norms,
    draws the seeds, and the device samples their neighbourhoods.

    Examples:
        >>> from hoptrain import MVSSampler, NeighborSampler, SampleLoader, load_dataset
        >>> sampler = MVSSampler(NeighborSampler([3]), num_draws=64)
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), sampler, batch_size=512)))
        >>> batch.num_seeds, batch.seed_weights.shape
        (60, (60,))
    """

    by_seeds = False

    def __init__(self, sampler: Sampler, num_draws: int, uniform_mix: float = 0.1) -> None:
        """State the draws.

        Args:
            sampler: samples the blocks of the seeds that were drawn; one whose batches are asked for by their seeds.
            num_draws: m, seeds drawn from a large batch.
            uniform_mix: share of the draws that is uniform, in (0, 1].

        Raises:
            InputError: no draw, a share out of range, a sampler that deals out something else than seeds.
        """
        if num_draws < 1:
            raise InputError(f"num_draws is {num_draws}: a mini-batch has at least one seed; correct it")
        if not 0 < uniform_mix <= 1:
            raise InputError(f"uniform is {uniform_mix}: it is a share in (0, 1], above 0 since norms age; correct it")
        if not sampler.by_seeds:
            raise InputError(
                f"{type(sampler).__name__} under MVSSampler: its batches choose their seeds themselves; take a node-wise sampler"
            )
        self.sampler: Sampler[Graph, MiniBatch] = sampler
        self.distinct_nodes: bool = sampler.distinct_nodes
        self.repeats_edges: bool = sampler.repeats_edges
        self.feedback: tuple[str, ...] = ("gradient-norms", *sampler.feedback)
        self.num_draws = num_draws
        self.uniform_mix = uniform_mix
        self._norms: Array | None = None
        self._num_graph_nodes = 0

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """What the sampler within refuses."""
        self.sampler.check_data(data)

    @property
    def num_hops(self) -> int:
        """Those of the sampler within."""
        return self.sampler.num_hops

    @property
    def norms(self) -> Array:
        """(V,) float64 norms that are in use, read-only.

        Raises:
            InputError: there are none yet.
        """
        if self._norms is None:
            raise InputError("norms before the first batch: the loader, or prepare(graph, seeds), makes room for them")
        view = self._norms[: self._num_graph_nodes]
        view.flags.writeable = False
        return view

    def prepare(self, graph: Graph, seeds: Array) -> MVSSampler:
        """Make room for the norms, all 1; a sampler that was prepared for this many nodes stays as it is."""
        self.sampler = self.sampler.prepare(graph, seeds)
        if self._norms is None or self._num_graph_nodes != graph.num_nodes:
            self._norms, self._num_graph_nodes = _mapped(graph.num_nodes), graph.num_nodes
        return self

    def update(self, vertices: Array, norms: Array) -> None:
        """Set the norms of ``vertices`` (N,) to ``norms`` (N,): for the epochs that are begun afterwards.

        Raises:
            InputError: ``prepare`` was not called, lengths differ, a node that does not exist, a norm that is negative or not finite.
        """
        vertices, norms = np.asarray(vertices), np.asarray(norms, np.float64)
        size = len(self.norms)
        if self._norms is None or vertices.shape != norms.shape:
            raise InputError(f"{vertices.shape} nodes and {norms.shape} norms: a node has one; give arrays of equal length")
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < size:
            raise InputError(f"nodes run from {vertices.min()} to {vertices.max()}: those of the graph are 0 to {size - 1}; correct them")
        if not (np.isfinite(norms) & (norms >= 0)).all():
            raise InputError(f"a norm is {norms[~(np.isfinite(norms) & (norms >= 0))][0]}: norms are finite and not negative; correct it")
        self._norms[vertices] = norms

    def state(self) -> dict[str, Array]:
        """The norms that are in use, and what the sampler within has learnt."""
        return self.sampler.state() | ({} if self._norms is None else {"norms": self.norms})

    def load_state(self, state: dict[str, Array]) -> None:
        """Take them back."""
        self.sampler.load_state(state)
        if "norms" in state:
            self.update(np.arange(len(state["norms"])), state["norms"])

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch from the large batch ``seeds``; see ``Sampler.sample_on_cpu``."""
        chosen, weights = self.draw(graph, seeds, address)
        inner = self.sampler.sample(graph, chosen, **address._asdict(), workspace=workspace)
        return replace(inner, seed_weights=weights)

    def draw(self, graph: Graph, seeds: Array, address: Address) -> tuple[Array, Array]:
        """The seeds drawn from a large batch, and their weights, float32."""
        seeds = check_seeds(graph, seeds, distinct=True)
        norms = np.ones(len(seeds)) if self._norms is None else self._norms[seeds]
        shares, probabilities, even = _integers(norms, self.uniform_mix)
        drawn = np.empty(self.num_draws, np.int64)
        draw_seeds(np.cumsum(shares), even, *map(np.uint64, address), drawn)
        chosen, first, times = np.unique(drawn, return_index=True, return_counts=True)
        order = np.argsort(first)
        chosen, times = chosen[order], times[order]
        weights = len(chosen) * times / (self.num_draws * len(seeds) * probabilities[chosen])
        return seeds[chosen], weights.astype(np.float32)


def _integers(norms: Array, uniform_mix: float) -> tuple[Array, Array, np.uint64]:
    """Norms as integer shares (n,) uint64, the probabilities (n,) that they and ``uniform_mix`` give, and ``uniform_mix`` of 2**32."""
    largest = norms.max()
    shares = np.full(len(norms), 1, np.uint64) if largest == 0 else (norms / largest * _SCALE).astype(np.uint64)
    even = np.uint64(max(1, int(uniform_mix * 2**32)))
    part = float(even) / 2**32
    return shares, (1 - part) * shares / float(shares.sum()) + part / len(norms), even


def _mapped(num_graph_nodes: int) -> Array:
    """Ones that workers see, with room enough that they map them instead of taking a copy."""
    norms = shared_array("hoptrain-norms", (max(num_graph_nodes, SHARE_FROM_BYTES // 8),), np.float64)
    norms[:] = 1.0
    return norms
