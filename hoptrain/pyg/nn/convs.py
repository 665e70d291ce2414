"""PyG's convolutions, which on a batch of ``hoptrain.pyg`` compute only the rows that are read.

PyG parses the arguments of ``propagate`` from comments in a class, and caches them by the class's name. So these classes repeat PyG's comments.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from hoptrain.pyg.nn.neighbours import Neighbours, reduction_of
from hoptrain.trainers.models.pyg_layers import attend, attend_v2
from hoptrain.trainers.models.sums import narrows_first
from hoptrain.trainers.models.sums.edge_index import SampledEdges, changes


class SAGEConv(pyg.SAGEConv):
    """A drop-in replacement for ``torch_geometric.nn.SAGEConv`` that is faster on batches of ``hoptrain.pyg``."""

    # propagate_type: (x: OptPairTensor)

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Compute the outputs (N, C') of rows ``x`` (N, C), as PyG's class does."""
        near, reduction = Neighbours.of(self, pyg.SAGEConv, x, edge_index), reduction_of(self)
        if near is None or size is not None:
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        if reduction is None:
            return near.apply(lambda x, edges, _: super(SAGEConv, self).forward(x, edges), x, None, list(self.parameters()))
        sources = self.lin(x).relu() if self.project else x
        if _is_plain(self.lin_l) and narrows_first(near.block, sources.shape[1], self.out_channels):
            out = near.reduce(F.linear(sources, self.lin_l.weight), reduce=reduction)
            out = out if self.lin_l.bias is None else out + self.lin_l.bias
            own = near.own(x)
        else:
            sums, own = near.reduce_with_own(sources, reduce=reduction)
            out, own = self.lin_l(sums), near.own(x) if self.project else own
        if self.root_weight:
            out = out + self.lin_r(own)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out


class GraphConv(pyg.GraphConv):
    """A drop-in replacement for ``torch_geometric.nn.GraphConv`` that is faster on batches of ``hoptrain.pyg``."""

    # propagate_type: (x: OptPairTensor, edge_weight: OptTensor)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None, size: Any = None) -> Tensor:
        """Compute the outputs (N, C') of rows ``x`` (N, C), as PyG's class does."""
        near, reduction = Neighbours.of(self, pyg.GraphConv, x, edge_index, edge_weight), reduction_of(self)
        if near is None or reduction is None or size is not None:
            return super().forward(x, edge_index, edge_weight, size)  # type: ignore[no-any-return]
        weights = None if edge_weight is None else edge_weight.view(-1)
        sums, own = near.reduce_with_own(x, weights, reduction)
        out: Tensor = self.lin_rel(sums) + self.lin_root(own)
        return out


class GINConv(pyg.GINConv):
    """A drop-in replacement for ``torch_geometric.nn.GINConv`` that is faster on batches of ``hoptrain.pyg``."""

    # propagate_type: (x: OptPairTensor)

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """Compute the outputs (N, C') of rows ``x`` (N, C), as PyG's class does."""
        near, reduction = Neighbours.of(self, pyg.GINConv, x, edge_index), reduction_of(self)
        if near is None or reduction is None or size is not None:
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        sums, own = near.reduce_with_own(x, reduce=reduction)
        out: Tensor = self.nn(sums + (1 + self.eps) * own)
        return out


