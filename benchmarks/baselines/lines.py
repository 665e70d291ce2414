"""The interface of training scripts with a library's loader. ``hoptrain bench compat`` runs each also with one import line changed to hoptrain."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hoptrain.benchmarks.baselines.loaders import touch
from hoptrain.engine.arrays import Array

_LINE_BYTES = 64


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Pair:
    """A script that runs with the loader of its original import line or with hoptrain's.

    Attributes:
        loaders: system -> function that opens its loader with a number of workers.
        features: returns the features (S, F) of a batch, one array for each node type.
        model: creates the model.
        loss: returns the loss of a model on a batch.
    """

    loaders: Mapping[str, Callable[[int], Any]]
    features: Callable[[Any], Sequence[Array]]
    model: Callable[[], torch.nn.Module]
    loss: Callable[[Any, Any], torch.Tensor]

    def touch(self, batch: Any) -> None:
        """Read a value of every cache line of the batch's features."""
        for x in self.features(batch):
            touch(x, max(1, _LINE_BYTES // x.itemsize))

    def trained(self) -> Callable[[Any], None]:
        """Return the training step of a new model."""
        model = self.model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

        def step(batch: Any) -> None:
            optimizer.zero_grad()
            self.loss(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return step


def close(loader: Any) -> None:
    """End the workers of a loader. The workers of torch's loaders end when the iterator is garbage-collected."""
    if hasattr(loader, "close"):
        loader.close()
    loader._iterator = None
    gc.collect()
