"""Drop-in replacements for DGL's layers: write ``from hoptrain.dgl.nn import SAGEConv`` instead of ``from dgl.nn``.

On blocks, neighbours are summed as in hoptrain's own models; on any other graph they are DGL's layers. On a CPU, freed memory is kept for the next step.
In training, ``torch.nn.Dropout`` applies hoptrain's faster dropout to their outputs; ``Dropout`` does so for any tensor. Every other name of ``dgl.nn`` is
passed through unchanged.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hoptrain.dgl.outputs import dgl
from hoptrain.engine.machine import keep_freed_memory
from hoptrain.samplers import Block
from hoptrain.trainers.models.layers import Dropout, dropout
from hoptrain.trainers.models.sums import aggregate, narrows_first

__all__ = ["Dropout", "GATConv", "GATv2Conv", "GINConv", "GraphConv", "SAGEConv"]

_keep_freed_memory = cache(keep_freed_memory)


class _OnBlocks:
    """A mixin for DGL's layers that replaces the given block by a block that sums messages with hoptrain's ``aggregate``."""

    def forward(self, graph: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the layer's outputs, as DGL's class does."""
        if not (isinstance(graph, dgl.DGLGraph) and graph.is_block and len(graph.canonical_etypes) == 1):
            return super().forward(graph, *args, **kwargs)  # type: ignore[misc]  # defined by the DGL class, the next base
        layer = self._in_cheapest_order(graph, *args, **kwargs)
        out = super(_OnBlocks, layer).forward(_with_sums(graph), *args, **kwargs)  # type: ignore[misc]
        return out.as_subclass(LayerOutput) if isinstance(out, Tensor) and self.training else out  # type: ignore[attr-defined]

    def _in_cheapest_order(self, graph: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the layer; or one that sums before it multiplies, if DGL's order is more work."""
        return self


class LayerOutput(Tensor):
    """A layer's outputs, to which ``torch.nn.Dropout`` applies hoptrain's dropout, also after an activation or a normalisation.

    The result of any other function is a plain tensor.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, or hoptrain's dropout instead of torch's."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is F.dropout:
                return _dropout(*args, **kwargs)
            out = func(*args, **kwargs)
            return out.as_subclass(cls) if func in _KEEPING else out


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return F.dropout(input, p, training, True) if inplace else dropout(input.as_subclass(Tensor), p, training)


_KEEPING = {
    getattr(owner, name)
    for name in ("relu", "elu", "selu", "gelu", "silu", "leaky_relu", "sigmoid", "tanh", "flatten", "layer_norm", "batch_norm")
    for owner in (torch, F, Tensor)
    if hasattr(owner, name)
}
"""Functions whose results are ``LayerOutput`` again: what is usually called between a layer and dropout."""


class SAGEConv(_OnBlocks, dgl.nn.SAGEConv):
    """A drop-in replacement for ``dgl.nn.SAGEConv`` that is faster on blocks."""

    def _in_cheapest_order(self, graph: Any, feat: Any, edge_weight: Tensor | None = None) -> Any:
        linear = self.fc_neigh  # a user may have put another module there
        is_product = type(linear) is torch.nn.Linear and linear.bias is None and not linear._forward_hooks and not linear._forward_pre_hooks
        is_swappable = is_product and self._aggre_type in ("mean", "gcn") and edge_weight is None
        return _that_sums_first(self, "_in_src_feats", graph) if is_swappable else self


class GraphConv(_OnBlocks, dgl.nn.GraphConv):
    """A drop-in replacement for ``dgl.nn.GraphConv`` that is faster on blocks."""

    def _in_cheapest_order(self, graph: Any, feat: Any, weight: Tensor | None = None, edge_weight: Tensor | None = None) -> Any:
        return self if edge_weight is not None else _that_sums_first(self, "_in_feats", graph)


class GATConv(_OnBlocks, dgl.nn.GATConv):
    """A drop-in replacement for ``dgl.nn.GATConv`` that is faster on blocks."""


class GATv2Conv(_OnBlocks, dgl.nn.GATv2Conv):
    """A drop-in replacement for ``dgl.nn.GATv2Conv`` that is faster on blocks."""


class GINConv(_OnBlocks, dgl.nn.GINConv):
    """A drop-in replacement for ``dgl.nn.GINConv`` that is faster on blocks."""


class _SummingGraph(dgl.DGLGraph):
    """A DGL block that sums messages with hoptrain's ``aggregate`` if that supports the reduction."""

    is_block = True

    def update_all(self, message_func: Any, reduce_func: Any, *args: Any, **kwargs: Any) -> None:
        """Pass messages, as DGL's method does."""
        sums = None if args or kwargs else _sums(self, message_func, reduce_func)
        if sums is None:
            super().update_all(message_func, reduce_func, *args, **kwargs)
        else:
            self.dstdata[reduce_func.out_field] = sums


def _that_sums_first(layer: Any, width_name: str, graph: Any) -> Any:
    """Return a shallow copy of a layer that sums before it multiplies, or the layer itself if DGL's order is less work.

    DGL's class multiplies first if the number of its input features, the attribute ``width_name``, is larger than ``_out_feats``. It reads this attribute for
    nothing else.
    """
    width, out_feats = getattr(layer, width_name), layer._out_feats
    if width <= out_feats or graph.num_edges() == 0 or narrows_first(_block_of(graph)[0], width, out_feats):
        return layer
    copied = object.__new__(type(layer))  # copy.copy refuses parametrised layers
    copied.__dict__.update(layer.__dict__)
    copied.__dict__[width_name] = out_feats
    return copied


def _with_sums(graph: Any) -> Any:
    """Return a shallow copy of the graph as a ``_SummingGraph``; its frames are new, but share the columns."""
    if graph.device.type == "cpu":
        _keep_freed_memory()
    made = copy(graph)
    made.__class__ = _SummingGraph
    return made


def _sums(graph: Any, message_func: Any, reduce_func: Any) -> Tensor | None:
    """Return the reduced messages (num_dst, ...), or None if DGL must reduce them.

    Supported are sums and means of the sources' rows, with or without edge weights.
    """
    message, reduce = getattr(message_func, "name", None), getattr(reduce_func, "name", None)
    if reduce not in ("sum", "mean") or message not in ("copy_u", "u_mul_e") or message_func.out_field != reduce_func.msg_field:
        return None
    x = graph.srcdata[message_func.in_field if message == "copy_u" else message_func.lhs_field]
    weights = None if message == "copy_u" else graph.edata[message_func.rhs_field]
    heads = 1 if x.dim() < 3 else x.shape[1]
    if x.dim() not in (2, 3) or not x.is_floating_point() or (weights is not None and weights.numel() != graph.num_edges() * heads):
        return None
    block, ids = _block_of(graph)
    if weights is not None:
        weights = weights.reshape(-1) if heads == 1 else weights.reshape(-1, heads)
        weights = weights[ids.long()] if len(ids) else weights
    sums = aggregate(block, x.reshape(len(x), -1), weights, reduce)
    return sums.to(x.dtype).view(-1, *x.shape[1:])


def _block_of(graph: Any) -> tuple[Block, Tensor]:
    """Return the block with edges sorted by destination, and the place of each in the graph; no places if they lie in this order there."""
    indptr, indices, ids = graph.adj_tensors("csc")
    return Block(indptr=indptr, indices=indices, edge_ids=None, num_src=graph.num_src_nodes()), ids  # None, since no layer reads edge ids


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not hasattr(dgl.nn, name):
        raise AttributeError(f"neither module 'hoptrain.dgl.nn' nor dgl.nn has an attribute {name!r}")
    return getattr(dgl.nn, name)
