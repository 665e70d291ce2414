"""What a sampler makes: blocks and mini-batches. The arrays are NumPy arrays, or torch tensors after ``.to(device)``.

Index spaces: *global* ids name vertices of the graph; *local* ids count the nodes of a mini-batch, so that local id i is the vertex
``node_ids[i]``; *edge* ids are places in the graph's ``indices``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine.arrays import BFLOAT16, Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Block:
    """One hop's bipartite graph: ``num_dst`` destinations, ``num_src`` sources, M edges; the destinations are the first sources.

    Attributes:
        indptr: (num_dst+1,) offsets into ``indices``.
        indices: (M,) sources, local ids in [0, num_src).
        edge_ids: (M,) edge ids in the graph.
        num_src: number of sources.
    """

    indptr: Any
    indices: Any
    edge_ids: Any
    num_src: int

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """M."""
        return len(self.indices)

    def beginning(self, num_dst: int, num_src: int, num_edges: int) -> Block:
        """The block of the first ``num_dst`` destinations, which have ``num_edges`` edges: views."""
        return Block(
            indptr=self.indptr[: num_dst + 1], indices=self.indices[:num_edges], edge_ids=self.edge_ids[:num_edges], num_src=num_src
        )

    def edge_index(self) -> torch.Tensor:
        """(2, M) int64 tensor, sources above destinations, local ids: what PyG's layers take. On the device of the block."""
        import torch

        indptr, indices = (torch.as_tensor(a).long() for a in (self.indptr, self.indices))
        destinations = torch.repeat_interleave(torch.arange(self.num_dst, device=indptr.device), indptr.diff(), output_size=self.num_edges)
        return torch.stack([indices, destinations])

    def to(self, device: Any) -> Block:
        """The block as torch tensors on ``device``."""
        indptr, indices, edge_ids = (_to(a, device) for a in (self.indptr, self.indices, self.edge_ids))
        return replace(self, indptr=indptr, indices=indices, edge_ids=edge_ids)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class MiniBatch:
    """Seeds, the blocks that lead to them, and the features and labels that training on them needs.

    Attributes:
        node_ids: (S,) global ids of the input nodes: the seeds first, then every other vertex in order of first appearance.
        blocks: one a hop, in the order in which a model applies them: ``blocks[0]`` has all S nodes as sources, ``blocks[-1]`` has the seeds
            as destinations. Sources of any block are ``node_ids[:block.num_src]``.
        num_seeds: B.
        x: (S, F) features of the input nodes, or None.
        y: (B,) or (B, C) labels of the seeds, or None.
        seed: the user's seed; with epoch and batch it is the address of all the batch's random numbers.
        epoch: the epoch it belongs to.
        batch: its number within the epoch, over all ranks.
        num_step_seeds: seeds of this step over all ranks; B with one rank.
        nested: whether every block is the beginning of the one before it (the same rows of the same arrays): each vertex was expanded once.
        sample_s: seconds spent on sampling.
        gather_s: seconds spent on gathering features and labels.
    """

    node_ids: Any
    blocks: tuple[Block, ...]
    num_seeds: int
    x: Any = None
    y: Any = None
    seed: int = 0
    epoch: int = 0
    batch: int = 0
    num_step_seeds: int = 0
    nested: bool = False
    sample_s: float = 0.0
    gather_s: float = 0.0

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""
        return self.node_ids[: self.num_seeds]

    @property
    def num_edges(self) -> int:
        """Sampled edges; in nested blocks an edge counts once."""
        return self.blocks[0].num_edges if self.nested else sum(block.num_edges for block in self.blocks)

    def to(self, device: Any) -> MiniBatch:
        """The mini-batch as torch tensors on ``device``. To the CPU nothing is copied: the tensors share the arrays' memory."""
        blocks = tuple(block.to(device) for block in (self.blocks[:1] if self.nested else self.blocks))
        if self.nested:
            blocks = tuple(blocks[0].beginning(block.num_dst, block.num_src, block.num_edges) for block in self.blocks)
        return replace(
            self,
            node_ids=_to(self.node_ids, device),
            blocks=blocks,
            x=_to(self.x, device),
            y=_to(self.y, device),
        )

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.Data``, see ``hoptrain.samplers.convert.to_pyg``."""
        from hoptrain.samplers.convert import to_pyg

        return to_pyg(self)

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """Input nodes, seeds and DGL blocks, see ``hoptrain.samplers.convert.to_dgl``."""
        from hoptrain.samplers.convert import to_dgl

        return to_dgl(self)

    def arrays(self) -> dict[str, Array]:
        """The structure's arrays by name, for the queue; ``from_arrays`` puts them together again."""
        arrays = {"node_ids": self.node_ids}
        for i, block in enumerate(self.blocks[:1] if self.nested else self.blocks):
            arrays |= {f"indptr{i}": block.indptr, f"indices{i}": block.indices, f"edge_ids{i}": block.edge_ids}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], *, num_src: tuple[int, ...], nested: bool = False, **facts: Any) -> MiniBatch:
        """A mini-batch from ``arrays()`` (and ``x`` and ``y`` beside them), the blocks' source counts and the other fields."""
        blocks = tuple(
            Block(indptr=arrays[f"indptr{i}"], indices=arrays[f"indices{i}"], edge_ids=arrays[f"edge_ids{i}"], num_src=n)
            for i, n in enumerate(num_src[:1] if nested else num_src)
        )
        if nested:
            blocks = nested_blocks(blocks[0], num_src, facts["num_seeds"])
        return cls(node_ids=arrays["node_ids"], blocks=blocks, nested=nested, x=arrays.get("x"), y=arrays.get("y"), **facts)


def nested_blocks(outermost: Block, num_src: Sequence[int], num_seeds: int) -> tuple[Block, ...]:
    """Blocks that are beginnings of ``outermost`` (NumPy arrays), by their numbers of sources: those of the next are a block's destinations."""
    num_dst = (*num_src[1:], num_seeds)
    return tuple(outermost.beginning(d, s, int(outermost.indptr[d])) for d, s in zip(num_dst, num_src, strict=True))


def as_tensor(array: Any) -> torch.Tensor:
    """A NumPy array as a torch tensor that shares its memory; ``BFLOAT16`` becomes ``torch.bfloat16``. A tensor stays as it is."""
    import torch

    if isinstance(array, torch.Tensor):
        return array
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to(array: Any, device: Any) -> Any:
    return None if array is None else as_tensor(array).to(device, non_blocking=True)
