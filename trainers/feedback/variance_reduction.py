"""The control variate of VR-GCN (Chen, Zhu, Song 2018) for ``VRGCNSampler``, and its histories of activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.features.take import finish_rows
from hoptrain.samplers import MiniBatch, NeighborSampler, Sampler, Workspace
from hoptrain.trainers.feedback import Apply, Feedback
from hoptrain.trainers.models import GNN
from hoptrain.trainers.models.features import Standardize, model_input
from hoptrain.trainers.models.inference import chunks
from hoptrain.trainers.models.pyg_layers import SAGELayer
from hoptrain.trainers.models.sums import aggregate

CHUNK_EDGES = 1 << 17
"""Approximate number of edges per chunk of nodes in the exact mean of features."""


class History(nn.Module):
    """A module with a table for each layer (except for the first) of every node's latest inputs to this layer.

    The tables are buffers, but not weights; a checkpoint stores them separately for each rank.
    """

    def __init__(self, num_nodes: int, widths: Sequence[int]) -> None:
        """Create the tables, filled with zeros.

        Args:
            num_nodes: number of nodes, V.
            widths: input widths of layers 1, 2, and so on.
        """
        super().__init__()
        for i, width in enumerate(widths, 1):
            self.register_buffer(f"table{i}", torch.zeros(num_nodes, width), persistent=False)

    def mean(self, layer: int, h: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
        """Estimate the mean of a layer's inputs over all in-neighbours of each destination, for layers 1 and up.

        Args:
            layer: number of the layer, whose block is ``batch.blocks[layer]``.
            h: inputs (num_src, C) of the layer.
            batch: mini-batch of a ``VRGCNSampler``, as tensors.
            degrees: in-degrees (num_src,) in the whole graph, as float.

        Returns:
            Estimates (num_dst, C): the sampled mean of h - H plus the exact mean of H; 0 for a node without in-edges. Only h gets gradients.
        """
        block, table = batch.blocks[layer], self.table(layer)
        known = table[batch.node_ids[: block.num_src].long()]
        sampled = _sums(h - known, block.indptr, block.indices) / block.indptr.diff().clamp(min=1)[:, None]
        indptr = batch.extra["history_indptr"][: block.num_dst + 1]
        exact = _sums(table, indptr, batch.extra["history_indices"][: int(indptr[-1])]) / degrees[: block.num_dst].clamp(min=1)[:, None]
        estimate: Tensor = sampled + exact
        return estimate

    @torch.no_grad()
    def update(self, layer: int, h: Tensor, batch: MiniBatch) -> None:
        """Store the inputs ``h`` (num_src, C) of a layer in its table. Call this after the step, which uses the old inputs."""
        self.table(layer)[batch.node_ids[: len(h)].long()] = h.detach().to(self.table(layer).dtype)

    def table(self, layer: int) -> Tensor:
        """Return the stored inputs (V, C) of a layer, 1 or higher."""
        return self.get_buffer(f"table{layer}")


class VarianceReduction(Feedback):
    """A feedback that applies a GNN of GraphSAGE layers to the mini-batches of a ``VRGCNSampler``, and stores the history of the layers' inputs.

    A layer's mean over in-neighbours is estimated from the sampled ones and the history of all (``History.mean``). The first layer's mean, over
    features, is exact and computed once before training, as in the paper. So the first block's edges are not used. Dropout applies after the
    estimate, to the mean and to the node's own vector, since the history holds values without dropout.

    Memory: V vectors for each layer (the features' means and the other layers' activations), float32 on the model's device. With several ranks, each
    stores the history of its own batches.
    """

    def __init__(self, model: nn.Module, data: Dataset, *, normalize: bool) -> None:
        """Compute the means of the features.

        Args:
            model: the GNN, whose layers are used but not registered.
            data: graph and features.
            normalize: divide each node's features by their sum.

        Raises:
            InputError: the layers are not those of arch sage with conv pyg.
        """
        super().__init__()
        layers = [layer for layer in model.layers if isinstance(layer, SAGELayer)] if isinstance(model, GNN) else []
        if not isinstance(model, GNN) or len(layers) < model.num_layers:
            raise InputError(
                "VRGCNSampler with another model than arch sage, conv pyg: its estimates are means; use arch sage and conv pyg"
            )
        if isinstance(model.standardize, Standardize):
            raise InputError(
                "standardize_features with VRGCNSampler: its means are of the features as stored; leave it out, or standardise the data set's x"
            )
        self.history = History(data.graph.num_nodes, model.widths[1:-1])
        self.register_buffer("means", feature_means(data, normalize), persistent=False)
        self.means: Tensor
        self._of_model = model, layers  # in a tuple, so that the weights are not registered twice
        self._fresh: tuple[MiniBatch, list[Tensor]] | None = None

    def wrap(self, apply: Apply) -> Apply:
        """Return this module, which replaces the model in training."""
        return self

    def forward(self, x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
        """Compute logits (B, num_classes) of the seeds; ``commit`` stores this batch's activations in the history.

        Args:
            x: float features (S, F) of the input nodes.
            batch: mini-batch of a ``VRGCNSampler``, as tensors.
            degrees: in-degrees (S,) in the whole graph, as float.
        """
        model, layers = self._of_model
        h, inputs = x, []
        for i, block in enumerate(batch.blocks):
            inputs.append(h)
            own = h[: block.num_dst]
            mean = self.history.mean(i, h, batch, degrees[: block.num_src]) if i else self.means[batch.node_ids[: block.num_dst].long()]
            drop = model.dropout if i else model.input_dropout
            h = layers[i].combine(drop(mean), drop(own))
            h = model.activation(model.norms[i](h)) if i < len(model.norms) else h
        self._fresh = batch, [h_i.detach() for h_i in inputs[1:]]
        return h

    def commit(self) -> None:
        """Store the activations of the finished batch in the history; an interrupted batch changes nothing."""
        if self._fresh is not None:
            batch, activations = self._fresh
            for i, h in enumerate(activations, 1):
                self.history.update(i, h, batch)
        self._fresh = None

    def tables(self) -> dict[str, Tensor]:
        """Return the history's tables."""
        return {f"history.{name}": table for name, table in self.history.named_buffers()}


