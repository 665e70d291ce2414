"""What a sampler makes: blocks and mini-batches. The arrays are NumPy arrays, or torch tensors after ``.to(device)``.

Index spaces: *global* ids name vertices of the graph; *local* ids count the nodes of a mini-batch, so that local id i is the vertex
``node_ids[i]``; *edge* ids are places in the graph's ``indices``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.transfer import copies_to

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
        weights: (M,) float32, how many of its destination's in-edges an edge stands for: the sum of ``weights[e] * f(e)`` over a destination's
            sampled edges is an unbiased estimate of the sum of ``f`` over all its in-edges. None where all edges of a destination stand for
            equally many, degree / sampled.
    """

    indptr: Any
    indices: Any
    edge_ids: Any
    num_src: int
    weights: Any = None

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
        indptr, (indices, edge_ids) = self.indptr[: num_dst + 1], (array[:num_edges] for array in (self.indices, self.edge_ids))
        weights = None if self.weights is None else self.weights[:num_edges]
        return Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=num_src, weights=weights)

    def edge_index(self) -> torch.Tensor:
        """(2, M) int64 tensor, sources above destinations, local ids: what PyG's layers take. On the device of the block."""
        import torch

        indptr, indices = (torch.as_tensor(a).long() for a in (self.indptr, self.indices))
        destinations = torch.repeat_interleave(torch.arange(self.num_dst, device=indptr.device), indptr.diff(), output_size=self.num_edges)
        return torch.stack([indices, destinations])

    def to(self, device: Any) -> Block:
        """The block as torch tensors on ``device``; as ``MiniBatch.to``."""
        with copies_to(device) as copy:
            return self.map(copy)

    def map(self, function: Callable[[Any], Any]) -> Block:
        """With ``function`` of each array in its place."""
        return replace(self, **{name: function(array) for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, Any]:
        """The arrays that there are, by name."""
        arrays = {name: getattr(self, name) for name in ("indptr", "indices", "edge_ids", "weights")}
        return {name: array for name, array in arrays.items() if array is not None}


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
        seed_weights: (B,) float32 weights of the seeds in the loss, or None where all weigh 1.
        extra: further arrays of a sampler, by names that its docstring tells.
        nested: whether every block is the beginning of the one before it (the same rows of the same arrays): each vertex was expanded once.
        sample_s: seconds spent on sampling.
        gather_s: seconds spent on gathering features and labels.
        made_at: when its sampling began, by ``time.perf_counter``, which the processes of a machine share; 0 where that was not noted.
        pid: process that made it.
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
    seed_weights: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    nested: bool = False
    sample_s: float = 0.0
    gather_s: float = 0.0
    made_at: float = 0.0
    pid: int = 0

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""
        return self.node_ids[: self.num_seeds]

    @property
    def num_edges(self) -> int:
        """Sampled edges; in nested blocks an edge counts once."""
        return self.blocks[0].num_edges if self.nested else sum(block.num_edges for block in self.blocks)

    def to(self, device: Any) -> MiniBatch:
        """The mini-batch as torch tensors on ``device``.

        To the CPU nothing is copied: the tensors share the arrays' memory. To a GPU the copies run beside what torch computes there; torch's
        current stream waits for them on the device, and a slot of the queue goes back to its worker once they are done.
        """
        with copies_to(device) as copy:
            return self.map(copy)

    def map(self, function: Callable[[Any], Any]) -> MiniBatch:
        """With ``function`` of each array in its place."""
        blocks = tuple(block.map(function) for block in (self.blocks[:1] if self.nested else self.blocks))
        if self.nested:
            blocks = tuple(blocks[0].beginning(block.num_dst, block.num_src, block.num_edges) for block in self.blocks)
        rows = {name: function(rows) for name in ("x", "y", "seed_weights") if (rows := getattr(self, name)) is not None}
        extra = {name: function(array) for name, array in self.extra.items()}
        return replace(self, node_ids=function(self.node_ids), blocks=blocks, extra=extra, **rows)

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.Data``, see ``hoptrain.samplers.batch.convert.to_pyg``."""
        from hoptrain.samplers.batch.convert import to_pyg

        return to_pyg(self)

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """Input nodes, seeds and DGL blocks, see ``hoptrain.samplers.batch.convert.to_dgl``."""
        from hoptrain.samplers.batch.convert import to_dgl

        return to_dgl(self)

    def arrays(self) -> dict[str, Array]:
        """The structure's arrays by name, for the queue; ``from_arrays`` puts them together again."""
        arrays = {"node_ids": self.node_ids} | {f"extra.{name}": array for name, array in self.extra.items()}
        if self.seed_weights is not None:
            arrays["seed_weights"] = self.seed_weights
        for i, block in enumerate(self.blocks[:1] if self.nested else self.blocks):
            arrays |= {f"{name}.{i}": array for name, array in block.arrays().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], *, num_src: tuple[int, ...], nested: bool = False, **facts: Any) -> MiniBatch:
        """A mini-batch from ``arrays()`` (and ``x`` and ``y`` beside them), the blocks' source counts and the other fields."""
        of_block: list[dict[str, Array]] = [{} for _ in num_src]
        extra: dict[str, Any] = {}
        rows: dict[str, Any] = {}
        for name, array in arrays.items():
            kind, _, key = name.partition(".")
            if kind == "extra":
                extra[key] = array
            elif key:
                of_block[int(key)][kind] = array
            else:
                rows[name] = array
        blocks = tuple(Block(num_src=n, **own) for n, own in zip(num_src, of_block, strict=True) if own)
        if nested:
            blocks = nested_blocks(blocks[0], num_src, facts["num_seeds"])
        return cls(blocks=blocks, nested=nested, extra=extra, **rows, **facts)


def nested_blocks(outermost: Block, num_src: Sequence[int], num_seeds: int) -> tuple[Block, ...]:
    """Blocks that are beginnings of ``outermost`` (NumPy arrays), by their numbers of sources: those of the next are a block's destinations."""
    num_dst = (*num_src[1:], num_seeds)
    return tuple(outermost.beginning(d, s, int(outermost.indptr[d])) for d, s in zip(num_dst, num_src, strict=True))
