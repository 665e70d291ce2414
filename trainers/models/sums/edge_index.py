"""A subclass of torch's Tensor for the ``edge_index`` of a sampled batch, which also holds the batch's blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hoptrain.samplers import Block


class Hop(NamedTuple):
    """The size of a block: the first ``num_edges`` edges lead from the first ``num_src`` nodes to the first ``num_dst`` nodes."""

    num_src: int
    num_dst: int
    num_edges: int


class SampledEdges(Tensor):
    """An ``edge_index`` (2, M) of all hops, sources above destinations, sorted by destination, that knows the block of each hop.

    It can be used as an ordinary tensor. ``to``, ``clone``, ``pin_memory``, ``narrow`` to some of the hops (PyG's ``trim_to_layer``), copies and pickles keep
    the blocks. Any other operation returns a plain tensor, and an in-place operation makes ``knows_blocks`` false.
    """

    # Operations return plain tensors, and torch.compile traces this class as a plain tensor.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    indptr: Tensor
    hops: tuple[Hop, ...]
    _version_at_start: int
    _blocks: dict[Hop, Block]
    norms: dict[Any, Any]
    """Cache of values that layers compute from the edges alone, such as normalised edge weights."""

    def __new__(cls, edge_index: Tensor, indptr: Tensor, hops: Iterable[Sequence[int]]) -> SampledEdges:
        """Create the edges of a batch from an ``edge_index`` and the sizes of its blocks.

        Args:
            edge_index: int64 edges (2, M).
            indptr: offsets (num_dst + 1,) of the outermost block's destinations into the edges.
            hops: sizes of the blocks, outermost first. Each block is a prefix of the one before.
        """
        made = edge_index.as_subclass(cls)
        made.indptr = indptr.to(edge_index.device, torch.int64)
        made.hops = tuple(Hop(*hop) for hop in hops)
        made._version_at_start, made._blocks, made.norms = changes(made), {}, {}
        return made

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> SampledEdges:
        """Return the edges of nested blocks, outermost first, of torch tensors."""
        return cls(blocks[0].edge_index(), blocks[0].indptr, [(block.num_src, block.num_dst, block.num_edges) for block in blocks])

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the batch, N."""
        return self.hops[0].num_src

    @property
    def knows_blocks(self) -> bool:
        """True if no operation has changed the edges in place."""
        return changes(self) == self._version_at_start

    def plain(self) -> Tensor:
        """Return the edges as a plain tensor that shares memory with this tensor."""
        return self.as_subclass(Tensor)

    def block_from(self, num_known: int) -> Block | None:
        """Return the largest block whose sources are among the first ``num_known`` nodes, or None."""
        hop = next((hop for hop in self.hops if hop.num_src <= num_known), None)
        if hop is None:
            return None
        if hop not in self._blocks:
            self._blocks[hop] = _block(self.indptr[: hop.num_dst + 1], self.plain()[0, : hop.num_edges], hop.num_src)
        return self._blocks[hop]

    def rest_of(self, block: Block) -> Block:
        """Return the block whose destinations are all nodes except for those of ``block``. Its first sources are not its destinations."""
        begin = self.indptr[block.num_dst :]
        without_edges = self.num_nodes - (len(self.indptr) - 1)
        indptr = torch.cat([begin, begin[-1:].expand(without_edges)]) - begin[0]
        return _block(indptr, self.plain()[0, block.num_edges : self.hops[0].num_edges], self.num_nodes)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Convert the edges as ``Tensor.to`` does, with the blocks."""
        return self._with_blocks(super().to(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> Tensor:
        """Copy the edges to the CPU, with the blocks."""
        return self._with_blocks(super().cpu(*args, **kwargs))

    def cuda(self, *args: Any, **kwargs: Any) -> Tensor:
        """Copy the edges to a GPU, with the blocks."""
        return self._with_blocks(super().cuda(*args, **kwargs))

    def clone(self, *args: Any, **kwargs: Any) -> Tensor:
        """Copy the edges, with the blocks."""
        return self._with_blocks(super().clone(*args, **kwargs))

    def contiguous(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the edges in contiguous memory, with the blocks."""
        return self._with_blocks(super().contiguous(*args, **kwargs))

    def detach(self) -> Tensor:
        """Return an alias of the edges, with the blocks."""
        return self._with_blocks(super().detach())

    def pin_memory(self, *args: Any, **kwargs: Any) -> Tensor:
        """Copy the edges to pinned memory, with the blocks."""
        return self._with_blocks(super().pin_memory(*args, **kwargs), pinned=True)

    def narrow(self, dim: int, start: Any, length: Any) -> Tensor:
        """Return some of the edges. If they are the edges of the innermost hops, as in PyG's ``trim_to_layer``, keep their blocks."""
        made = super().narrow(dim, start, length)
        inner = next((i for i, hop in enumerate(self.hops) if hop.num_edges == length), None)
        if dim not in (1, -1) or start != 0 or inner is None or not self.knows_blocks:
            return made
        trimmed = SampledEdges(made, self.indptr[: self.hops[inner].num_dst + 1], self.hops[inner:])
        trimmed._blocks = self._blocks  # shares the blocks, so that each block is transposed only once
        return trimmed

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = self.clone()
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (SampledEdges, (self.plain(), self.indptr, self.hops)) if self.knows_blocks else self.plain().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def _with_blocks(self, made: Tensor, pinned: bool = False) -> Tensor:
        """Return ``made``, a tensor with the values of these edges, as ``SampledEdges`` with the blocks; unchanged if its dtype differs."""
        if made is self or made.dtype != self.dtype or not self.knows_blocks:
            return made
        return SampledEdges(made, self.indptr.pin_memory() if pinned else self.indptr, self.hops)


def changes(tensor: Tensor) -> int:
    """Return how often torch changed a tensor in place; 0 for tensors of inference mode, whose changes torch does not count."""
    return 0 if tensor.is_inference() else tensor._version


def _block(indptr: Tensor, indices: Tensor, num_src: int) -> Block:
    return Block(indptr=indptr, indices=indices, edge_ids=None, num_src=num_src)  # no layer reads edge ids
