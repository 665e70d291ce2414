"""Exact inference, layer by layer over full neighbourhoods.

Sampled inference costs the product of all fanouts and is noisy. Here every vertex's hidden vector is computed once a layer, from all its
neighbours, in chunks of bounded size; only the last layer is limited to the vertices that are asked for. (As in GraphSAGE's and DGL's
offline inference.)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine import Dataset
from hoptrain.engine.arrays import Array
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.features import model_input

CHUNK_EDGES = 1 << 20
"""Edges of a chunk, about: it bounds the memory of a layer's messages. A vertex's edges are never divided."""


@torch.no_grad()
def exact_logits(
    model: GNN, data: Dataset, nodes: Array, *, normalize: bool, device: torch.device, rank: int = 0, world_size: int = 1
) -> Tensor:
    """Scores of ``nodes`` (N,) from their full neighbourhoods: (N, num_classes) on ``device``. The model has to be in eval mode.

    With several ranks the hidden layers are shared out and gathered, so every rank has to call this; the last layer each rank does for its
    own ``nodes``.
    """
    hidden: Tensor | None = None
    every = np.arange(data.graph.num_nodes)
    for layer in range(model.num_layers):
        if layer == model.num_layers - 1:
            return _layer(model, layer, data, nodes, hidden, normalize, device)
        share = -(-len(every) // world_size)
        mine = every[rank * share : (rank + 1) * share]
        part = _layer(model, layer, data, mine, hidden, normalize, device).cpu()
        hidden = part if world_size == 1 else _gather(part, share, len(every), device)
    raise AssertionError("a model has at least one layer")


def _layer(model: GNN, layer: int, data: Dataset, nodes: Array, hidden: Tensor | None, normalize: bool, device: torch.device) -> Tensor:
    """One layer's output for ``nodes``; ``hidden`` (V, C) on the CPU is its input, None stands for the features."""
    sampler, workspace = NeighborSampler([-1]), Workspace()
    outputs = []
    for chunk in chunks(data.graph.indptr, nodes):
        batch = sampler.sample(data.graph, chunk, workspace=workspace)
        degrees = torch.from_numpy(degrees_of(data, batch.node_ids)).to(device)
        rows = torch.from_numpy(batch.node_ids).long()
        x = model_input(data, batch.node_ids, normalize, device) if hidden is None else hidden[rows].to(device)
        outputs.append(model.layer(layer, x, batch.to(device).blocks[0], degrees))
    return torch.cat(outputs) if outputs else torch.empty(0, model.widths[layer + 1], device=device)


def degrees_of(data: Dataset, nodes: Array) -> Array:
    """(N,) float32 in-degrees."""
    degrees: Array = data.graph.indptr[nodes + 1] - data.graph.indptr[nodes]
    return degrees.astype(np.float32)


def chunks(indptr: Array, nodes: Array, most: int = CHUNK_EDGES) -> Iterator[Array]:
    """``nodes`` in runs of at most ``most`` edges, a vertex with more than that alone."""
    ends = np.cumsum(indptr[nodes + 1] - indptr[nodes] + 1)
    begin = 0
    while begin < len(nodes):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield nodes[begin:end]
        begin = end


def _gather(part: Tensor, share: int, total: int, device: torch.device) -> Tensor:
    """All ranks' parts of a hidden layer, one after another: (total, C) on the CPU."""
    padded = torch.zeros(share, part.shape[1], device=device)
    padded[: len(part)] = part.to(device)
    parts = [torch.empty_like(padded) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, padded)
    return torch.cat([p.cpu() for p in parts])[:total]
