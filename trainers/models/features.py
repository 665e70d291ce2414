"""Conversion of stored features to model inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.take import take_rows
from hoptrain.samplers.base import SomeBatch
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.batch.transfer import as_tensor


def to_input(x: Tensor, normalize: bool) -> Tensor:
    """Convert stored features to float32 (S, F). With ``normalize``, divide each row by its sum; a row of zeros stays zero."""
    if not normalize:
        return x.float()
    return x / x.sum(1, keepdim=True, dtype=torch.float32).clamp(min=1e-12)


def with_edge_features(batch: SomeBatch, data: Dataset | HeteroDataset) -> SomeBatch:
    """Return a batch of NumPy arrays with the features of its edges, if the data set has edge features."""
    stores = data.stores()
    rows = {
        name: take_rows(stores[store], batch.ids_along(relation, places))
        for relation in batch.relations
        if (store := named("edge_attr", relation)) in stores
        for name, places in batch.edge_places(store).items()
    }
    return batch.with_rows(rows) if rows else batch


def model_input(data: Dataset, nodes: Array, normalize: bool, device: torch.device) -> Tensor:
    """Return the features (N, F) of ``nodes`` on ``device``, as the model takes them.

    Raises:
        InputError: the data set has no features.
    """
    if data.x is None:
        raise InputError(f"{data.name} has no features: a node classifier needs some; add x, for instance degrees or embeddings")
    return to_input(to_device(as_tensor(take_rows(data.x, nodes)), device), normalize)


def to_device(rows: Tensor, device: torch.device) -> Tensor:
    """Copy ``rows`` to ``device``. Rows on the CPU are copied to a GPU asynchronously, through pinned memory."""
    return rows.pin_memory().to(device, non_blocking=True) if device.type == "cuda" and not rows.is_cuda else rows.to(device)
