"""Layers that apply PyG's convolutions with edge features to a block. Each maps (num_src, C) to (num_dst, C')."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block
from hoptrain.trainers.models.layers import Arch, refuse_weights

OF_EDGES = ("gine", "gatv2", "transformer", "nnconv")
"""Names of the convolutions in this module."""
NEED_EDGE_FEATURES = ("gine", "nnconv")
"""Names of the convolutions that require edge features; for the others they are optional."""
WITH_HEADS = ("gat", "gatv2", "transformer")
"""Names of the convolutions with attention heads."""


@contextmanager
def temporary_pyg_files() -> Iterator[None]:
    """Within the context, delete the modules that PyG generates for convolutions in the temporary folder and would leave there."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="hoptrain-pyg-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before


class EdgeLayer(nn.Module):
    """A layer with one of PyG's convolutions, ``conv``, that reads edge features e with D channels.

    * ``gine``: GIN with ReLU(x_j + W e) as messages (Hu et al. 2020, "Strategies for pre-training graph neural networks").
    * ``gatv2``: attention that also reads e (Brody, Alon, Yahav 2022). A destination attends to itself too, with the mean e of its edges.
    * ``transformer``: attention with W e added to keys and values (Shi et al. 2021, "Masked label prediction").
    * ``nnconv``: the mean of A(e) x_j, where a linear map computes the matrix A(e) of each edge (Gilmer et al. 2017). Memory: M C C' numbers.
    """

    def __init__(
        self,
        arch: Arch,
        in_channels: int,
        out_channels: int,
        *,
        edge_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.arch, self.edge_channels, self.reads_edges = arch, edge_channels, edge_channels > 0
        attention: dict[str, Any] = {"heads": heads, "concat": concat, "dropout": dropout, "edge_dim": edge_channels or None}
        width = out_channels // heads if concat else out_channels
        with temporary_pyg_files():
            from torch_geometric.nn import GATv2Conv, GINEConv, NNConv, TransformerConv

            self.conv: nn.Module
            if arch == "gatv2":
                self.conv = GATv2Conv(in_channels, width, **attention)
            elif arch == "transformer":
                self.conv = TransformerConv(in_channels, width, **attention)
            elif arch == "gine":
                inner = max(
                    in_channels, out_channels
                )  # with an inner width of few classes, all ReLUs of the last layer would often be zero
                mlp = nn.Sequential(nn.Linear(in_channels, inner), nn.ReLU(), nn.Linear(inner, out_channels))
                self.conv = GINEConv(mlp, train_eps=True, edge_dim=edge_channels)
            else:
                self.conv = NNConv(in_channels, out_channels, nn.Linear(edge_channels, in_channels * out_channels), aggr="mean")

    def forward(self, x: Tensor, block: Block, degrees: Tensor) -> Tensor:
        """Compute the outputs (num_dst, C') of one block.

        Raises:
            InputError: the edges have no features, the number of features is not D, or the block has edge weights.
        """
        refuse_weights(block, f"arch {self.arch}")
        features = edge_features(block, self.edge_channels, x.dtype)
        out: Tensor = self.conv((x, x[: block.num_dst]), block.edge_index(), features)
        return out


def edge_features(block: Block, edge_channels: int, dtype: torch.dtype) -> Tensor | None:
    """Return the block's edge features (M, ``edge_channels``): float64 if ``dtype`` is float64, else float32. Return None if the layer reads no edge features.

    Raises:
        InputError: the edges have no features, or another number of them.
    """
    if not edge_channels:
        return None
    width = 0 if block.edge_attr is None else block.edge_attr.shape[1]
    if width != edge_channels:
        raise InputError(
            f"the model takes {edge_channels} features of an edge, the batch has {width}: use the data set that the model was built for "
            "(Dataset.edge_attr)"
        )
    features: Tensor = block.edge_attr.to(dtype if dtype == torch.float64 else torch.float32)
    return features
