"""Mini-batches: seeds, the sampled edges that lead to them, and the rows that training needs. Arrays are NumPy's, or torch tensors after ``.to(device)``.

*Global* ids name nodes of the graph; *local* ids count the nodes of a mini-batch, so local id i is the node ``node_ids[i]``. The *edge* ids of a
block are positions in the graph's ``indices``; ``ids_of`` returns the ids that the user's data has (``Graph.edge_ids``).

``MiniBatch`` is the view of a batch of one node type and one relation, ``HeteroMiniBatch`` of several. What both do is written once, in ``SampledBatch``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name
from hoptrain.samplers.batch.transfer import copies_to, ids_like

if TYPE_CHECKING:
    import torch

ONLY: Relation = ("", "", "")
"""The relation of a homogeneous graph, between nodes of type "", in code that treats it like a heterogeneous one."""


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
        """Return the block with ``function`` applied to each array."""
        weights, edge_attr = (None if rows is None else function(rows) for rows in (self.weights, self.edge_attr))
        indptr, indices, edge_ids = function(self.indptr), function(self.indices), function(self.edge_ids)
        return Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=self.num_src, weights=weights, edge_attr=edge_attr)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the structure by name."""
        arrays = {"indptr": self.indptr, "indices": self.indices, "edge_ids": self.edge_ids}
        return arrays if self.weights is None else arrays | {"weights": self.weights}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class SampledBatch(ABC):
    """What mini-batches of homogeneous and of heterogeneous graphs have in common.

    ``nodes``, ``features`` and ``hops`` show both alike, by node type and by relation; a homogeneous graph has the type "" and the relation ``ONLY``.
    A sampler sets the structure and ``num_seeds``; ``Sampler.sample`` adds the address, the loader rows and times.

    Attributes:
        num_seeds: B.
        seed: the user's seed; with epoch and batch it is the address of all the batch's random numbers.
        epoch: the epoch it belongs to.
        batch: its number within the epoch, over all ranks.
        num_step_seeds: seeds of this step over all ranks; B with one rank.
        sample_s: seconds spent on sampling.
        gather_s: seconds spent on gathering features and labels.
        made_at: when its sampling began, by ``time.perf_counter``, which the processes of a machine share; 0 if not recorded.
        pid: process that made it.
        y: (B,) or (B, C) labels of the seeds, or None; there are none where seeds may be of several types.
        extra: further arrays of a sampler, by the names that its docstring gives.
        nested: whether the blocks of every hop are the beginnings of those of the hop before (the same rows of the same arrays): each node was
            expanded once.
        repeats_edges: whether hops draw with replacement: an edge that several hops drew counts as several draws.
    """

    node_ids: Any
    blocks: tuple[Any, ...]
    x: Any
    graph_edge_ids: Any
    num_seeds: int
    seed: int = 0
    epoch: int = 0
    batch: int = 0
    num_step_seeds: int = 0
    sample_s: float = 0.0
    gather_s: float = 0.0
    made_at: float = 0.0
    pid: int = 0
    y: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    nested: bool = False
    repeats_edges: bool = False
    of_seeds: ClassVar[tuple[str, ...]] = ("y",)
    """Fields with a row for each seed."""

    @staticmethod
    def _by_type(value: dict[str, Any]) -> dict[str, Any]:
        return value

    @staticmethod
    def _by_relation(value: dict[Relation, Any]) -> dict[Relation, Any]:
        return value

    @staticmethod
    def joined(by_key: dict[Any, Any]) -> Any:
        """Return what a field holds, from its values by node type or by relation."""
        return by_key

    @property
    @abstractmethod
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""

    @abstractmethod
    def out_of(self, graph: Any, repeats_edges: bool = False) -> Self:
        """Return the batch with what it needs of the graph that was sampled.

        Args:
            graph: the graph that was sampled.
            repeats_edges: whether hops draw with replacement.
        """

    def at(self, address: Address) -> Self:
        """Return the batch with its address, for one rank."""
        if (self.seed, self.epoch, self.batch, self.num_step_seeds) == (*address, self.num_seeds):
            return self
        return replace(self, seed=address.seed, epoch=address.epoch, batch=address.batch, num_step_seeds=self.num_seeds)

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name} {tuple(array.shape)}" for name, array in self.arrays().items())
        return (
            f"{type(self).__name__}(seed={self.seed}, epoch={self.epoch}, batch={self.batch}, num_seeds={self.num_seeds}, arrays: {arrays})"
        )

    @property
    def nodes(self) -> dict[str, Any]:
        """``node_ids`` by node type."""
        return self._by_type(self.node_ids)

    @property
    def features(self) -> dict[str, Any]:
        """``x`` by node type, of the types that have some."""
        return self._by_type(self.x)

    @property
    def hops(self) -> list[dict[Relation, Block]]:
        """``blocks`` by relation."""
        return list(map(self._by_relation, self.blocks))

    @property
    def relations(self) -> list[Relation]:
        """The relations that blocks are of."""
        return list(self.hops[0]) if self.blocks else [ONLY]

    @property
    def own_hops(self) -> list[dict[Relation, Block]]:
        """``hops`` without those that are beginnings of the first."""
        return [self._by_relation(self.blocks[0])] if self.nested else self.hops

    @property
    def num_edges(self) -> int:
        """Sampled edges of all hops and relations; in nested blocks an edge counts once."""
        return sum(block.num_edges for hop in self.own_hops for block in hop.values())

    @property
    def node_counts(self) -> list[dict[str, int]]:
        """Number of nodes of each type: the seeds, and then after every hop, from the seeds outward."""
        return counts_of(self.num_seeds_by_type(), [{relation: block.num_src for relation, block in hop.items()} for hop in self.hops])

    @abstractmethod
    def num_seeds_by_type(self) -> dict[str, int]:
        """Return the number of seeds of each node type."""

    def ids_along(self, relation: Relation, places: Any) -> Any:
        """Return the user's ids of a relation's edges at ``places`` (N,), such as a block's ``edge_ids``, as an array or tensor like it.

        Tensors on a device are copied to the host and back, unless positions are ids.
        """
        return ids_like(self._by_relation(self.graph_edge_ids).get(relation), places)

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return the batch with ``function`` applied to each array."""
        nodes = {kind: function(ids) for kind, ids in self.nodes.items()}
        blocks = self._blocks([{relation: block.map(function) for relation, block in hop.items()} for hop in self.own_hops])
        x = {kind: function(rows) for kind, rows in self.features.items()}
        rows = {name: function(rows) for name in self.of_seeds if (rows := getattr(self, name)) is not None}
        extra = {name: function(array) for name, array in self.extra.items()}
        return replace(self, node_ids=self.joined(nodes), blocks=blocks, x=self.joined(x), extra=extra, **rows)

    def _blocks(self, own: list[dict[Relation, Block]]) -> tuple[Any, ...]:
        """Return all blocks, from what ``own_hops`` became."""
        if self.nested:
            own = [{r: own[0][r].beginning(b.num_dst, b.num_src, b.num_edges) for r, b in hop.items()} for hop in self.hops]
        return tuple(map(self.joined, own))

    def with_structure(self, nodes: dict[str, Array], hops: list[dict[Relation, Block]], **changes: Any) -> Self:
        """Return the batch with other ``nodes`` and ``own_hops``, and with ``changes`` of further fields.

        Blocks of a nested batch keep their numbers of sources and destinations.
        """
        blocks = nested_hops(hops[0], self.node_counts) if self.nested else hops
        return replace(self, node_ids=self.joined(nodes), blocks=tuple(map(self.joined, blocks)), **changes)

    def to(self, device: Any) -> Self:
        """Return the mini-batch as torch tensors on ``device``.

        To the CPU nothing is copied: the tensors share the arrays' memory. To a GPU the copies run beside what torch computes there; torch's
        current stream waits for them on the device, and a slot of the queue goes back to its worker once they are done.
        """
        with copies_to(device) as copy:
            return self.map(copy)

    def arrays(self) -> dict[str, Any]:
        """Return the structure's arrays by name: what a slot of the queue holds of it."""
        arrays = {dotted("node_ids", kind): ids for kind, ids in self.nodes.items()}
        arrays |= {f"extra.{name}": array for name, array in self.extra.items()}
        arrays |= {name: rows for name in self.of_seeds[1:] if (rows := getattr(self, name)) is not None}  # y comes from a store
        for h, hop in enumerate(self.own_hops):
            for number, (relation, block) in enumerate(hop.items()):
                arrays |= {array_name(relation, h, number, name): array for name, array in block.arrays().items()}
        return arrays

    def row_ids(self) -> dict[str, Any]:
        """Return the global ids of the nodes whose rows the batch takes from a store, by the store's name (``Dataset.stores``)."""
        ids, seeds = {dotted("x", kind): ids for kind, ids in self.nodes.items()}, self.seeds
        return ids if isinstance(seeds, dict) else ids | {"y": seeds}

    def edge_places(self, store: str = "edge_attr") -> dict[str, Any]:
        """Return the positions of the edges whose features the batch takes from a store, by the rows' name: ``edge_attr.0`` of the first hop."""
        blocks = ((h, relation, block) for h, hop in enumerate(self.own_hops) for relation, block in hop.items())
        return {f"{store}.{h}": block.edge_ids for h, relation, block in blocks if named("edge_attr", relation) == store}

    def with_rows(self, rows: Mapping[str, Any]) -> Self:
        """Return the batch with rows by the names of ``row_ids`` and ``edge_places``; it keeps those that it has of other names."""
        x, blocks = {kind: rows[name] for kind in self.nodes if (name := dotted("x", kind)) in rows}, self.blocks
        if len(rows) > len(x) + ("y" in rows):  # the others are of edges
            blocks = self._blocks([{r: _with_features(b, r, h, rows) for r, b in hop.items()} for h, hop in enumerate(self.own_hops)])
        return replace(self, blocks=blocks, x=self.joined(self.features | x), y=rows.get("y", self.y))

    def to_pyg(self) -> Any:
        """Return a ``torch_geometric.data.Data``, or ``HeteroData``; see ``hoptrain.samplers.batch.convert.to_pyg``."""
        from hoptrain.samplers.batch.convert import to_pyg

        return to_pyg(self)

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """Return input nodes, seeds and DGL blocks; see ``hoptrain.samplers.batch.convert.to_dgl``."""
        from hoptrain.samplers.batch.convert import to_dgl

        return to_dgl(self)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class MiniBatch(SampledBatch):
    """Seeds, the blocks that lead to them, and the features and labels that training on them needs; further fields are those of ``SampledBatch``.

    Attributes:
        node_ids: (S,) global ids of the input nodes: the seeds first, then every other node in order of first appearance.
        blocks: one a hop, in the order in which a model applies them: ``blocks[0]`` has all S nodes as sources, ``blocks[-1]`` has the seeds
            as destinations. Sources of any block are ``node_ids[:block.num_src]``.
        x: (S, F) features of the input nodes, or None.
        seed_weights: (B,) float32 weights of the seeds in the loss, or None where all weigh 1.
        subgraph_sizes: where each seed has a subgraph of its own, the number of its other nodes (B numbers): these stand after the seeds, those of
            the first seed's subgraph first. Else None.
        graph_edge_ids: ``Graph.edge_ids`` of the graph that was sampled, not copied: on the host, wherever the batch is.

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
    seed_weights: Any = None
    subgraph_sizes: tuple[int, ...] | None = None
    graph_edge_ids: Array | None = None
    of_seeds: ClassVar[tuple[str, ...]] = ("y", "seed_weights")

    @staticmethod
    def _by_type(value: Any) -> dict[str, Any]:
        return {} if value is None else {"": value}

    @staticmethod
    def _by_relation(value: Any) -> dict[Relation, Any]:
        return {ONLY: value}

    @staticmethod
    def joined(by_key: dict[Any, Any]) -> Any:
        """See ``SampledBatch.joined``."""
        [value] = by_key.values() or [None]
        return value

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""
        return self.node_ids[: self.num_seeds]

    def num_seeds_by_type(self) -> dict[str, int]:
        """See ``SampledBatch.num_seeds_by_type``."""
        return {"": self.num_seeds}

    def out_of(self, graph: Graph, repeats_edges: bool = False) -> MiniBatch:
        """See ``SampledBatch.out_of``."""
        if graph.edge_ids is self.graph_edge_ids and self.repeats_edges >= repeats_edges:
            return self
        return replace(self, graph_edge_ids=graph.edge_ids, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, places: Any) -> Any:
        """Return the ids (``Graph.edge_ids``) of the edges at ``places`` (N,); see ``ids_along``."""
        return self.ids_along(ONLY, places)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroMiniBatch(SampledBatch):
    """Seeds, of one type or of several, and for every hop a block of each relation; further fields are those of ``SampledBatch``.

    Global and local ids count within a type: local id i of type t is the node ``node_ids[t][i]``. A block of relation (s, name, d) has the
    first ``num_dst`` nodes of type d as destinations and the first ``num_src`` nodes of type s as sources; only where s is d are the
    destinations among the sources.

    Attributes:
        node_ids: (S_t,) global ids of each type's nodes: the seeds first, then every other node in order of first appearance.
        blocks: one dictionary a hop, in the order in which a model applies them; the last one's destinations are the seeds.
        seed_counts: number of seeds of each type of the graph; ``num_seeds`` in all.
        seed_type: the type of the seeds; None where they may be of several.
        seed_relation: where edges were asked for, their relation; None of several.
        x: features of the nodes, by type; empty where none were gathered.
        graph_edge_ids: the ``edge_ids`` of the relations that have some, not copied: on the host, wherever the batch is.
    """

    node_ids: dict[str, Any]
    blocks: tuple[dict[Relation, Block], ...]
    seed_counts: dict[str, int]
    seed_type: str | None = None
    seed_relation: Relation | None = None
    x: dict[str, Any] = field(default_factory=dict)
    graph_edge_ids: dict[Relation, Array] = field(default_factory=dict)

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds of ``seed_type``; without one they are a dictionary, of the types that have some."""
        if self.seed_type is not None:
            return self.node_ids[self.seed_type][: self.num_seeds]
        return {name: self.node_ids[name][:number] for name, number in self.seed_counts.items() if number}

    def num_seeds_by_type(self) -> dict[str, int]:
        """See ``SampledBatch.num_seeds_by_type``."""
        return self.seed_counts

    def out_of(self, graph: HeteroGraph, repeats_edges: bool = False) -> HeteroMiniBatch:
        """See ``SampledBatch.out_of``."""
        own = {relation: columns.edge_ids for relation, columns in graph.relations.items() if columns.edge_ids is not None}
        if not own and not repeats_edges:
            return self
        return replace(self, graph_edge_ids=own, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, relation: Relation, places: Any) -> Any:
        """Return the ids (``RelationColumns.edge_ids``) of the edges at ``places`` (N,); see ``ids_along``."""
        return self.ids_along(relation, places)


