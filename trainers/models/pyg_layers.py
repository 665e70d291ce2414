"""PyG's convolutions over a block. Each layer maps (num_src, C) to (num_dst, C')."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GINConv, SAGEConv
from torch_geometric.utils import spmm

from hoptrain.samplers import Block
from hoptrain.trainers.models.layers import Arch, gcn_weights, mean_weights, refuse_weights

_ADDITION = 8
"""What adding up a neighbour's value costs, in multiplications of a dense product: it is read from anywhere in memory."""


def make_layer(arch: Arch, in_channels: int, out_channels: int, **options: Any) -> nn.Module:
    """One layer; ``options`` are GAT's heads, concat and dropout."""
    kinds: dict[Arch, type[nn.Module]] = {"sage": SAGELayer, "gat": GATLayer, "gcn": GCNLayer, "gin": GINLayer}
    with _temporary_files_that_go():
        return kinds[arch](in_channels, out_channels, **options)


@contextmanager
def _temporary_files_that_go() -> Iterator[None]:
    """PyG writes a module for each kind of convolution to the temporary folder, imports it, and leaves it there for good."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="hoptrain-pyg-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


def aggregate(block: Block, x: Tensor, weights: Tensor | None = None, reduce: Literal["sum", "mean"] = "sum") -> Tensor:
    """Over each destination's edges the sum (or the mean) of ``x`` (num_src, C), times ``weights`` (M,): (num_dst, C), at least float32.

    Sums are float32 in mixed precision too, by PyG's fused gather-and-reduce: one of many values of 16 bits would stop growing, and its
    kernel on the CPU takes no two kinds of numbers.
    """
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        x = x if x.dtype == torch.float64 else x.float()
        values = x.new_ones(block.num_edges) if weights is None else weights.to(x.dtype)
        shape = (block.num_dst, block.num_src)
        out: Tensor = spmm(torch.sparse_csr_tensor(block.indptr, block.indices, values, shape, check_invariants=False), x, reduce=reduce)
        return out


class SAGELayer(nn.Module):
    """GraphSAGE with the mean aggregator (Hamilton, Ying, Leskovec 2017)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = SAGEConv((in_channels, in_channels), out_channels)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block: by the plain mean, or with weights by its estimate."""
        if block.weights is not None:
            out = self.combine(aggregate(block, x, mean_weights(block, degrees)), x[: block.num_dst])
        elif _narrows_first(block, x.shape[1], self.conv.lin_l.out_channels):
            narrow, own = self._narrow(x, block.num_dst)
            out = aggregate(block, narrow, reduce="mean") + self.conv.lin_l.bias + own
        else:
            out = self.combine(aggregate(block, x, reduce="mean"), x[: block.num_dst])
        return out

    def _narrow(self, x: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
        """The products for the mean, of all sources, and those of the destinations themselves.

        A destination's vector is read once for both: products with few columns are bound by reading their rows.
        """
        to_mean, to_own = self.conv.lin_l.weight, self.conv.lin_r.weight
        both = F.linear(x[:num_dst], torch.cat([to_mean, to_own]))
        mine, own = both.tensor_split([len(to_mean)], dim=1)
        return torch.cat([mine, F.linear(x[num_dst:], to_mean)]), own

    def combine(self, mean: Tensor, own: Tensor) -> Tensor:
        """The layer's output from the means over in-neighbours and the destinations' own vectors, both (D, C)."""
        out: Tensor = self.conv.lin_l(mean) + self.conv.lin_r(own)
        return out


def _narrows_first(block: Block, in_channels: int, out_channels: int) -> bool:
    """Whether it is less work to multiply all sources' vectors and average the products than to average first: the result is the same."""
    first = block.num_src * in_channels * out_channels + _ADDITION * block.num_edges * out_channels
    return first < block.num_dst * in_channels * out_channels + _ADDITION * block.num_edges * in_channels


class GINLayer(nn.Module):
    """Graph isomorphism network with a two-layer perceptron and a learnt epsilon (Xu et al. 2019)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))
        self.conv = GINConv(mlp, train_eps=True)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block."""
        out: Tensor = self.conv.nn(aggregate(block, x, block.weights) + (1 + self.conv.eps) * x[: block.num_dst])
        return out


class GATLayer(nn.Module):
    """Graph attention (Veličković et al. 2018); a destination attends to itself too."""

    def __init__(self, in_channels: int, out_channels: int, *, heads: int, concat: bool, dropout: float) -> None:
        super().__init__()
        width = out_channels // heads if concat else out_channels
        self.conv = GATConv(in_channels, width, heads=heads, concat=concat, dropout=dropout)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block."""
        refuse_weights(block, "arch gat")
        out: Tensor = self.conv((x, x[: block.num_dst]), block.edge_index(), size=(block.num_src, block.num_dst))
        return out


class GCNLayer(nn.Module):
    """Graph convolution (Kipf & Welling 2017), with the whole graph's degrees.

    PyG's ``GCNConv`` normalises by the degrees of the graph it is given, which in a block are those of the sample; hence its own few lines.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Apply to one block."""
        edge_weights, self_weights = gcn_weights(block, degrees)
        x = self.linear(x)
        return aggregate(block, x, edge_weights) + self_weights[:, None] * x[: block.num_dst] + self.bias
