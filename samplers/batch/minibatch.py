"""What a sampler makes: blocks and mini-batches. The arrays are NumPy arrays, or torch tensors after ``.to(device)``.

Index spaces: *global* ids name vertices of the graph; *local* ids count the nodes of a mini-batch, so that local id i is the vertex
``node_ids[i]``; the *edge* ids of a block are places in the graph's ``indices``, of which ``MiniBatch.ids_of`` tells the ids that the graph's
maker gave (``Graph.edge_ids``): PyG's and DGL's objects have the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array, ids_at
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.queue.shared_memory import mapped_file
from hoptrain.samplers.batch.sampled import SampledBatch
from hoptrain.samplers.batch.transfer import as_tensor, copies_to

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, weakref_slot=True)
class Block:
    """One hop's bipartite graph: ``num_dst`` destinations, ``num_src`` sources, M edges; the destinations are the first sources.

    Attributes:
        indptr: (num_dst+1,) offsets into ``indices``.
        indices: (M,) sources, local ids in [0, num_src).
        edge_ids: (M,) places of the edges in the graph's ``indices``, -1 for what is no edge of the graph. ``MiniBatch.ids_of`` tells their ids.
        num_src: number of sources.
        weights: (M,) float32, how many of its destination's in-edges an edge stands for: the sum of ``weights[e] * f(e)`` over a destination's
            sampled edges is an unbiased estimate of the sum of ``f`` over all its in-edges. None where all edges of a destination stand for
            equally many, degree / sampled.
        edge_attr: (M, D) features of the edges as stored, where the data set has some: the loader adds them.

    Examples:
        >>> from hoptrain import Graph, NeighborSampler
        >>> graph = Graph.from_edges([0, 1, 2, 2], [1, 2, 0, 1])
        >>> batch = NeighborSampler([-1]).sample(graph, [1])
        >>> block = batch.blocks[0]
        >>> block.num_dst, block.num_src
        (1, 3)
        >>> batch.node_ids[block.indices[block.indptr[0] : block.indptr[1]]]  # the sources of the first destination
        array([0, 2], dtype=int32)
        >>> block.edge_index()
        tensor([[1, 2],
                [0, 0]])
    """

    indptr: Any
    indices: Any
    edge_ids: Any
    num_src: int
    weights: Any = None
    edge_attr: Any = None

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        number: int = self.indptr.shape[0] - 1  # of a tensor that is traced len would be a constant
        return number

    @property
    def num_edges(self) -> int:
        """M."""
        number: int = self.indices.shape[0]
        return number

    def beginning(self, num_dst: int, num_src: int, num_edges: int) -> Block:
        """The block of the first ``num_dst`` destinations, which have ``num_edges`` edges: views."""
        indptr, (indices, edge_ids) = self.indptr[: num_dst + 1], (array[:num_edges] for array in (self.indices, self.edge_ids))
        weights, edge_attr = (None if rows is None else rows[:num_edges] for rows in (self.weights, self.edge_attr))
        return Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=num_src, weights=weights, edge_attr=edge_attr)

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
        changed = {name: function(array) for name, array in self.arrays().items()}
        return replace(self, edge_attr=None if self.edge_attr is None else function(self.edge_attr), **changed)

    def arrays(self) -> dict[str, Any]:
        """The arrays of the structure that there are, by name."""
        arrays = {name: getattr(self, name) for name in ("indptr", "indices", "edge_ids", "weights")}
        return {name: array for name, array in arrays.items() if array is not None}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class MiniBatch(SampledBatch):
    """Seeds, the blocks that lead to them, and the features and labels that training on them needs; further fields are those of ``SampledBatch``.

    Attributes:
        node_ids: (S,) global ids of the input nodes: the seeds first, then every other vertex in order of first appearance.
        blocks: one a hop, in the order in which a model applies them: ``blocks[0]`` has all S nodes as sources, ``blocks[-1]`` has the seeds
            as destinations. Sources of any block are ``node_ids[:block.num_src]``.
        x: (S, F) features of the input nodes, or None.
        y: (B,) or (B, C) labels of the seeds, or None.
        seed_weights: (B,) float32 weights of the seeds in the loss, or None where all weigh 1.
        extra: further arrays of a sampler, by names that its docstring tells.
        nested: whether every block is the beginning of the one before it (the same rows of the same arrays): each vertex was expanded once.
        repeats_edges: whether hops draw with replacement: what several hops drew are as many draws, though it be the same edge.
        subgraph_sizes: where each seed has a subgraph of its own, how many other nodes it holds (B numbers): these stand behind the seeds, those of
            the first seed's subgraph first. Else None.
        graph_edge_ids: ``Graph.edge_ids`` of the graph that was sampled, itself and no copy: on the host, wherever the batch is.

    Examples:
        >>> from hoptrain import NeighborSampler, SampleLoader, load_dataset
        >>> batch = next(iter(SampleLoader(load_dataset("digits-knn"), NeighborSampler([5, 5]), batch_size=64)))
        >>> batch.num_seeds, len(batch.node_ids), batch.x.shape, batch.y.shape
        (64, 970, (970, 64), (64,))
        >>> batch.to("cpu").x.dtype  # the batch in torch tensors
        torch.float32
    """

    node_ids: Any
    blocks: tuple[Block, ...]
    x: Any = None
    y: Any = None
    seed_weights: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    nested: bool = False
    repeats_edges: bool = False
    subgraph_sizes: tuple[int, ...] | None = None
    graph_edge_ids: Array | None = None

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""
        return self.node_ids[: self.num_seeds]

    @property
    def num_edges(self) -> int:
        """Sampled edges; in nested blocks an edge counts once."""
        return self.blocks[0].num_edges if self.nested else sum(block.num_edges for block in self.blocks)

    def map(self, function: Callable[[Any], Any]) -> MiniBatch:
        """With ``function`` of each array in its place."""
        blocks = self._with_blocks(block.map(function) for block in self._own_blocks())
        rows = {name: function(rows) for name in ("x", "y", "seed_weights") if (rows := getattr(self, name)) is not None}
        extra = {name: function(array) for name, array in self.extra.items()}
        return replace(self, node_ids=function(self.node_ids), blocks=blocks, extra=extra, **rows)

    def out_of(self, graph: Graph, repeats_edges: bool = False) -> MiniBatch:
        """See ``SampledBatch.out_of``."""
        if graph.edge_ids is None and not repeats_edges:
            return self
        return replace(self, graph_edge_ids=graph.edge_ids, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, places: Any) -> Any:
        """The ids (``Graph.edge_ids``) of the edges at ``places`` (N,), such as a block's ``edge_ids``, as an array or tensor like it.

        Tensors on a device are copied to the host and back, unless places are ids.
        """
        return ids_like(self.graph_edge_ids, places)

    def _own_blocks(self) -> tuple[Block, ...]:
        """The blocks but those that are beginnings of the first."""
        return self.blocks[:1] if self.nested else self.blocks

    def _with_blocks(self, own: Iterable[Block]) -> tuple[Block, ...]:
        """All blocks, from what ``_own_blocks`` became."""
        blocks = tuple(own)
        return tuple(blocks[0].beginning(block.num_dst, block.num_src, block.num_edges) for block in self.blocks) if self.nested else blocks

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.Data``, see ``hoptrain.samplers.batch.convert.to_pyg``."""
        from hoptrain.samplers.batch.convert import to_pyg

        return to_pyg(self)

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """Input nodes, seeds and DGL blocks, see ``hoptrain.samplers.batch.convert.to_dgl``."""
        from hoptrain.samplers.batch.convert import to_dgl

        return to_dgl(self)

    def arrays(self) -> dict[str, Array]:
        """See ``SampledBatch.arrays``."""
        arrays = {"node_ids": self.node_ids} | {f"extra.{name}": array for name, array in self.extra.items()}
        if self.seed_weights is not None:
            arrays["seed_weights"] = self.seed_weights
        for i, block in enumerate(self.blocks[:1] if self.nested else self.blocks):
            arrays |= {f"{name}.{i}": array for name, array in block.arrays().items()}
        return arrays

    def row_ids(self) -> dict[str, Any]:
        """Features of the nodes, labels of the seeds."""
        return {"x": self.node_ids, "y": self.seeds}

    def with_rows(self, rows: dict[str, Any]) -> MiniBatch:
        """See ``SampledBatch.with_rows``."""
        of_edges = {name: own for name, own in rows.items() if name.startswith("edge_attr.")}
        blocks = self._own_blocks()
        if of_edges:
            blocks = tuple(replace(block, edge_attr=of_edges[f"edge_attr.{i}"]) for i, block in enumerate(blocks))
        of_nodes = {name: own for name, own in rows.items() if name not in of_edges}
        return replace(self, blocks=self._with_blocks(blocks), **of_nodes)

    def edge_places(self, store: str = "edge_attr") -> dict[str, Any]:
        """The places of the edges whose features it takes, block by block, by the name of these: ``edge_attr.0`` is the first block's."""
        return {f"{store}.{i}": block.edge_ids for i, block in enumerate(self._own_blocks())}

    def header(self, **changes: Any) -> MiniBatch:
        """See ``SampledBatch.header``."""
        blocks = tuple(Block(indptr=None, indices=None, edge_ids=None, num_src=block.num_src) for block in self.blocks)
        return replace(self, node_ids=None, blocks=blocks, seed_weights=None, extra={}, graph_edge_ids=None, **changes)

    def filled(self, arrays: dict[str, Array]) -> MiniBatch:
        """See ``SampledBatch.filled``."""
        num_src = [block.num_src for block in self.blocks]
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
        if self.nested:
            blocks = nested_blocks(blocks[0], num_src, self.num_seeds)
        return replace(self, blocks=blocks, extra=extra, **rows)


