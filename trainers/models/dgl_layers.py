"""DGL's convolutions over a block, with the same meaning as those of ``pyg_layers``. Imported for ``conv: dgl`` only."""

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
    """One layer; ``options`` are GAT's heads, concat and dropout."""
    kinds: dict[Arch, Callable[..., nn.Module]] = {"sage": _sage, "gin": _gin, "gat": GATLayer, "gcn": GCNLayer}
    if arch not in kinds:
        raise InputError(f"arch {arch} with conv dgl: features of edges are read by PyG's layers; use conv pyg")
    return kinds[arch](in_channels, out_channels, **options)


class PlainLayer(nn.Module):
    """A DGL convolution that takes a block and its sources' vectors."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block."""
        out: Tensor = self.conv(as_dgl(block), (x, x[: block.num_dst]))
        return out


def _sage(in_channels: int, out_channels: int) -> nn.Module:
    return PlainLayer(dgl.nn.SAGEConv(in_channels, out_channels, "mean"))


def _gin(in_channels: int, out_channels: int) -> nn.Module:
    mlp = nn.Sequential(nn.Linear(in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))
    return PlainLayer(dgl.nn.GINConv(mlp, "sum", learn_eps=True))


class GATLayer(nn.Module):
    """Graph attention; a self loop is added to every destination, as in PyG."""

    def __init__(self, in_channels: int, out_channels: int, *, heads: int, concat: bool, dropout: float) -> None:
        super().__init__()
        width = out_channels // heads if concat else out_channels
        self.concat = concat
        self.conv = dgl.nn.GATConv(in_channels, width, heads, attn_drop=dropout)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block."""
        out: Tensor = self.conv(as_dgl(block, self_loops=True), (x, x[: block.num_dst]))
        return out.flatten(1) if self.concat else out.mean(1)


class GCNLayer(nn.Module):
    """Graph convolution with the whole graph's degrees."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = dgl.nn.GraphConv(in_channels, out_channels, norm="none", allow_zero_in_degree=True)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block."""
        weights = torch.cat(gcn_weights(block, degrees))
        out: Tensor = self.conv(as_dgl(block, self_loops=True), (x, x[: block.num_dst]), edge_weight=weights)
        return out


def as_dgl(block: Block, *, self_loops: bool = False) -> Any:
    """The block as DGL's; self loops of the destinations stand behind its edges."""
    refuse_weights(block, "conv dgl")
    sources, destinations = block.edge_index()
    if self_loops:
        own = torch.arange(block.num_dst, device=sources.device)
        sources, destinations = torch.cat([sources, own]), torch.cat([destinations, own])
    return dgl.create_block((sources, destinations), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
