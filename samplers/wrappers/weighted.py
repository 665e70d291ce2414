"""Seeds drawn by weight, so that rare classes come as often as others."""

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
"""The largest weight as an integer."""


class WeightedSeedSampler(Sampler[Any, Any]):
    """Draws an epoch's seeds by weight, with replacement; another sampler then samples their neighbourhoods.

    As PyG's ``ImbalancedSampler`` and torch's ``WeightedRandomSampler``: of a split of N nodes an epoch deals out N draws, each of which is node v with
    probability weight_v / (sum of the weights). Draw i of an epoch is a function of (seed, epoch, i), whatever batch it comes into. The B distinct nodes
    among the m draws of a batch are its seeds, in order of their first draw; one that was drawn k times has the weight B k / m
    (``seed_weights``), so that the weighted sum of the losses divided by B is the mean over the draws.

    On CUDA the host draws the seeds, and the device samples their neighbourhoods.
    """

    by_seeds = False

    def __init__(self, sampler: Sampler[Any, Any], weights: Array) -> None:
        """State the weights.

        Args:
            sampler: samples the blocks of the seeds that were drawn; one whose batches are asked for by their seeds.
            weights: (V,) of the nodes that may be seeds, finite and not negative.

        Raises:
            InputError: other weights, a sampler that deals out something else than seeds.
        """
        if not sampler.by_seeds:
            raise InputError(
                f"{type(sampler).__name__} under WeightedSeedSampler: its batches choose their seeds themselves; take a node-wise sampler"
            )
        weights = np.asarray(as_array(weights), np.float64)
        if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
            raise InputError(f"weights of shape {weights.shape}: they are one for each node, finite and not negative; correct them")
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
        """Those of the sampler within."""
        return self.sampler.num_hops

    @property
    def seed_type(self) -> str | None:
        """That of the sampler within, of heterogeneous graphs."""
        return getattr(self.sampler, "seed_type", None)

    def check_data(self, data: Dataset | HeteroDataset) -> None:
        """What the sampler within refuses; besides, weights of other nodes."""
        self.sampler.check_data(data)
        if len(self.weights) != data.num_seed_nodes:
            raise InputError(f"{len(self.weights):,} weights for {data.num_seed_nodes:,} nodes of {data.name}: give one for each")

    def prepare(self, graph: Any, seeds: Array) -> WeightedSeedSampler:
        """For a split.

        Raises:
            InputError: all of its nodes have weight 0.
        """
        own = self.weights[seeds]
        if not own.max(initial=0):
            raise InputError(f"all {len(seeds):,} seeds have weight 0: none can be drawn; give some of them more")
        made = WeightedSeedSampler(self.sampler.prepare(graph, seeds), self.weights)
        shares = np.where(own > 0, np.maximum(own / own.max() * _SCALE, 1), 0).astype(np.uint64)
        made._seeds, made._ends = seeds, np.cumsum(shares)
        return made

    def graph_of(self, graph: Any) -> Any:
        """That of the sampler within."""
        return self.sampler.graph_of(graph)

    def stores_of(self, data: Dataset | HeteroDataset) -> dict[str, Rows]:
        """Those of the sampler within."""
        return self.sampler.stores_of(data)

    def items(self, graph: Any, seeds: Array) -> Array:
        """The numbers of the draws, as many as there are seeds."""
        return np.arange(len(seeds))

    def state(self) -> dict[str, Array]:
        """What the sampler within has learnt."""
        return self.sampler.state()

    def load_state(self, state: dict[str, Array]) -> None:
        """Let the sampler within take it back."""
        self.sampler.load_state(state)

    def sample_on_cpu(self, graph: Any, seeds: Array, address: Address, workspace: Workspace) -> Any:
        """Sample one mini-batch for the draws ``seeds``; see ``Sampler.sample_on_cpu``."""
        chosen, weights = self.draw(graph, seeds, address)
        return with_seed_weights(self.sampler.sample(graph, chosen, **address._asdict(), workspace=workspace), weights)

    def draw(self, graph: Any, draws: Array, address: Address) -> tuple[Array, Array]:
        """The seeds of some draws (m,), and their weights, float32.

        Raises:
            InputError: ``prepare`` was not called, or there are no such draws.
        """
        if not len(self._ends):
            raise InputError("WeightedSeedSampler without a split: the loader, or prepare(graph, seeds), tells it; call that first")
        if len(draws) == 0 or draws.min() < 0:
            raise InputError(f"draws are {draws}: a batch has one or more of them, numbered from 0; correct them")
        places = np.empty(len(draws), np.int64)
        draw_seeds(self._ends, np.ascontiguousarray(draws), np.uint64(address.seed), np.uint64(address.epoch), places)
        chosen, first, times = np.unique(places, return_index=True, return_counts=True)
        order = np.argsort(first)
        return self._seeds[chosen[order]], (times[order] * (len(chosen) / len(draws))).astype(np.float32)


def with_seed_weights(batch: Any, weights: Any) -> Any:
    """The batch with (B,) weights of its seeds: those of a heterogeneous graph are among its ``extra`` arrays."""
    if isinstance(batch, MiniBatch):
        return replace(batch, seed_weights=weights)
    return replace(batch, extra=batch.extra | {"seed_weights": weights})


def class_shares(y: Array, seeds: Array) -> Array:
    """(V,) weights by which all classes among ``seeds`` (N,) are drawn alike: 1 / n for each of the n seeds of a class in ``y`` (V,), 0 for others."""
    counts, weights = np.bincount(y[seeds], minlength=1), np.zeros(len(y))
    weights[seeds] = 1 / counts[y[seeds]]
    return weights
