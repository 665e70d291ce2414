"""VR-GCN's control variate (Chen, Zhu, Song 2018), which ``VRGCNSampler`` samples for, and the histories of activations that it is made of."""

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
from hoptrain.trainers.models.features import model_input
from hoptrain.trainers.models.inference import chunks
from hoptrain.trainers.models.pyg_layers import SAGELayer
from hoptrain.trainers.models.sums import aggregate

CHUNK_EDGES = 1 << 17
"""Edges of the nodes that are computed at once."""


class History(nn.Module):
    """The last activations of every node, one table for each layer after the first, whose inputs are features and thus known.

    Tables are buffers that are no part of the weights; a checkpoint has them beside these, for each rank its own.
    """

    def __init__(self, num_nodes: int, widths: Sequence[int]) -> None:
        """Start with zeros.

        Args:
            num_nodes: V.
            widths: of the inputs of layers 1, 2, and so on.
        """
        super().__init__()
        for i, width in enumerate(widths, 1):
            self.register_buffer(f"table{i}", torch.zeros(num_nodes, width), persistent=False)

    def mean(self, layer: int, h: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
        """Estimate, for layer 1 and up, the mean of its inputs over all in-neighbours of each destination.

        Args:
            layer: number of the layer, whose block is ``batch.blocks[layer]``.
            h: (num_src, C) inputs of the layer.
            batch: a mini-batch of ``VRGCNSampler``, as tensors.
            degrees: (num_src,) in-degrees in the whole graph, float.

        Returns:
            (num_dst, C): sampled mean of h - H plus exact mean of H; 0 for a node without in-edges. Gradients go through h alone.
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
        """Keep ``h`` (num_src, C), the inputs of a layer, after the step that used the ones before."""
        self.table(layer)[batch.node_ids[: len(h)].long()] = h.detach().to(self.table(layer).dtype)

    def table(self, layer: int) -> Tensor:
        """(V, C) the kept inputs of a layer, 1 or more."""
        return self.get_buffer(f"table{layer}")


class VarianceReduction(Feedback):
    """Applies a GNN of GraphSAGE layers to the mini-batches of a ``VRGCNSampler``, and keeps the history of their inputs.

    A layer's mean over in-neighbours is estimated from the sampled ones and the history of all (``History.mean``); the first layer's, over
    features, is exact and computed once, before training, as in the paper. So the first block's edges are not used. Dropout falls on the mean
    and on the node's own vector, behind the estimate: the history would know nothing of units that are dropped before.

    Memory: V vectors for each layer, the features' means and the activations of the others, float32 on the model's device. With several ranks
    each keeps the history of its own batches.
    """

    def __init__(self, model: nn.Module, data: Dataset, *, normalize: bool) -> None:
        """Compute the means of the features.

        Args:
            model: its layers are used, and stay with their owner.
            data: graph and features.
            normalize: as of ``NodeClassifier``.

        Raises:
            InputError: the layers are not those of arch sage with conv pyg.
        """
        super().__init__()
        layers = [layer for layer in model.layers if isinstance(layer, SAGELayer)] if isinstance(model, GNN) else []
        if not isinstance(model, GNN) or len(layers) < model.num_layers:
            raise InputError("VRGCNSampler with another model than arch sage, conv pyg: its estimates are means; choose these")
        self.history = History(data.graph.num_nodes, model.widths[1:-1])
        self.register_buffer("means", feature_means(data, normalize), persistent=False)
        self.means: Tensor
        self._of_model = model, layers  # a tuple, lest its weights count twice
        self._fresh: tuple[MiniBatch, list[Tensor]] | None = None

    def wrap(self, apply: Apply) -> Apply:
        """Return this module, which is applied instead of the model."""
        return self

    def forward(self, x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
        """Scores of the seeds, (B, num_classes); ``commit`` puts this batch's activations into the history.

        Args:
            x: (S, F) float features of the input nodes.
            batch: of a ``VRGCNSampler``, as tensors.
            degrees: (S,) in-degrees in the whole graph, float.
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
        """Let the history hold the activations of the last batch: once it is done, so that one that was interrupted leaves no trace."""
        if self._fresh is not None:
            batch, activations = self._fresh
            for i, h in enumerate(activations, 1):
                self.history.update(i, h, batch)
        self._fresh = None

    def tables(self) -> dict[str, Tensor]:
        """Return the history."""
        return {f"history.{name}": table for name, table in self.history.named_buffers()}


@torch.no_grad()
def feature_means(data: Dataset, normalize: bool) -> Tensor:
    """(V, F) float32: for each node the mean of its in-neighbours' features as the model takes them; 0 where it has none."""
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
    """(len(indptr) - 1, C): sums of ``rows[indices]`` over each column."""
    owner = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=rows.device), indptr.diff().long(), output_size=len(indices))
    return rows.new_zeros(len(indptr) - 1, rows.shape[1]).index_add_(0, owner, rows[indices.long()])


def make(sampler: Sampler, model: nn.Module, data: Dataset, normalize: bool) -> VarianceReduction:
    """Return the feedback of a ``VRGCNSampler``."""
    return VarianceReduction(model, data, normalize=normalize)
