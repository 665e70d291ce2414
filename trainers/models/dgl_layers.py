"""DGL's convolutions over a block, equivalent to those of ``pyg_layers``. The module is imported only for ``conv: dgl``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block
from hoptrain.samplers.batch.dgl_compat import import_dgl
from hoptrain.trainers.models.layers import Arch, gcn_weights, refuse_weights

dgl = import_dgl()


def make_layer(arch: Arch, in_channels: int, out_channels: int, **options: Any) -> nn.Module:
    """Build a layer. ``options`` are the arguments ``heads``, ``concat`` and ``dropout`` of GAT.

    Raises:
        InputError: the layer type is not available in DGL.
    """
    kinds: dict[Arch, Callable[..., nn.Module]] = {"sage": _sage, "gin": _gin, "gat": GATLayer, "gcn": GCNLayer}
    if arch not in kinds:
        raise InputError(f"arch {arch} with conv dgl: only PyG's layers read edge features; use conv pyg")
    return kinds[arch](in_channels, out_channels, **options)


class PlainLayer(nn.Module):
    """A layer that applies a DGL convolution to a block and the vectors of its sources."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        out: Tensor = self.conv(as_dgl(block), (x, x[: block.num_dst]))
        return out


def _sage(in_channels: int, out_channels: int) -> nn.Module:
    return PlainLayer(dgl.nn.SAGEConv(in_channels, out_channels, "mean"))


def _gin(in_channels: int, out_channels: int) -> nn.Module:
    mlp = nn.Sequential(nn.Linear(in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))
    return PlainLayer(dgl.nn.GINConv(mlp, "sum", learn_eps=True))


class GATLayer(nn.Module):
    """A graph attention layer that gives every destination a self loop, as PyG does."""

    def __init__(self, in_channels: int, out_channels: int, *, heads: int, concat: bool, dropout: float) -> None:
        super().__init__()
        width = out_channels // heads if concat else out_channels
        self.concat = concat
        self.conv = dgl.nn.GATConv(in_channels, width, heads, attn_drop=dropout)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        out: Tensor = self.conv(as_dgl(block, self_loops=True), (x, x[: block.num_dst]))
        return out.flatten(1) if self.concat else out.mean(1)


class GCNLayer(nn.Module):
    """A graph convolution layer that normalises by degrees in the whole graph."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = dgl.nn.GraphConv(in_channels, out_channels, norm="none", allow_zero_in_degree=True)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block."""
        weights = torch.cat(gcn_weights(block, degrees))
        out: Tensor = self.conv(as_dgl(block, self_loops=True), (x, x[: block.num_dst]), edge_weight=weights)
        return out


def as_dgl(block: Block, *, self_loops: bool = False) -> Any:
    """Convert a block to a DGL block. With ``self_loops``, append a self loop for each destination after the block's edges."""
    refuse_weights(block, "conv dgl")
    sources, destinations = block.edge_index()
    if self_loops:
        own = torch.arange(block.num_dst, device=sources.device)
        sources, destinations = torch.cat([sources, own]), torch.cat([destinations, own])
    return dgl.create_block((sources, destinations), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
