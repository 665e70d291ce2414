"""A block's edges grouped by source, for the gradients of sums."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from hoptrain.samplers import Block


class Transposed(NamedTuple):
    """The edges of a block grouped by source; within a source, they keep the block's order.

    Attributes:
        indptr: offsets (num_src + 1,) of the sources' edges.
        indices: destinations (M,).
        order: index (M,) int64 of each edge in the block.
    """

    indptr: Tensor
    indices: Tensor
    order: Tensor


cache: WeakKeyDictionary[Block, Transposed] = WeakKeyDictionary()
"""Cache of transposed blocks, kept as long as the blocks exist. In full-batch training, every layer uses the same block in every epoch."""


def transpose(block: Block) -> Transposed:
    """Return the block's edges grouped by source, computed at the first call. Offsets and destinations are int32 on a GPU, else as in the block."""
    if block not in cache:
        cache[block] = _by_sort(block) if block.indices.is_cuda else _by_counting(block)
    return cache[block]


def _by_sort(block: Block) -> Transposed:
    by_source, order = torch.sort(block.indices.int(), stable=True)
    sources = torch.arange(block.num_src + 1, dtype=torch.int32, device=order.device)
    indptr = torch.searchsorted(by_source, sources, out_int32=True)
    owner = torch.searchsorted(block.indptr[1:].int(), order.int(), right=True, out_int32=True)
    return Transposed(indptr, owner, order)


def _by_counting(block: Block) -> Transposed:
    from hoptrain.kernels.cpu.training.transpose import group_by_source

    empty = block.indices.new_empty
    made = Transposed(empty(block.num_src + 1), empty(block.num_edges), empty(block.num_edges, dtype=torch.int64))
    group_by_source(block.indptr.numpy(), block.indices.numpy(), *(array.numpy() for array in made))
    return made
