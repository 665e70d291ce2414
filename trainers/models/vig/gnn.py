"""Vision GNN (Han et al. 2022, "Vision GNN: An Image is Worth Graph of Nodes"): an image as a graph of its patches or pixels.

Shapes: B images of (H, W, C), N nodes an image (one a patch), D features a node. Between any two layers stands (B, N, D), so a pipeline can
cut anywhere without padding. ``norm: batch`` takes its statistics over all images at hand, so it is not exact when a batch is cut into chunks or
shared out among ranks; ``layer`` (each node alone) and ``group`` (each image alone) are.

The configuration of Raffi 2024 (pixels as nodes, 8 blocks) is ``patch=1, width=None, conv_width=256, ffn_width=512, head_width=1024, conv="sum"``
on images of three channels, which with any ``norm`` and ``graph`` has 138,258 parameters a block and 1,120,410 in all: the paper's counts.
The paper prints no widths; these are of its author's published program, where the graph is ``grid``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.trainers.models.vig.layers import Grid, ImageNorm, MaxRelativeConv, Nearest, SumConv, linear

ImageGraph = Literal["knn", "grid"]
ImageConv = Literal["max-relative", "sum"]


class ViG(nn.Module):
    """Stem, ``num_blocks`` blocks of a Grapher and a feed-forward part, head. These are its layers for a pipeline."""

    def __init__(
        self,
        image_shape: Sequence[int],
        num_classes: int,
        *,
        patch: int = 4,
        width: int | None = 96,
        conv_width: int | None = None,
        ffn_width: int | None = None,
        head_width: int = 1024,
        num_blocks: int = 8,
        neighbors: int = 9,
        heads: int = 4,
        graph: ImageGraph = "knn",
        conv: ImageConv = "max-relative",
        norm: ImageNorm = "group",
    ) -> None:
        """Build the layers.

        Args:
            image_shape: (H, W, C).
            num_classes: number of classes.
            patch: side of the square of pixels that is a node; 1 makes pixels nodes.
            width: D, features of a node between blocks; null takes the values of a patch as they are, without a stem to learn.
            conv_width: width of the graph convolution; by default D.
            ffn_width: inner width of the feed-forward part; by default 4 D.
            head_width: inner width of the classifier.
            num_blocks: number of blocks.
            neighbors: k of ``graph: knn``, the node itself included. As in the paper every fourth block doubles, triples, ... the reach: it takes
                every second, third, ... of so many more nearest nodes.
            heads: groups of channels that max-relative convolution mixes apart from one another.
            graph: knn joins a node to the most similar ones, anew in every block; grid to the eight around it.
            conv: max-relative (the paper's) or sum (of the neighbours, and the node by weights of its own).
            norm: normalisation behind each linear map: group (each image by itself), layer (each node by itself) or batch (all images at
                hand, as in the paper: not exact when a batch is shared out among ranks or cut into chunks).

        Raises:
            InputError: sizes that do not fit.
        """
        super().__init__()
        rows, columns = _patches(image_shape, patch)
        widths = {"width": width, "conv_width": conv_width, "ffn_width": ffn_width, "head_width": head_width}
        _check_sizes(rows * columns, num_blocks, neighbors, heads=heads, **widths)
        values = patch * patch * image_shape[2]
        self.stem = Stem(patch, values, width, rows * columns)
        width = width or values
        conv_width, ffn_width = conv_width or width, ffn_width or 4 * width
        if conv == "max-relative" and 2 * conv_width % heads:
            raise InputError(f"conv_width is {conv_width}: {heads} heads share twice as many channels; give a multiple of {heads}")
        self.blocks = nn.ModuleList()
        for number in range(num_blocks):
            make_graph = Grid(rows, columns) if graph == "grid" else Nearest(neighbors, min(1 + number // 4, rows * columns // neighbors))
            convolution = SumConv(conv_width) if conv == "sum" else MaxRelativeConv(conv_width, heads, norm)
            grapher = Grapher(width, conv_width, convolution, make_graph, norm)
            self.blocks.append(nn.Sequential(grapher, FeedForward(width, ffn_width, norm)))
        self.head = Head(width, head_width, num_classes)
        self._shape = (rows * columns, width)

    def forward(self, images: Tensor) -> Tensor:
        """(B, H, W, C) float images to (B, num_classes) logits."""
        x = images
        for i in range(self.num_layers):
            x = self.layer(i, x)
        return x

    @property
    def num_layers(self) -> int:
        """Stem, blocks and head."""
        return len(self.blocks) + 2

    def layer(self, i: int, x: Tensor) -> Tensor:
        """Layer ``i`` alone: it takes what the one before it gives, and nothing else."""
        out: Tensor = self.get_submodule(*self.modules_of(i))(x)
        return out

    def shape(self, i: int) -> tuple[int, int]:
        """(N, D), the shape of one image where it enters layer ``i``, i in 1 to L - 1."""
        return self._shape

    def modules_of(self, i: int) -> tuple[str]:
        """The name of the submodule that layer ``i`` is."""
        return ("stem",) if i == 0 else ("head",) if i == self.num_layers - 1 else (f"blocks.{i - 1}",)


def _patches(image_shape: Sequence[int], patch: int) -> tuple[int, int]:
    """Rows and columns of patches."""
    height, breadth, _ = image_shape
    if patch < 1 or height % patch or breadth % patch:
        raise InputError(f"patch is {patch}: squares of that side have to cover an image of {height} x {breadth}; give a common divisor")
    return height // patch, breadth // patch


def _check_sizes(num_nodes: int, num_blocks: int, neighbors: int, **sizes: int | None) -> None:
    """Refuse a model without something."""
    if num_blocks < 1 or not 1 <= neighbors <= num_nodes:
        raise InputError(
            f"{num_blocks} blocks with {neighbors} neighbors: at least one block, and from 1 to {num_nodes} neighbors, the nodes"
        )
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}: a model needs some; give 1 or more")


class Stem(nn.Module):
    """(B, H, W, C) to (B, N, D): patches in rows, by a linear map with a learnt vector for each place; without ``width`` as they are."""

    def __init__(self, patch: int, values: int, width: int | None, num_nodes: int) -> None:
        super().__init__()
        self.patch = patch
        self.linear = None if width is None else nn.Linear(values, width)
        self.places = None if width is None else nn.Parameter(torch.zeros(num_nodes, width))
        if self.places is not None:
            nn.init.normal_(self.places, std=0.5)

    def forward(self, images: Tensor) -> Tensor:
        """Cut into patches and embed."""
        batch, height, breadth, channels = images.shape
        side = self.patch
        patches = images.view(batch, height // side, side, breadth // side, side, channels).transpose(2, 3)
        x = patches.reshape(batch, (height // side) * (breadth // side), side * side * channels)
        return x if self.linear is None or self.places is None else self.linear(x) + self.places


class Grapher(nn.Module):
    """(B, N, D) to (B, N, D): a linear map to ``conv_width``, a graph, a convolution over it, and a linear map back; a shortcut around all."""

    def __init__(self, width: int, conv_width: int, conv: SumConv | MaxRelativeConv, graph: Grid | Nearest, norm: ImageNorm) -> None:
        super().__init__()
        self.inward = linear(width, conv_width, norm)
        self.graph = graph
        self.conv = conv
        self.outward = linear(conv.out_width, width, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        inner = self.inward(x)
        out: Tensor = x + self.outward(self.conv(inner, self.graph(inner)))
        return out


class FeedForward(nn.Module):
    """(B, N, D) to (B, N, D): each node by itself, with a shortcut."""

    def __init__(self, width: int, ffn_width: int, norm: ImageNorm) -> None:
        super().__init__()
        self.inward = linear(width, ffn_width, norm)
        self.outward = linear(ffn_width, width, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        out: Tensor = x + self.outward(F.gelu(self.inward(x)))
        return out


class Head(nn.Module):
    """(B, N, D) to (B, num_classes): the mean over the nodes, then two linear maps."""

    def __init__(self, width: int, head_width: int, num_classes: int) -> None:
        super().__init__()
        self.inward = nn.Linear(width, head_width)
        self.outward = nn.Linear(head_width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        out: Tensor = self.outward(F.gelu(self.inward(x.mean(1))))
        return out
