"""Common parts of the PyG and DGL layers: layer names, dropout and edge weights."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import has_torch_function_unary

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.cpu.training import dropout as kernels
from hoptrain.kernels.shared.dropout import BLOCK
from hoptrain.samplers import Block
from hoptrain.trainers.models.cuda import dropout as on_gpu
from hoptrain.trainers.models.sums.threads import share

Arch = Literal["sage", "gat", "gcn", "gin", "gine", "gatv2", "transformer", "nnconv"]

_CHOICES = 1 << 16
"""Number of different values of 16 random bits."""
_DTYPES = (torch.float32, torch.float64)
"""Data types that the CPU's kernels of dropout read."""


class Dropout(nn.Dropout):
    """A faster ``nn.Dropout``; see ``dropout``."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply ``dropout``."""
        return dropout(input, self.p, self.training, self.inplace)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, set each number to zero with probability ``p`` and multiply the others by 1 / (1 - p). Shape and dtype are kept.

    torch's dropout stores a mask for the backward pass, and draws 64 bits for each number in one thread on a CPU. This function draws 16 bits for each
    number, so ``p`` is rounded to a multiple of 1 / 65,536. The bits are a function of the number's position and a seed from torch's generator of the CPU,
    so the backward pass computes them again, any number of threads can draw them, runs repeat and resume as usual, and a GPU drops what a CPU drops.

    torch's dropout is used for tensors that are traced, captured in a CUDA graph, or of a subclass, and on a GPU without numba-cuda.
    """
    if inplace or not _has_kernel(input, p, training):
        return F.dropout(input, p, training, inplace)
    x = input if input.dtype in _dtypes(input) else input.float()
    out: Tensor = _Dropout.apply(x, _seed(), round(p * _CHOICES))  # type: ignore[no-untyped-call]
    return out.to(input.dtype)


def relu_dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Compute ``dropout(relu(input))``, with the same bits and values. In training, one pass over the memory computes both."""
    if input.dtype not in _dtypes(input) or not _has_kernel(input, p, training):
        return dropout(F.relu(input), p, training)
    out: Tensor = _ReluDropout.apply(input, _seed(), round(p * _CHOICES))  # type: ignore[no-untyped-call]
    return out


def _has_kernel(input: Tensor, p: float, training: bool) -> bool:
    if not training or not 0 < round(p * _CHOICES) < _CHOICES or torch.compiler.is_compiling() or has_torch_function_unary(input):
        return False  # a subclass of Tensor has its own version of torch's function
    if input.is_cuda:  # a captured graph would repeat one seed
        return on_gpu.has_kernels() and not torch.cuda.is_current_stream_capturing()
    return input.device.type == "cpu"


def _dtypes(input: Tensor) -> tuple[torch.dtype, ...]:
    return on_gpu.DTYPES if input.is_cuda else _DTYPES


def _seed() -> int:
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None))


class _Dropout(torch.autograd.Function):
    """An autograd function that keeps only the seed of its random bits. Its backward pass is the same function of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, dropped: int) -> Tensor:
        ctx.seed, ctx.dropped = seed, dropped
        return _drop(x, seed, dropped, clip=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Dropout.apply(gradient, ctx.seed, ctx.dropped), None, None  # type: ignore[no-untyped-call]


class _ReluDropout(torch.autograd.Function):
    """An autograd function that keeps only its outputs: the gradient is zero where they are zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, dropped: int) -> Tensor:
        out = _drop(x, seed, dropped, clip=True)
        ctx.save_for_backward(out)
        ctx.dropped = dropped
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        [out], gradient = ctx.saved_tensors, gradient.contiguous()
        if out.is_cuda:
            return on_gpu.pass_gradient(gradient, out, ctx.dropped), None, None
        by_x = torch.empty_like(gradient)
        _share(kernels.pass_gradient, _numbers(gradient), _numbers(out), _scale(out, ctx.dropped), _numbers(by_x))
        return by_x, None, None


def _drop(x: Tensor, seed: int, dropped: int, clip: bool) -> Tensor:
    x = x.contiguous()
    if x.is_cuda:
        return on_gpu.drop(x, seed, dropped, clip=clip)
    out = torch.empty_like(x)
    _share(kernels.drop, _numbers(x), _numbers(out), np.uint64(seed % 2**64), np.uint32(dropped), _scale(x, dropped), clip)
    return out


def _numbers(tensor: Tensor) -> Array:
    numbers: Array = tensor.detach().view(-1).numpy()
    return numbers


def _scale(x: Tensor, dropped: int) -> Array:
    scale: Array = x.new_tensor(_CHOICES / (_CHOICES - dropped)).numpy()
    return scale[()]


def _share(kernel: Any, x: Array, *given: Any) -> None:
    """Run a kernel over the blocks of ``x`` in torch's number of threads."""
    share(partial(kernel, x, *given), -(-len(x) // BLOCK), len(x))


def gcn_weights(block: Block, degrees: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of GCN's normalised adjacency with self loops (Kipf & Welling 2017), from degrees in the whole graph.

    An edge j -> i has weight 1 / sqrt((d_i + 1) (d_j + 1)). If only some of the d_i edges were sampled, this is multiplied by the number of edges that
    the sampled edge represents: its weight from the sampler, or d_i / (number of sampled edges). So the sum is an unbiased estimate. The node itself
    has weight 1 / (d_i + 1), in addition to any self loop in the graph, as in A + I. PyG's ``GCNConv`` adds a self loop only where there is none.

    Returns:
        Weights (M,) of the edges and weights (num_dst,) of the destinations themselves.
    """
    return symmetric_weights(block, degrees, (degrees + 1).rsqrt())


def symmetric_weights(block: Block, degrees: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return edge weights (M,) and destination weights (num_dst,) for a symmetric normalisation.

    An edge j -> i has weight scale_i scale_j times the number of edges that it represents (see ``gcn_weights``). A destination has weight scale_i ** 2.

    Args:
        block: the block.
        degrees: in-degrees (num_src,) in the whole graph.
        scale: factor (num_src,) of each source, such as 1 / sqrt(degree + 1).
    """
    own = scale[: block.num_dst]
    of_destination = degrees[: block.num_dst] / block.indptr.diff().clamp(min=1) * own if block.weights is None else own
    edges = to_edges(block, of_destination)
    if block.weights is not None:
        edges = block.weights * edges
    return edges * scale[block.indices.long()], own**2


def mean_weights(block: Block, degrees: Tensor) -> Tensor:
    """Return weights (M,) float32 with which a sum over sampled edges estimates the mean over all in-edges, for a block with edge weights."""
    weights: Tensor = to_edges(block, 1 / degrees[: block.num_dst].clamp(min=1)) * block.weights
    return weights


def to_edges(block: Block, values: Tensor) -> Tensor:
    """Return for each edge (M,) the value of its destination, from ``values`` (num_dst,)."""
    if values.is_cuda:
        return values[block.destinations()]
    return torch.repeat_interleave(values, block.indptr.diff().long(), output_size=block.num_edges)


def refuse_weights(block: Block, layer: str) -> None:
    """Raise InputError if a block has edge weights, which the layer would ignore.

    Raises:
        InputError: the block has edge weights.
    """
    if block.weights is not None:
        raise InputError(
            f"{layer} cannot use the edge weights of this sampler: use arch sage, gcn or gin with conv pyg, or another sampler"
        )
