"""Histories of activations, and the control variate that VR-GCN makes of them (Chen, Zhu, Song 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hoptrain.samplers import MiniBatch


class History(nn.Module):
    """The last activations of every vertex, one table a layer but the first, whose inputs are features and thus known.

    Tables are buffers that are no part of the weights; a checkpoint has them beside these, for each rank its own.
    """

    def __init__(self, num_vertices: int, widths: Sequence[int]) -> None:
        """Start with zeros.

        Args:
            num_vertices: V.
            widths: of the inputs of layers 1, 2, and so on.
        """
        super().__init__()
        for i, width in enumerate(widths, 1):
            self.register_buffer(f"table{i}", torch.zeros(num_vertices, width), persistent=False)

    def mean(self, layer: int, h: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
        """Estimate, for layer 1 and up, the mean of its inputs over all in-neighbours of each destination.

        Args:
            layer: number of the layer, whose block is ``batch.blocks[layer]``.
            h: (num_src, C) inputs of the layer.
            batch: a mini-batch of ``VRGCNSampler``, as tensors.
            degrees: (num_src,) in-degrees in the whole graph, float.

        Returns:
            (num_dst, C): sampled mean of h - H plus exact mean of H; 0 for a vertex without in-edges. Gradients go through h alone.
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


def _sums(rows: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """(len(indptr) - 1, C): sums of ``rows[indices]`` over each column."""
    owner = torch.repeat_interleave(torch.arange(len(indptr) - 1, device=rows.device), indptr.diff().long(), output_size=len(indices))
    return rows.new_zeros(len(indptr) - 1, rows.shape[1]).index_add_(0, owner, rows[indices.long()])
