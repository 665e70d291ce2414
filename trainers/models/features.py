"""From stored features to a model's input."""

from __future__ import annotations

import torch
from torch import Tensor

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.samplers import HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.transfer import as_tensor


def to_input(x: Tensor, normalize: bool) -> Tensor:
    """(S, F) float32 from features as stored; with ``normalize`` each row is divided by its sum (an empty row stays zero)."""
    if not normalize:
        return x.float()
    return x / x.sum(1, keepdim=True, dtype=torch.float32).clamp(min=1e-12)


def with_edge_features(batch: MiniBatch, data: Dataset) -> MiniBatch:
    """A batch of NumPy arrays with its edges' features, where the data set has some."""
    if data.edge_attr is None:
        return batch
    rows = {name: take_rows(data.edge_attr, batch.ids_of(places)) for name, places in batch.edge_places().items()}
    return batch.with_rows(rows)


def with_typed_edge_features(batch: HeteroMiniBatch, data: HeteroDataset) -> HeteroMiniBatch:
    """``with_edge_features`` of a typed graph."""
    rows: dict[str, Array] = {}
    for relation, store in data.edge_attr.items():
        places = batch.edge_places(f"edge_attr.{relation_name(relation)}")
        rows |= {name: take_rows(store, batch.ids_of(relation, own)) for name, own in places.items()}
    return batch.with_rows(rows) if rows else batch


def model_input(data: Dataset, nodes: Array, normalize: bool, device: torch.device) -> Tensor:
    """Features (N, F) of ``nodes`` as the model takes them, on ``device``."""
    if data.x is None:
        raise InputError(f"{data.name} has no features: a node classifier needs some; add an x, for instance degrees or an embedding")
    return to_input(to_device(as_tensor(take_rows(data.x, nodes)), device), normalize)


def to_device(rows: Tensor, device: torch.device) -> Tensor:
    """``rows`` on ``device``; those of the CPU travel to a GPU through pinned memory, while the host goes on."""
    return rows.pin_memory().to(device, non_blocking=True) if device.type == "cuda" and not rows.is_cuda else rows.to(device)