def ids_like(edge_ids: Array | None, places: Any) -> Any:
    """``ids_at`` of an array, or of a tensor on whatever device; from a file that is larger than the memory that is free they are read (``take_rows``)."""
    if edge_ids is None or isinstance(places, np.ndarray):
        return _ids_at(edge_ids, places)
    return as_tensor(_ids_at(edge_ids, places.cpu().numpy())).to(places.device, places.dtype)


def _ids_at(edge_ids: Array | None, places: Array) -> Array:
    if edge_ids is None or mapped_file(edge_ids) is None:
        return ids_at(edge_ids, places)
    found, is_edge = np.full(len(places), -1, edge_ids.dtype), places >= 0
    found[is_edge] = take_rows(edge_ids, places[is_edge])
    return found


def batch_of_hops(nodes: Array, found: Sequence[Block], num_seeds: int, extra: dict[str, Array] | None = None) -> MiniBatch:
    """The mini-batch of ``nodes`` (S,), global ids, and the blocks that were found hop by hop, from the seeds outward."""
    return MiniBatch(node_ids=nodes, blocks=tuple(reversed(found)), num_seeds=num_seeds, extra=extra or {})


def nested_blocks(outermost: Block, num_src: Sequence[int], num_seeds: int) -> tuple[Block, ...]:
    """Blocks that are beginnings of ``outermost`` (NumPy arrays), by their numbers of sources: those of the next are a block's destinations."""
    num_dst = (*num_src[1:], num_seeds)
    return tuple(outermost.beginning(d, s, int(outermost.indptr[d])) for d, s in zip(num_dst, num_src, strict=True))