def named(name: str, relation: Relation) -> str:
    """Return the name of an array that each relation may have one of; "edge_attr" becomes that of the store of the edges' features."""
    return name if relation == ONLY else f"{name}.{relation_name(relation)}"


def _with_features(block: Block, relation: Relation, hop: int, rows: Mapping[str, Any]) -> Block:
    return replace(block, edge_attr=rows.get(f"{named('edge_attr', relation)}.{hop}", block.edge_attr))


def batch_of_hops(nodes: Array, found: Sequence[Block], num_seeds: int, extra: dict[str, Array] | None = None) -> MiniBatch:
    """Return the mini-batch of ``nodes`` (S,), global ids, and the blocks that were found hop by hop, from the seeds outward."""
    return MiniBatch(node_ids=nodes, blocks=tuple(reversed(found)), num_seeds=num_seeds, extra=extra or {})


def nested_blocks(outermost: Block, num_src: Sequence[int], num_seeds: int) -> tuple[Block, ...]:
    """Return blocks that are beginnings of ``outermost`` (NumPy arrays), by their numbers of sources: those of the next are a block's destinations."""
    num_dst = (*num_src[1:], num_seeds)
    return tuple(outermost.beginning(d, s, int(outermost.indptr[d])) for d, s in zip(num_dst, num_src, strict=True))


