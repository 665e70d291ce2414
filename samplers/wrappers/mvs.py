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
"""Factor that scales norms to integers: the largest gradient norm of a batch becomes this integer."""


class MVSSampler(Sampler):
    """A sampler that draws the seeds of a mini-batch from a larger batch by the norms of their gradients; another sampler samples their neighbourhoods.

    The loader yields large batches: its ``batch_size`` is n, and an epoch has one step for each large batch. From the n nodes
    of a large batch, m = ``num_draws`` are drawn independently, node i with probability

        p_i = (1 - uniform_mix) norm_i / (sum of the norms) + uniform_mix / n,

    so that every node can be drawn. The b distinct nodes among the draws are the seeds, in order of their first draw; a seed that was
    drawn k times has the weight b k / (m n p_i). The weighted sum of the losses divided by b is an unbiased estimate of the mean loss over
    the large batch, and likewise for the gradients. The variance is least if the norms are the true gradient norms.

    All norms are 1 at first. The trainer sets them between two epochs by ``update``, as ``NodeClassifier`` does. Workers see them through
    shared memory, and checkpoints have them (``state``). With the same norms batches are the same. On CUDA the host, which has the norms,
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
        """Check and keep the options.

        Args:
            sampler: sampler of the blocks of the drawn seeds; its items must be seeds.
            num_draws: number of draws from each large batch.
            uniform_mix: share of uniform draws, in (0, 1].

        Raises:
            InputError: a number is out of range, or the sampler chooses its seeds itself.
        """
        if num_draws < 1:
            raise InputError(f"num_draws is {num_draws}: a mini-batch has at least one seed; give 1 or more")
        if not 0 < uniform_mix <= 1:
            raise InputError(
                f"uniform_mix is {uniform_mix}: it must be a share in (0, 1], above 0 since norms become outdated; give for instance 0.1"
            )
        if not sampler.by_seeds:
            raise InputError(
                f"sampler is {type(sampler).__name__}, which chooses its seeds itself: MVSSampler draws them; use a node-wise sampler"
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
        """Raise ``InputError`` if the wrapped sampler cannot sample the data set."""
        self.sampler.check_data(data)

    @property
    def num_hops(self) -> int:
        """Number of hops of the wrapped sampler."""
        return self.sampler.num_hops

    @property
    def norms(self) -> Array:
        """(V,) float64 norms of all nodes, read-only.

        Raises:
            InputError: ``prepare`` was not called.
        """
        if self._norms is None:
            raise InputError(
                "norms do not exist before prepare: prepare(graph, seeds) allocates them; call prepare, or create a SampleLoader"
            )
        view = self._norms[: self._num_graph_nodes]
        view.flags.writeable = False
        return view

    def prepare(self, graph: Graph, seeds: Array) -> MVSSampler:
        """Return this sampler with the wrapped sampler prepared. All norms are 1, unless it already has norms for this number of nodes."""
        self.sampler = self.sampler.prepare(graph, seeds)
        if self._norms is None or self._num_graph_nodes != graph.num_nodes:
            self._norms, self._num_graph_nodes = _mapped(graph.num_nodes), graph.num_nodes
        return self

    def update(self, vertices: Array, norms: Array) -> None:
        """Set the norms of the nodes ``vertices`` (N,) to ``norms`` (N,), for epochs that begin afterwards.

        Raises:
            InputError: ``prepare`` was not called, the lengths differ, a node does not exist, or a norm is negative or not finite.
        """
        vertices, norms = np.asarray(vertices), np.asarray(norms, np.float64)
        size = len(self.norms)
        if self._norms is None or vertices.shape != norms.shape:
            raise InputError(f"{vertices.shape} nodes and {norms.shape} norms: each node has one norm; give arrays of equal length")
        if len(vertices) and not 0 <= vertices.min() <= vertices.max() < size:
            raise InputError(
                f"node ids are from {vertices.min()} to {vertices.max()}: those of the graph are 0 to {size - 1}; leave the others out"
            )
        if not (np.isfinite(norms) & (norms >= 0)).all():
            raise InputError(
                f"a norm is {norms[~(np.isfinite(norms) & (norms >= 0))][0]}: norms must be finite and not negative; give 0 or more"
            )
        self._norms[vertices] = norms

    def state(self) -> dict[str, Array]:
        """Return the norms and the state of the wrapped sampler, for a checkpoint."""
        return self.sampler.state() | ({} if self._norms is None else {"norms": self.norms})

    def load_state(self, state: dict[str, Array]) -> None:
        """Restore the norms and the state of the wrapped sampler."""
        self.sampler.load_state(state)
        if "norms" in state:
            self.update(np.arange(len(state["norms"])), state["norms"])

    def sample_on_cpu(self, graph: Graph, seeds: Array, address: Address, workspace: Workspace) -> MiniBatch:
        """Sample one mini-batch from the large batch ``seeds``; see ``Sampler.sample_on_cpu``."""
        chosen, weights = self.draw(graph, seeds, address)
        inner = self.sampler.sample(graph, chosen, **address._asdict(), workspace=workspace)
        return replace(inner, seed_weights=weights)

    def draw(self, graph: Graph, seeds: Array, address: Address) -> tuple[Array, Array]:
        """Return the seeds (b,) drawn from the large batch ``seeds``, and their weights (b,) float32."""
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
    """Return the norms (n,) converted to uint64 weights, the probabilities (n,) of the draws, and ``uniform_mix`` in units of 2**-32."""
    largest = norms.max()
    shares = np.full(len(norms), 1, np.uint64) if largest == 0 else (norms / largest * _SCALE).astype(np.uint64)
    even = np.uint64(max(1, int(uniform_mix * 2**32)))
    part = float(even) / 2**32
    return shares, (1 - part) * shares / float(shares.sum()) + part / len(norms), even


def _mapped(num_graph_nodes: int) -> Array:
    """Return norms of 1 in shared memory, in an array so large that workers map it instead of copying it."""
    norms = shared_array("hoptrain-norms", (max(num_graph_nodes, SHARE_FROM_BYTES // 8),), np.float64)
    norms[:] = 1.0
    return norms
