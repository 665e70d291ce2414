"""Conversion of stored features to model inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array, as_float32
from hoptrain.engine.features.take import finish_rows, take_rows
from hoptrain.samplers.base import SomeBatch
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.batch.transfer import as_tensor

_ROWS = 1 << 16
"""Number of rows that the computation of mean and standard deviation reads at once."""


class Standardize(nn.Module):
    """A layer that standardises each feature: it subtracts the feature's mean and divides by its standard deviation.

    Both are buffers. So checkpoints and exported models contain them, and predictions on other data use the values of the training data.
    """

    def __init__(self, num_features: int) -> None:
        """Start with mean 0 and standard deviation 1."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))
        self.mean: Tensor
        self.std: Tensor

    def fit(self, x: Any, nodes: Array) -> None:
        """Set mean and standard deviation to those of ``x`` (V, F) over ``nodes`` (N,), read in blocks of rows. A constant feature is standardised to 0."""
        count, mean, squares = 0, np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for begin in range(0, len(nodes), _ROWS):
            rows = as_float32(take_rows(x, nodes[begin : begin + _ROWS])).astype(np.float64)
            change = rows.mean(axis=0) - mean
            share = len(rows) / (count + len(rows))
            squares += len(rows) * rows.var(axis=0) + change**2 * count * share
            mean += change * share
            count += len(rows)
        finish_rows(x)
        std = np.sqrt(squares / max(1, count))
        std[std <= 1e-6 * np.abs(mean)] = 1  # columns that are constant up to the rounding of float32 are not scaled
        self.mean.copy_(torch.from_numpy(mean))
        self.std.copy_(torch.from_numpy(std))

    def forward(self, x: Tensor) -> Tensor:
        """Return standardised features (S, F)."""
        return (x - self.mean) / self.std


def to_input(x: Tensor, normalize: bool) -> Tensor:
    """Convert stored features to float32 (S, F). With ``normalize``, divide each row by its sum; a row of zeros stays zero."""
    if not normalize:
        return x.float()
    return x / x.sum(1, keepdim=True, dtype=torch.float32).clamp(min=1e-12)


def with_edge_features(batch: SomeBatch, data: Dataset | HeteroDataset) -> SomeBatch:
    """Return ``batch`` (of NumPy arrays), with the features of its edges added if the data set has edge features."""
    stores = data.stores()
    rows = {
        name: take_rows(stores[store], batch.ids_along(relation, places))
        for relation in batch.relations
        if (store := named("edge_attr", relation)) in stores
        for name, places in batch.edge_places(store).items()
    }
    return batch.with_rows(rows) if rows else batch


def model_input(data: Dataset, nodes: Array, normalize: bool, device: torch.device) -> Tensor:
    """Return the features (N, F) of ``nodes`` on ``device``, in the form that the model takes (see ``to_input``).

    Raises:
        InputError: the data set has no features.
    """
    if data.x is None:
        raise InputError(f"{data.name} has no features: a node classifier needs some; add x, for instance degrees or embeddings")
    return to_input(to_device(as_tensor(take_rows(data.x, nodes)), device), normalize)


def to_device(rows: Tensor, device: torch.device) -> Tensor:
    """Copy ``rows`` to ``device``. Rows on the CPU are copied to a GPU asynchronously, through pinned memory."""
    return rows.pin_memory().to(device, non_blocking=True) if device.type == "cuda" and not rows.is_cuda else rows.to(device)
