"""Graphs, convolutions and normalisations of a Vision GNN. Shapes: B images, N nodes per image, D features."""

from __future__ import annotations

from itertools import product
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ImageNorm = Literal["group", "layer", "batch"]


class Neighbors(NamedTuple):
    """The neighbours of all nodes of a batch. The index of a node is its row in (B * N, D).

    Attributes:
        indices: (B * N, k), or (E,) grouped by node.
        offsets: start (B * N,) of each node's group if ``indices`` are (E,), else None.
    """

    indices: Tensor
    offsets: Tensor | None = None

    def reduce(self, x: Tensor, mode: Literal["sum", "max"]) -> Tensor:
        """Return the sum or maximum over each node's neighbours, (B, N, D), without storing a vector per edge."""
        return F.embedding_bag(self.indices, x.flatten(0, 1), self.offsets, mode=mode).view_as(x)


class Nearest(nn.Module):
    """A module that makes neighbours of a node every ``step``-th of the ``k * step`` most similar nodes of its image, by cosine similarity."""

    def __init__(self, k: int, step: int) -> None:
        super().__init__()
        self.k, self.step = k, step

    @torch.no_grad()
    def forward(self, x: Tensor) -> Neighbors:
        """Return the neighbours of all nodes, given their features ``x`` (B, N, D)."""
        batch, num_nodes, _ = x.shape
        directions = F.normalize(x, dim=2)
        nearest = (directions @ directions.transpose(1, 2)).topk(self.k * self.step).indices[:, :, :: self.step]
        begins = torch.arange(0, batch * num_nodes, num_nodes, device=x.device)
        return Neighbors((nearest + begins[:, None, None]).flatten(0, 1))

    def extra_repr(self) -> str:
        """Return the options for ``repr``."""
        return f"k={self.k}, step={self.step}"


class Grid(nn.Module):
    """A module that makes the nodes around a node its neighbours: eight, or fewer at the border."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        around = [_around(row, column, rows, columns) for row, column in product(range(rows), range(columns))]
        self.indices: Tensor
        self.offsets: Tensor
        self.register_buffer("indices", torch.tensor([vertex for bag in around for vertex in bag], dtype=torch.int64), persistent=False)
        self.register_buffer("offsets", torch.tensor([0, *map(len, around[:-1])]).cumsum(0), persistent=False)

    def forward(self, x: Tensor) -> Neighbors:
        """Return the neighbours in the grid, repeated for each image of ``x`` (B, N, D)."""
        images = torch.arange(len(x), device=x.device)[:, None]
        indices, offsets = self.indices + images * x.shape[1], self.offsets + images * len(self.indices)
        return Neighbors(indices.flatten(), offsets.flatten())


def _around(row: int, column: int, rows: int, columns: int) -> list[int]:
    """Return the grid neighbours of a node: the up to eight nodes in the same or adjacent rows and columns."""
    near = product(range(max(0, row - 1), min(rows, row + 2)), range(max(0, column - 1), min(columns, column + 2)))
    return [r * columns + c for r, c in near if (r, c) != (row, column)]


class MaxRelativeConv(nn.Module):
    """A convolution from (B, N, D) to (B, N, 2 D): a node and its largest difference to neighbours, mixed in ``heads`` channel groups."""

    def __init__(self, width: int, heads: int, norm: ImageNorm) -> None:
        super().__init__()
        self.out_width = 2 * width
        self.heads = nn.ModuleList(nn.Linear(2 * width // heads, 2 * width // heads) for _ in range(heads))
        self.norm = make_norm(norm, 2 * width)

    def forward(self, x: Tensor, neighbors: Neighbors) -> Tensor:
        """Compute the outputs (B, N, 2 D) from the nodes ``x`` (B, N, D)."""
        relative = neighbors.reduce(x, "max") - x
        both = torch.stack([x, relative], dim=-1).flatten(2)  # interleave channels and differences, so that every head has both
        parts = [head(part) for head, part in zip(self.heads, both.chunk(len(self.heads), dim=2), strict=True)]
        return F.gelu(self.norm(torch.cat(parts, dim=2)))


class SumConv(nn.Module):
    """A convolution from (B, N, D) to (B, N, D): one matrix for the sum of neighbours, another for the node itself (PyG's ``GraphConv``)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_width = width
        self.of_neighbors = nn.Linear(width, width)
        self.of_itself = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, neighbors: Neighbors) -> Tensor:
        """Compute the outputs (B, N, D) from the nodes ``x`` (B, N, D)."""
        return F.gelu(self.of_neighbors(neighbors.reduce(x, "sum")) + self.of_itself(x))


class ImageWise(nn.Module):
    """A normalisation of (B, N, D) by the mean and variance of each image, with a scale and a shift per channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the nodes ``x`` (B, N, D)."""
        return torch.addcmul(self.bias, F.layer_norm(x, x.shape[1:]), self.weight)


class BatchWise(nn.BatchNorm1d):
    """A batch normalisation over all nodes of all images (B, N, D)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the nodes ``x`` (B, N, D)."""
        return super().forward(x.flatten(0, 1)).view_as(x)


def make_norm(norm: ImageNorm, width: int) -> nn.Module:
    """Build the normalisation that ``norm`` names, with 2 * ``width`` parameters."""
    kinds: dict[ImageNorm, type[nn.Module]] = {"group": ImageWise, "layer": nn.LayerNorm, "batch": BatchWise}
    return kinds[norm](width)


def linear(in_width: int, out_width: int, norm: ImageNorm) -> nn.Sequential:
    """Build a linear map followed by a normalisation."""
    return nn.Sequential(nn.Linear(in_width, out_width), make_norm(norm, out_width))
