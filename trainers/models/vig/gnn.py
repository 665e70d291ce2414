"""Vision GNN (Han et al. 2022, "Vision GNN: An Image is Worth Graph of Nodes"): an image as a graph of its patches or pixels.

Shapes: B images of (H, W, C), N nodes per image (one per patch), D features per node. Activations between any two layers are (B, N, D), so a pipeline
can split the model between any two layers without padding. ``norm: batch`` computes statistics over all images in the chunk, so its results change if a
batch is divided into chunks or across ranks; results of ``layer`` (per node) and ``group`` (per image) do not.

The configuration of Raffi 2024 (pixels as nodes, 8 blocks) is ``patch=1, width=None, conv_width=256, ffn_width=512, head_width=1024, conv="sum"`` on
images of three channels. With any ``norm`` and ``graph`` it has 138,258 parameters per block and 1,120,410 in total, which are the paper's counts.
The paper does not state widths; these are from its author's published program, where the graph is ``grid``.
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
    """A Vision GNN: a stem, ``num_blocks`` blocks of a Grapher and a feed-forward part, and a head. Each of these is a layer that a pipeline can split at."""

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
            image_shape: height, width and channels (H, W, C) of an image.
            num_classes: number of classes.
            patch: side in pixels of the square patch that is a node; 1 makes each pixel a node.
            width: number of features of a node between blocks, D; null takes a patch's pixel values unchanged, without a learned stem.
            conv_width: width of the graph convolution; by default D.
            ffn_width: inner width of the feed-forward part; by default 4 D.
            head_width: inner width of the classifier.
            num_blocks: number of blocks.
            neighbors: number of neighbours in ``graph: knn``, k, including the node itself. As in the paper, the dilation d grows by 1 every four
                blocks: neighbours are every d-th of the d k nearest nodes.
            heads: number of channel groups that the max-relative convolution mixes separately.
            graph: knn joins a node to the most similar ones, recomputed in every block; grid joins it to the eight nodes around it.
            conv: max-relative (as in the paper) or sum (over neighbours; the node itself has its own weights).
            norm: normalisation after each linear map: group (per image), layer (per node) or batch (over all images of a chunk, as in the paper; results
                then change if a batch is divided across ranks or into chunks).

        Raises:
            InputError: sizes do not match.
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
            raise InputError(f"conv_width is {conv_width}: {heads} heads divide twice as many channels; give a multiple of {heads}")
        self.blocks = nn.ModuleList()
        for number in range(num_blocks):
            make_graph = Grid(rows, columns) if graph == "grid" else Nearest(neighbors, min(1 + number // 4, rows * columns // neighbors))
            convolution = SumConv(conv_width) if conv == "sum" else MaxRelativeConv(conv_width, heads, norm)
            grapher = Grapher(width, conv_width, convolution, make_graph, norm)
            self.blocks.append(nn.Sequential(grapher, FeedForward(width, ffn_width, norm)))
        self.head = Head(width, head_width, num_classes)
        self._shape = (rows * columns, width)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (B, num_classes) of float images (B, H, W, C)."""
        x = images
        for i in range(self.num_layers):
            x = self.layer(i, x)
        return x

    @property
    def num_layers(self) -> int:
        """Number of layers: stem, blocks and head."""
        return len(self.blocks) + 2

    def layer(self, i: int, x: Tensor) -> Tensor:
        """Apply layer ``i`` to the output of the previous layer."""
        out: Tensor = self.get_submodule(*self.modules_of(i))(x)
        return out

    def shape(self, i: int) -> tuple[int, int]:
        """Return the shape (N, D) of one image at the input of layer ``i``, in [1, L - 1]."""
        return self._shape

    def modules_of(self, i: int) -> tuple[str]:
        """Return the name of the submodule of layer ``i``."""
        return ("stem",) if i == 0 else ("head",) if i == self.num_layers - 1 else (f"blocks.{i - 1}",)


def _patches(image_shape: Sequence[int], patch: int) -> tuple[int, int]:
    """Return the numbers of rows and columns of patches."""
    height, breadth, _ = image_shape
    if patch < 1 or height % patch or breadth % patch:
        raise InputError(f"patch is {patch}: its squares must cover an image of {height} x {breadth}; give a common divisor")
    return height // patch, breadth // patch


def _check_sizes(num_nodes: int, num_blocks: int, neighbors: int, **sizes: int | None) -> None:
    """Raise InputError if a size is out of range."""
    if num_blocks < 1 or not 1 <= neighbors <= num_nodes:
        raise InputError(
            f"{num_blocks} blocks with {neighbors} neighbors: give at least one block, and from 1 to {num_nodes} neighbors, the number of nodes"
        )
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}: it must be at least 1; give 1 or more")


class Stem(nn.Module):
    """A module from images (B, H, W, C) to patches (B, N, D): a linear map plus a learned position vector, or the pixel values if ``width`` is None."""

    def __init__(self, patch: int, values: int, width: int | None, num_nodes: int) -> None:
        super().__init__()
        self.patch = patch
        self.linear = None if width is None else nn.Linear(values, width)
        self.places = None if width is None else nn.Parameter(torch.zeros(num_nodes, width))
        if self.places is not None:
            nn.init.normal_(self.places, std=0.5)

    def forward(self, images: Tensor) -> Tensor:
        """Divide images into patches and embed them."""
        batch, height, breadth, channels = images.shape
        side = self.patch
        patches = images.view(batch, height // side, side, breadth // side, side, channels).transpose(2, 3)
        x = patches.reshape(batch, (height // side) * (breadth // side), side * side * channels)
        return x if self.linear is None or self.places is None else self.linear(x) + self.places


class Grapher(nn.Module):
    """A residual module on (B, N, D): a linear map to ``conv_width``, a graph convolution, and a linear map back."""

    def __init__(self, width: int, conv_width: int, conv: SumConv | MaxRelativeConv, graph: Grid | Nearest, norm: ImageNorm) -> None:
        super().__init__()
        self.inward = linear(width, conv_width, norm)
        self.graph = graph
        self.conv = conv
        self.outward = linear(conv.out_width, width, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the graph of the nodes ``x`` (B, N, D), and return ``x`` plus the convolution over it, (B, N, D)."""
        inner = self.inward(x)
        out: Tensor = x + self.outward(self.conv(inner, self.graph(inner)))
        return out


class FeedForward(nn.Module):
    """A residual MLP on (B, N, D), applied to each node separately."""

    def __init__(self, width: int, ffn_width: int, norm: ImageNorm) -> None:
        super().__init__()
        self.inward = linear(width, ffn_width, norm)
        self.outward = linear(ffn_width, width, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (B, N, D) plus the MLP of each node."""
        out: Tensor = x + self.outward(F.gelu(self.inward(x)))
        return out


class Head(nn.Module):
    """A classifier from (B, N, D) to (B, num_classes): the mean over nodes, then two linear maps."""

    def __init__(self, width: int, head_width: int, num_classes: int) -> None:
        super().__init__()
        self.inward = nn.Linear(width, head_width)
        self.outward = nn.Linear(head_width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits (B, num_classes) from nodes (B, N, D)."""
        out: Tensor = self.outward(F.gelu(self.inward(x.mean(1))))
        return out
