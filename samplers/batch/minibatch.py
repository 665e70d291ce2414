"""Mini-batches: seeds, the sampled edges that lead to them, and their features and labels. Arrays are NumPy's, or torch tensors after ``.to(device)``.

*Global* ids are node ids of the graph; *local* ids count the nodes of a mini-batch, so local id i is the node ``node_ids[i]``. The ``edge_ids`` of a
block are CSC positions, that is positions in the graph's ``indices``; ``ids_of`` returns the ids of the user's data (``Graph.edge_ids``).

A homogeneous graph gives a ``MiniBatch``, a heterogeneous one a ``HeteroMiniBatch``; ``SampledBatch`` is their base class.
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
"""The only relation of a homogeneous graph, between nodes of type "", in code that handles both kinds of graphs."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, weakref_slot=True)
class Block:
    """The bipartite graph of one hop, with ``num_dst`` destinations, ``num_src`` sources and M edges; the destinations are the first sources.

    Attributes:
        indptr: (num_dst+1,) offsets into ``indices``.
        indices: (M,) sources, local ids in [0, num_src).
        edge_ids: (M,) CSC positions of the edges in the graph's ``indices``, -1 for pairs that are not edges. ``MiniBatch.ids_of`` returns edge ids.
        num_src: number of sources.
        weights: (M,) float32 weights, such that the sum of ``weights[e] * f(e)`` over a destination's sampled edges is an unbiased estimate of
            the sum of ``f`` over all its in-edges. None if all edges of a destination have the same weight, degree / sampled.
        edge_attr: (M, D) edge features as stored, which the loader adds if the data set has them, or None.

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
        number: int = self.indptr.shape[0] - 1  # shape instead of len, which would be a constant while torch traces
        return number

    @property
    def num_edges(self) -> int:
        """Number of edges, M."""
        number: int = self.indices.shape[0]
        return number

    def beginning(self, num_dst: int, num_src: int, num_edges: int) -> Block:
        """Return the block of the first ``num_dst`` destinations, which have ``num_edges`` edges, as views of this block's arrays."""
        indptr, (indices, edge_ids) = self.indptr[: num_dst + 1], (array[:num_edges] for array in (self.indices, self.edge_ids))
        weights, edge_attr = (None if rows is None else rows[:num_edges] for rows in (self.weights, self.edge_attr))
        return Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=num_src, weights=weights, edge_attr=edge_attr)

    def edge_index(self) -> torch.Tensor:
        """Return the edges as PyG's layers take them: a (2, M) int64 tensor of local ids, sources above destinations, on the block's device."""
        import torch

        return torch.stack([torch.as_tensor(self.indices).long(), self.destinations()])

    def destinations(self) -> torch.Tensor:
        """Return the destination of each edge: an (M,) int64 tensor of local ids in [0, num_dst), on the block's device."""
        import torch

        indptr = torch.as_tensor(self.indptr)
        if indptr.is_cuda:  # two kernels, where repeat_interleave has six
            edges = torch.arange(self.num_edges, dtype=indptr.dtype, device=indptr.device)
            return torch.searchsorted(indptr[1:], edges, right=True)
        return torch.repeat_interleave(torch.arange(self.num_dst, device=indptr.device), indptr.long().diff(), output_size=self.num_edges)

    def to(self, device: Any) -> Block:
        """Return the block as torch tensors on ``device``; see ``SampledBatch.to``."""
        with copies_to(device) as copy:
            return self.map(copy)

    def map(self, function: Callable[[Any], Any]) -> Block:
        """Return the block with ``function`` applied to each array."""
        weights, edge_attr = (None if rows is None else function(rows) for rows in (self.weights, self.edge_attr))
        indptr, indices, edge_ids = function(self.indptr), function(self.indices), function(self.edge_ids)
        return Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=self.num_src, weights=weights, edge_attr=edge_attr)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the structure, without edge features, by name."""
        arrays = {"indptr": self.indptr, "indices": self.indices, "edge_ids": self.edge_ids}
        return arrays if self.weights is None else arrays | {"weights": self.weights}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class SampledBatch(ABC):
    """The base class of mini-batches of homogeneous and of heterogeneous graphs.

    ``nodes``, ``features`` and ``hops`` give access to both by node type and by relation; a homogeneous graph has the type "" and the relation
    ``ONLY``. A sampler sets the structure and ``num_seeds``, ``Sampler.sample`` adds the address, and the loader adds features, labels and times.

    Attributes:
        num_seeds: number of seeds, B.
        seed: random seed of the user, which with epoch and batch is the address of all the batch's random numbers.
        epoch: number of the epoch.
        batch: number of the batch within the epoch, over all ranks.
        num_step_seeds: number of seeds of this step over all ranks; B with one rank.
        sample_s: seconds spent on sampling.
        gather_s: seconds spent on gathering features and labels.
        made_at: time at which its sampling began, by ``time.perf_counter``, which all processes of a machine share; 0 if not recorded.
        pid: id of the process that sampled it.
        y: (B,) or (B, C) labels of the seeds; None without labels, or if seeds may be of several types.
        extra: further arrays of a sampler, by the names in its docstring.
        nested: whether each block is a prefix of the block of the previous hop (the same rows of the same arrays), since each node was
            expanded once.
        repeats_edges: whether hops draw with replacement, so that an edge that several hops drew counts as several draws.
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
    """Names of the fields whose arrays have one row for each seed."""

    @staticmethod
    def _by_type(value: dict[str, Any]) -> dict[str, Any]:
        return value

    @staticmethod
    def _by_relation(value: dict[Relation, Any]) -> dict[Relation, Any]:
        return value

    @staticmethod
    def joined(by_key: dict[Any, Any]) -> Any:
        """Return the value of a batch's field, given its values by node type or by relation: here the dictionary, in a ``MiniBatch`` its only value."""
        return by_key

    @property
    @abstractmethod
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""

    @abstractmethod
    def out_of(self, graph: Any, repeats_edges: bool = False) -> Self:
        """Return the batch with the fields that come from the sampled graph, such as its edge ids.

        Args:
            graph: graph that was sampled.
            repeats_edges: whether hops draw with replacement.
        """

    def at(self, address: Address) -> Self:
        """Return the batch with its address (seed, epoch, batch). As for a single rank, ``num_step_seeds`` becomes the batch's number of seeds."""
        if (self.seed, self.epoch, self.batch, self.num_step_seeds) == (*address, self.num_seeds):
            return self
        return replace(self, seed=address.seed, epoch=address.epoch, batch=address.batch, num_step_seeds=self.num_seeds)

    def __repr__(self) -> str:
        rows = {dotted("x", kind): own for kind, own in self.features.items()} | ({} if self.y is None else {"y": self.y})
        arrays = ", ".join(f"{name} {tuple(array.shape)}" for name, array in (self.arrays() | rows).items())
        return (
            f"{type(self).__name__}(seed={self.seed}, epoch={self.epoch}, batch={self.batch}, num_seeds={self.num_seeds}, arrays: {arrays})"
        )

    @property
    def nodes(self) -> dict[str, Any]:
        """Global ids of the nodes (``node_ids``) by node type."""
        return self._by_type(self.node_ids)

    @property
    def features(self) -> dict[str, Any]:
        """Node features (``x``) by node type, for the types that have features."""
        return self._by_type(self.x)

    @property
    def hops(self) -> list[dict[Relation, Block]]:
        """Blocks of each hop by relation, in the order of ``blocks``."""
        return list(map(self._by_relation, self.blocks))

    @property
    def relations(self) -> list[Relation]:
        """Relations of the blocks."""
        return list(self.hops[0]) if self.blocks else [ONLY]

    @property
    def own_hops(self) -> list[dict[Relation, Block]]:
        """Entries of ``hops`` whose blocks have arrays of their own: all entries, but in a nested batch only the first."""
        return [self._by_relation(self.blocks[0])] if self.nested else self.hops

    @property
    def num_edges(self) -> int:
        """Number of sampled edges of all hops and relations; in a nested batch an edge counts once."""
        return sum(block.num_edges for hop in self.own_hops for block in hop.values())

    @property
    def node_counts(self) -> list[dict[str, int]]:
        """Number of nodes of each type, first of the seeds and then after every hop, from the seeds outward."""
        return count_nodes(self.num_seeds_by_type(), [{relation: block.num_src for relation, block in hop.items()} for hop in self.hops])

    @abstractmethod
    def num_seeds_by_type(self) -> dict[str, int]:
        """Return the number of seeds of each node type."""

    def ids_along(self, relation: Relation, places: Any) -> Any:
        """Return the edge ids of a relation's edges at the CSC positions ``places`` (N,), such as a block's ``edge_ids``.

        The result is an array or tensor like ``places``. Tensors on a device are copied to the host and back, unless CSC positions are the ids.
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
        """Return the blocks of all hops, built from ``own``, a changed version of ``own_hops``."""
        if self.nested:
            own = [{r: own[0][r].beginning(b.num_dst, b.num_src, b.num_edges) for r, b in hop.items()} for hop in self.hops]
        return tuple(map(self.joined, own))

    def with_structure(self, nodes: dict[str, Array], hops: list[dict[Relation, Block]], **changes: Any) -> Self:
        """Return a copy of the batch with other nodes, other ``own_hops``, and the values ``changes`` of further fields.

        Blocks of a nested batch keep their numbers of sources and destinations.
        """
        blocks = nested_hops(hops[0], self.node_counts) if self.nested else hops
        return replace(self, node_ids=self.joined(nodes), blocks=tuple(map(self.joined, blocks)), **changes)

    def to(self, device: Any) -> Self:
        """Return the mini-batch as torch tensors on ``device``.

        On the CPU nothing is copied: the tensors share the arrays' memory. To a GPU the copies run on a stream of their own, for which torch's
        current stream waits on the device. The batch's slot of the queue is released when they are done.
        """
        with copies_to(device) as copy:
            return self.map(copy)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the structure by name, as a slot of the queue holds them."""
        arrays = {dotted("node_ids", kind): ids for kind, ids in self.nodes.items()}
        arrays |= {f"extra.{name}": array for name, array in self.extra.items()}
        arrays |= {
            name: rows for name in self.of_seeds[1:] if (rows := getattr(self, name)) is not None
        }  # skips y, which is gathered from a store
        for h, hop in enumerate(self.own_hops):
            for number, (relation, block) in enumerate(hop.items()):
                arrays |= {array_name(relation, h, number, name): array for name, array in block.arrays().items()}
        return arrays

    def row_ids(self) -> dict[str, Any]:
        """Return the global ids of the nodes whose rows the batch takes from each store, by the store's name (``Dataset.stores``)."""
        ids, seeds = {dotted("x", kind): ids for kind, ids in self.nodes.items()}, self.seeds
        return ids if isinstance(seeds, dict) else ids | {"y": seeds}

    def edge_places(self, store: str = "edge_attr") -> dict[str, Any]:
        """Return the CSC positions of the edges whose features the batch takes from a store, by the name of the rows, such as ``edge_attr.0`` for hop 0."""
        blocks = ((h, relation, block) for h, hop in enumerate(self.own_hops) for relation, block in hop.items())
        return {f"{store}.{h}": block.edge_ids for h, relation, block in blocks if named("edge_attr", relation) == store}

    def with_rows(self, rows: Mapping[str, Any]) -> Self:
        """Return the batch with the given rows, by the names of ``row_ids`` and ``edge_places``. Rows of other names are kept."""
        x, blocks = {kind: rows[name] for kind in self.nodes if (name := dotted("x", kind)) in rows}, self.blocks
        if len(rows) > len(x) + ("y" in rows):  # rows that are neither x nor y are edge features
            blocks = self._blocks([{r: _with_features(b, r, h, rows) for r, b in hop.items()} for h, hop in enumerate(self.own_hops)])
        return replace(self, blocks=blocks, x=self.joined(self.features | x), y=rows.get("y", self.y))

    def to_pyg(self) -> Any:
        """Return the batch as a ``torch_geometric.data.Data`` or ``HeteroData``; see ``hoptrain.samplers.batch.convert.to_pyg``."""
        from hoptrain.samplers.batch.convert import to_pyg

        return to_pyg(self)

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """Return the input nodes, seeds and blocks of the batch for DGL; see ``hoptrain.samplers.batch.convert.to_dgl``."""
        from hoptrain.samplers.batch.convert import to_dgl

        return to_dgl(self)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class MiniBatch(SampledBatch):
    """A mini-batch of a homogeneous graph: seeds, the blocks that lead to them, features and labels. Further fields are those of ``SampledBatch``.

    Attributes:
        node_ids: (S,) global ids of the input nodes: the seeds first, then every other node in order of first appearance.
        blocks: one block for each hop, in the order in which a model applies them: ``blocks[0]`` has all S nodes as sources, ``blocks[-1]`` has
            the seeds as destinations. The sources of any block are ``node_ids[:block.num_src]``.
        x: (S, F) features of the input nodes, or None.
        seed_weights: (B,) float32 weights of the seeds in the loss, or None if all are 1.
        subgraph_sizes: B numbers of the other nodes of each seed's subgraph, if each seed has a subgraph of its own, else None. These nodes follow
            the seeds in ``node_ids``, those of the first seed's subgraph first.
        graph_edge_ids: ``Graph.edge_ids`` of the sampled graph. It is not copied and stays on the host, wherever the batch is.

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
        """Return the only value of a dictionary by node type or by relation; None if it is empty."""
        [value] = by_key.values() or [None]
        return value

    @property
    def seeds(self) -> Any:
        """(B,) global ids of the seeds."""
        return self.node_ids[: self.num_seeds]

    def num_seeds_by_type(self) -> dict[str, int]:
        """Return the number of seeds, with the node type ""."""
        return {"": self.num_seeds}

    def out_of(self, graph: Graph, repeats_edges: bool = False) -> MiniBatch:
        """Return the batch with the edge ids of the sampled graph; see ``SampledBatch.out_of``."""
        if graph.edge_ids is self.graph_edge_ids and self.repeats_edges >= repeats_edges:
            return self
        return replace(self, graph_edge_ids=graph.edge_ids, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, places: Any) -> Any:
        """Return the ids (``Graph.edge_ids``) of the edges at the CSC positions ``places`` (N,); see ``ids_along``."""
        return self.ids_along(ONLY, places)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class HeteroMiniBatch(SampledBatch):
    """A mini-batch of a heterogeneous graph: seeds of one or several types, and for every hop a block of each relation.

    Further fields are those of ``SampledBatch``. Global and local ids count within a type: local id i of type t is the node ``node_ids[t][i]``. A
    block of relation (s, name, d) has the first ``num_dst`` nodes of type d as destinations and the first ``num_src`` nodes of type s as sources.
    The destinations are among the sources only if s is d.

    Attributes:
        node_ids: (S_t,) global ids of the nodes by type: the seeds first, then every other node in order of first appearance.
        blocks: one dictionary by relation for each hop, in the order in which a model applies them; the destinations of the last are the seeds.
        seed_counts: number of seeds of each type of the graph; ``num_seeds`` in all.
        seed_type: type of the seeds; None if they may be of several types.
        seed_relation: relation of the links, in a batch of links of one relation, else None.
        x: features of the nodes, by type; empty if none were gathered.
        graph_edge_ids: ``edge_ids`` of the relations that have edge ids. They are not copied and stay on the host, wherever the batch is.
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
        """(B,) global ids of the seeds; without ``seed_type`` a dictionary by type, for the types that have seeds."""
        if self.seed_type is not None:
            return self.node_ids[self.seed_type][: self.num_seeds]
        return {name: self.node_ids[name][:number] for name, number in self.seed_counts.items() if number}

    def num_seeds_by_type(self) -> dict[str, int]:
        """Return the number of seeds of each node type of the graph."""
        return self.seed_counts

    def out_of(self, graph: HeteroGraph, repeats_edges: bool = False) -> HeteroMiniBatch:
        """Return the batch with the edge ids of the sampled graph; see ``SampledBatch.out_of``."""
        own = {relation: columns.edge_ids for relation, columns in graph.relations.items() if columns.edge_ids is not None}
        if not own and not repeats_edges:
            return self
        return replace(self, graph_edge_ids=own, repeats_edges=repeats_edges or self.repeats_edges)

    def ids_of(self, relation: Relation, places: Any) -> Any:
        """Return the ids (``RelationColumns.edge_ids``) of a relation's edges at the CSC positions ``places`` (N,); see ``ids_along``."""
        return self.ids_along(relation, places)