@torch.no_grad()
def feature_means(data: Dataset, normalize: bool) -> Tensor:
    """Return the mean (V, F) float32 of the in-neighbours' features for each node; 0 for nodes without in-neighbours."""
    graph, sampler, workspace = data.graph, NeighborSampler([-1]), Workspace()
    means = torch.zeros(graph.num_nodes, data.num_features)
    for nodes in chunks(graph.indptr, np.arange(graph.num_nodes), CHUNK_EDGES):
        batch = sampler.sample(graph, nodes, workspace=workspace).to(means.device)
        (block,) = batch.blocks
        degrees = block.indptr.diff().long()
        shares = torch.repeat_interleave(1 / degrees.clamp(min=1), degrees, output_size=block.num_edges)
        x = model_input(data, batch.node_ids.numpy(), normalize, means.device)
        means[nodes[0] : nodes[-1] + 1] = aggregate(block, x, shares)
    finish_rows(data.x)
    return means


def _sums(rows: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """Sum ``rows[indices]`` over each column of the CSC arrays, (len(indptr) - 1, C)."""
    owner = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=rows.device), indptr.diff().long(), output_size=len(indices))
    return rows.new_zeros(len(indptr) - 1, rows.shape[1]).index_add_(0, owner, rows[indices.long()])


def make(sampler: Sampler, model: nn.Module, data: Dataset, normalize: bool) -> VarianceReduction:
    """Return the feedback of a ``VRGCNSampler``."""
    return VarianceReduction(model, data, normalize=normalize)
