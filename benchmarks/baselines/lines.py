"""A script for a library's loader, and the same script with one import line changed: what ``hoptrain bench compat`` compares."""

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
    """The script.

    Attributes:
        loaders: by the system whose loader it is, what opens it with a number of workers.
        features: the features (S, F) of a batch, of each type where it has several.
        model: makes the model.
        loss: of the model on a batch.
    """

    loaders: Mapping[str, Callable[[int], Any]]
    features: Callable[[Any], Sequence[Array]]
    model: Callable[[], torch.nn.Module]
    loss: Callable[[Any, Any], torch.Tensor]

    def touch(self, batch: Any) -> None:
        """Read every row of the features."""
        for x in self.features(batch):
            touch(x, max(1, _LINE_BYTES // x.itemsize))

    def trained(self) -> Callable[[Any], None]:
        """A new model's training step."""
        model = self.model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

        def step(batch: Any) -> None:
            optimizer.zero_grad()
            self.loss(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return step


def close(loader: Any) -> None:
    """End the workers, which torch's loaders do when nobody knows their iterator any more."""
    if hasattr(loader, "close"):
        loader.close()
    loader._iterator = None
    gc.collect()