def named(name: str, relation: Relation) -> str:
    """Return the name of a relation's array ``name``; with "edge_attr", the name of the store of the relation's edge features."""
    return name if relation == ONLY else f"{name}.{relation_name(relation)}"


def _with_features(block: Block, relation: Relation, hop: int, rows: Mapping[str, Any]) -> Block:
    return replace(block, edge_attr=rows.get(f"{named('edge_attr', relation)}.{hop}", block.edge_attr))


def batch_from_hops(nodes: Array, found: Sequence[Block], num_seeds: int, extra: dict[str, Array] | None = None) -> MiniBatch:
    """Return the mini-batch of the nodes with global ids ``nodes`` (S,). Its blocks ``found`` are in the order of the hops, from the seeds outward."""
    return MiniBatch(node_ids=nodes, blocks=tuple(reversed(found)), num_seeds=num_seeds, extra=extra or {})


def nested_blocks(outermost: Block, num_src: Sequence[int], num_seeds: int) -> tuple[Block, ...]:
    """Return nested blocks, which are prefixes of ``outermost`` (NumPy arrays).

    ``num_src`` has the number of sources of each block; the destinations of a block are the sources of the next block.
    """
    num_dst = (*num_src[1:], num_seeds)
    return tuple(outermost.beginning(d, s, int(outermost.indptr[d])) for d, s in zip(num_dst, num_src, strict=True))