class GCNConv(pyg.GCNConv):
    """A drop-in replacement for ``torch_geometric.nn.GCNConv`` that is faster on batches of ``hoptrain.pyg``."""

    # propagate_type: (x: Tensor, edge_weight: OptTensor)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the outputs (N, C') of rows ``x`` (N, C), as PyG's class does."""
        near = Neighbours.of(self, pyg.GCNConv, x, edge_index, edge_weight)
        if near is None or reduction_of(self) != "sum" or self.cached:
            return super().forward(x, edge_index, edge_weight)  # type: ignore[no-any-return]
        weights, loops = self._norms(near.edges, edge_weight, x)
        if narrows_first(near.block, x.shape[1], self.out_channels):
            x = self.lin(x)
            out = _with_loops(near, x, weights, loops)
        else:
            out = self.lin(_with_loops(near, x, weights, loops))
        return out if self.bias is None else out + self.bias

    def _norms(self, edges: SampledEdges, edge_weight: Tensor | None, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the weights (M,) of the edges, 0 for self-loops, and the weights (N, 1) of the nodes' own rows, as PyG's ``gcn_norm``.

        As in PyG, the weights are computed from the degrees in the batch, not in the whole graph. The weights are cached with the edges for further layers.
        """
        if not self.normalize:
            return edge_weight, None
        key = self.improved, self.add_self_loops, x.dtype, None if edge_weight is None else (id(edge_weight), changes(edge_weight))
        if key in edges.norms:
            return edges.norms[key][1:]  # type: ignore[no-any-return]
        weights, loops = self._compute_norms(edges, edge_weight, x.dtype)
        if not weights.requires_grad:
            edges.norms[key] = edge_weight, weights, loops  # keeps the weights alive, so that no other tensor gets their id
        return weights, loops

    def _compute_norms(self, edges: SampledEdges, edge_weight: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Compute ``_norms`` without masks, by which PyG selects edges, so that the host need not wait for a GPU. Self-loops keep their places."""
        source, destination = edges.plain()
        weights = source.new_ones(len(source), dtype=dtype) if edge_weight is None else edge_weight
        loops = None
        if self.add_self_loops:
            is_loop, number = source == destination, edges.num_nodes
            loops = weights.new_full((number + 1,), 2.0 if self.improved and edge_weight is not None else 1.0)
            if edge_weight is not None:
                loops = loops.index_put((source.where(is_loop, number),), weights)  # the last value is of edges that are no loops
            loops, weights = loops[:number], weights.masked_fill(is_loop, 0)
        degrees = weights.new_zeros(edges.num_nodes).scatter_add(0, destination, weights)
        scale = (degrees if loops is None else degrees + loops).pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        weights = scale[source] * weights * scale[destination]
        return weights, None if loops is None else (scale * loops * scale)[:, None]


class GATConv(pyg.GATConv):
    """A drop-in replacement for ``torch_geometric.nn.GATConv`` that is faster on batches of ``hoptrain.pyg``."""

    # propagate_type: (x: OptPairTensor, alpha: Tensor)
    # edge_updater_type: (alpha: OptPairTensor, edge_attr: OptTensor)

    def forward(
        self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None, return_attention_weights: bool | None = None
    ) -> Any:
        """Compute the outputs (N, C') of rows ``x`` (N, C), as PyG's class does."""
        near = Neighbours.of(self, pyg.GATConv, x, edge_index, edge_attr)
        if near is None or size is not None or return_attention_weights is not None:
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        on_block = partial(attend, self) if _is_for_attend(self, edge_attr) else None
        return near.apply(super().forward, x, edge_attr, list(self.parameters()), on_block)


class GATv2Conv(pyg.GATv2Conv):
    """A drop-in replacement for ``torch_geometric.nn.GATv2Conv`` that is faster on batches of ``hoptrain.pyg``."""

    # propagate_type: (x: PairTensor, alpha: Tensor)
    # edge_updater_type: (x: PairTensor, edge_attr: OptTensor)

    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, return_attention_weights: bool | None = None) -> Any:
        """Compute the outputs (N, C') of rows ``x`` (N, C), as PyG's class does."""
        near = Neighbours.of(self, pyg.GATv2Conv, x, edge_index, edge_attr)
        if near is None or return_attention_weights is not None:
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        on_block = partial(attend_v2, self) if _is_for_attend(self, edge_attr) else None
        return near.apply(super().forward, x, edge_attr, list(self.parameters()), on_block)


def _is_for_attend(layer: Any, edge_attr: Tensor | None) -> bool:
    """Return whether hoptrain's attention computes the outputs of a layer: sources and destinations share its weights, and edges have no features."""
    return edge_attr is None and isinstance(layer.in_channels, int) and reduction_of(layer) == "sum"


def _is_plain(layer: Any) -> bool:
    """Return whether a linear layer only multiplies by a matrix: it is no subclass and has no parametrisation and no hook."""
    return type(layer) is Linear and not layer._forward_hooks and not layer._forward_pre_hooks


def _with_loops(near: Neighbours, x: Tensor, weights: Tensor | None, loops: Tensor | None) -> Tensor:
    """Return the weighted sums of the neighbours' rows, plus each node's own row if ``loops`` has weights (N, 1) for these."""
    out, own = near.reduce_with_own(x, weights)
    return out if loops is None else out + loops * own