def nested_hops(outermost: dict[Relation, Block], counts: Sequence[dict[str, int]]) -> tuple[dict[Relation, Block], ...]:
    """Return blocks that are beginnings of those of the outermost hop (NumPy arrays), by the numbers of nodes of each type as in ``node_counts``."""
    return tuple(
        {
            (source, name, kind): block.beginning(before[kind], after[source], int(block.indptr[before[kind]]))
            for (source, name, kind), block in outermost.items()
        }
        for before, after in reversed(list(pairwise(counts)))
    )


def counts_of(seed_counts: dict[str, int], num_src: Sequence[Mapping[Relation, int]]) -> list[dict[str, int]]:
    """Return the number of nodes of each type, the seeds' and then after every hop, of hops in the order of a batch's blocks."""
    counts = [dict(seed_counts)]
    for hop in reversed(num_src):
        counts.append(counts[-1] | {source: number for (source, _, _), number in hop.items()})
    return counts


def dotted(name: str, kind: str) -> str:
    """Return the name of an array that each node type may have one of."""
    return f"{name}.{kind}" if kind else name


def array_name(relation: Relation, hop: int, number: int, name: str) -> str:
    """Return the name that an array of a block has among a batch's; ``number`` is the relation's within the hop."""
    return f"{name}.{hop}" if relation == ONLY else f"block.{hop}.{number}.{name}"
