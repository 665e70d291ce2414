"""Weighted draws of seeds, for example to balance classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hoptrain.engine import Address, Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.features.quantized import Rows
from hoptrain.kernels.cpu.seeds.weighted import draw_seeds
from hoptrain.samplers.base import Sampler
from hoptrain.samplers.batch.minibatch import MiniBatch
from hoptrain.samplers.buffers.workspace import Workspace

_SCALE = float(1 << 31)
"""Factor that scales weights to integers: the largest weight of the split becomes this integer."""


class WeightedSeedSampler(Sampler[Any, Any]):
    """A sampler that draws the seeds of an epoch by weight, with replacement; another sampler samples their neighbourhoods.

    It corresponds to PyG's ``ImbalancedSampler`` and torch's ``WeightedRandomSampler``. For a split of N nodes an epoch has N draws, each of which is
    node v with probability weight_v / (sum of the weights). Draw i of an epoch depends on (seed, epoch, i) only, not on its batch. The B
    distinct nodes among the m draws of a batch are its seeds, in order of their first draw. A seed that was drawn k times has the weight B k / m
    (``seed_weights``), so that the weighted sum of the losses divided by B is the mean over the draws.

    On CUDA the host draws the seeds, and the device samples their neighbourhoods.
    """

    by_seeds = False

    def __init__(self, sampler: Sampler[Any, Any], weights: Array) -> None:
        """Check and keep the options.

        Args:
            sampler: sampler of the blocks of the drawn seeds; its items must be seeds.
            weights: (V,) weights of the nodes of the seeds' type, finite and not negative.

        Raises:
            InputError: the weights are not a vector of finite, non-negative numbers, or the sampler chooses its seeds itself.
        """
        if not sampler.by_seeds:
            raise InputError(
                f"sampler is {type(sampler).__name__}, which chooses its seeds itself: WeightedSeedSampler draws them; use a node-wise sampler"
            )
        weights = np.asarray(as_array(weights), np.float64)
        if weights.ndim != 1:
            raise InputError(f"weights has shape {weights.shape}: it must have one weight for each node; give a vector")
        bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if len(bad):
            raise InputError(f"weight {weights[bad[0]]} of node {bad[0]}: weights must be finite and not negative; give 0 or more")
        self.sampler: Sampler[Any, Any] = sampler
        self.weights: Array = weights
        self.distinct_nodes: bool = sampler.distinct_nodes
        self.repeats_edges: bool = sampler.repeats_edges
        self.feedback: tuple[str, ...] = sampler.feedback
        self._seeds = self._ends = np.zeros(0, np.int64)

    def __repr__(self) -> str:
        return f"WeightedSeedSampler({self.sampler!r})"

    @property
    def num_hops(self) -> int:
        """Number of hops of the wrapped sampler."""
        return self.sampler.num_hops

    @property
    def seed_type(self) -> str | None:
        """Node type of the seeds in a heterogeneous graph, as in the wrapped sampler."""
        return getattr(self.sampler, "seed_type", None)

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """Raise ``InputError`` if the wrapped sampler cannot sample the data set, or there is not one weight for each node."""
        self.sampler.check_data(data)
        if len(self.weights) != data.num_seed_nodes:
            raise InputError(f"{len(self.weights):,} weights for {data.num_seed_nodes:,} nodes of {data.name}: give one for each")

    def prepare(self, graph: Any, seeds: Array) -> WeightedSeedSampler:
        """Return a copy for a split, with the wrapped sampler prepared.

        Raises:
            InputError: all nodes of the split have weight 0.
        """
        own = self.weights[seeds]
        if not own.max(initial=0):
            raise InputError(f"all {len(seeds):,} seeds have weight 0: none can be drawn; give some of them a weight above 0")
        made = WeightedSeedSampler(self.sampler.prepare(graph, seeds), self.weights)
        shares = np.where(own > 0, np.maximum(own / own.max() * _SCALE, 1), 0).astype(np.uint64)
        made._seeds, made._ends = seeds, np.cumsum(shares)
        return made

    def graph_of(self, graph: Any) -> Any:
        """Return the graph that ``node_ids`` of the wrapped sampler's batches refer to."""
        return self.sampler.graph_of(graph)

    def stores_of(self, data: Dataset | HeteroDataset) -> dict[str, Rows]:
        """Return the tables that the wrapped sampler's batches take rows from."""
        return self.sampler.stores_of(data)

    def items(self, graph: Any, seeds: Array) -> Array:
        """Return the indices of an epoch's draws, 0 to N - 1 for the N nodes of the split."""
        return np.arange(len(seeds))

    def state(self) -> dict[str, Array]:
        """Return the state of the wrapped sampler, for a checkpoint."""
        return self.sampler.state()

    def load_state(self, state: dict[str, Array]) -> None:
        """Restore the state of the wrapped sampler."""
        self.sampler.load_state(state)

    def sample_on_cpu(self, graph: Any, seeds: Array, address: Address, workspace: Workspace) -> Any:
        """Sample one mini-batch for the draws with indices ``seeds`` (m,); see ``Sampler.sample_on_cpu``."""
        chosen, weights = self.draw(graph, seeds, address)
        return with_seed_weights(self.sampler.sample(graph, chosen, **address._asdict(), workspace=workspace), weights)

    def draw(self, graph: Any, draws: Array, address: Address) -> tuple[Array, Array]:
        """Return the distinct seeds (B,) that draws (m,) give, and the seeds' weights (B,) float32.

        Raises:
            InputError: ``prepare`` was not called, there are no draws, or the index of a draw is negative.
        """
        if not len(self._ends):
            raise InputError(
                "WeightedSeedSampler without a split: it draws the nodes of one; call prepare(graph, seeds), or use SampleLoader"
            )
        if len(draws) == 0 or draws.min() < 0:
            raise InputError(f"draws are {draws}: a batch has one or more draws, numbered from 0; give for instance range(64)")
        places = np.empty(len(draws), np.int64)
        draw_seeds(self._ends, np.ascontiguousarray(draws), np.uint64(address.seed), np.uint64(address.epoch), places)
        chosen, first, times = np.unique(places, return_index=True, return_counts=True)
        order = np.argsort(first)
        return self._seeds[chosen[order]], (times[order] * (len(chosen) / len(draws))).astype(np.float32)


def with_seed_weights(batch: Any, weights: Any) -> Any:
    """Return a batch with the weights (B,) of its seeds: in ``seed_weights``, or in ``extra`` of a ``HeteroMiniBatch``."""
    if isinstance(batch, MiniBatch):
        return replace(batch, seed_weights=weights)
    return replace(batch, extra=batch.extra | {"seed_weights": weights})


def class_shares(y: Array, seeds: Array) -> Array:
    """Return weights (V,) with which a draw has the same probability for each class among ``seeds`` (N,).

    Each of the n seeds of a class in ``y`` (V,) gets 1 / n, any other node 0.
    """
    counts, weights = np.bincount(y[seeds], minlength=1), np.zeros(len(y))
    weights[seeds] = 1 / counts[y[seeds]]
    return weights