def nested_hops(outermost: dict[Relation, Block], counts: Sequence[dict[str, int]]) -> tuple[dict[Relation, Block], ...]:
    """Return nested blocks, which are prefixes of those of the outermost hop (NumPy arrays). ``counts`` are numbers of nodes as in ``node_counts``."""
    return tuple(
        {
            (source, name, kind): block.beginning(before[kind], after[source], int(block.indptr[before[kind]]))
            for (source, name, kind), block in outermost.items()
        }
        for before, after in reversed(list(pairwise(counts)))
    )


def count_nodes(seed_counts: dict[str, int], num_src: Sequence[Mapping[Relation, int]]) -> list[dict[str, int]]:
    """Return the number of nodes of each type, first of the seeds and then after every hop. ``num_src`` has the order of a batch's blocks."""
    counts = [dict(seed_counts)]
    for hop in reversed(num_src):
        counts.append(counts[-1] | {source: number for (source, _, _), number in hop.items()})
    return counts


def dotted(name: str, kind: str) -> str:
    """Return the name of the array ``name`` of a node type, such as "x.paper"; for the type "" the name itself."""
    return f"{name}.{kind}" if kind else name


def array_name(relation: Relation, hop: int, number: int, name: str) -> str:
    """Return the name of a block's array among the arrays of a batch; ``number`` is the index of the relation within the hop."""
    return f"{name}.{hop}" if relation == ONLY else f"block.{hop}.{number}.{name}"
