"""The hop loop of samplers that expand outward from the seeds, and the ``Draws`` protocol by which it gets the edges of a hop.

A batch grows hop by hop (``GrowingBatch.grow``). For each hop it yields one ``Step`` for each relation and receives the drawn edges. They come from
one of these:

* ``Draws.sample`` draws in this process from a graph in memory and turns sources into local ids at once. Draws are uniform or by weight
  (``hoptrain.samplers.nodewise.neighbor``), by LABOR's random numbers (``nodewise.labor``) or bounded by time (``nodewise.temporal``).
* ``Draws.read`` draws from files of the graph's edges, for many batches in lockstep (``hoptrain.samplers.loader.topology``).
* ``AloneDraws.draw`` draws on the machines that own the nodes of a partitioned graph, for many batches in lockstep (``hoptrain.samplers.distributed``).
* CUDA kernels, which have a hop loop of their own (``hoptrain.samplers.cuda``).

The address of a draw is (seed, epoch, batch, hop, node, draw), so all of these return bit-identical batches. A homogeneous graph has one relation,
``ONLY``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from hoptrain.engine import Address, Graph, HeteroGraph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise.neighbor import DrawOptions, HopEdges
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.batch.minibatch import ONLY, Block, nested_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.kernels.cpu.nodewise.temporal import TimedDrawOptions

MOST_HOPS = 16
"""Maximum number of hops of a heterogeneous sampler. Hop h of relation k has the hop number ``MOST_HOPS * k + h`` in random addresses."""


def columns_of(graph: Graph | HeteroGraph) -> Mapping[Relation, RelationColumns]:
    """Return the columns (CSC) of each relation; a homogeneous graph has the relation ``ONLY``."""
    return graph.relations if isinstance(graph, HeteroGraph) else {ONLY: graph}


def types_of(graph: Graph | HeteroGraph) -> Mapping[str, tuple[int, DTypeLike]]:
    """Return the number of nodes and the dtype of node ids of each node type; a homogeneous graph has the type ""."""
    if isinstance(graph, HeteroGraph):
        return {name: (number, id_dtype(number)) for name, number in graph.num_nodes.items()}
    return {"": (graph.num_nodes, graph.indices.dtype)}


class Drawn(NamedTuple):
    """The drawn edges into some nodes as compressed columns: those of node i are at indptr[i] to indptr[i + 1]."""

    indptr: Array
    edge_ids: Array
    """(n,) CSC positions of the edges in the graph."""
    sources: Array
    """(n,) local ids of the sources from ``Draws.sample``, global ids from the other methods. Samplers with times have keys instead of node ids."""
    weights: Array | None = None
    """(n,) float32 weights of the edges, or None if the blocks of the sampler have no weights."""


class Request(NamedTuple):
    """A request for the edges that nodes (M,) of one batch draw along one relation in one hop, for code that holds the columns but not the batch."""

    nodes: Array
    """Global ids of the nodes; for samplers with times, keys (see ``hoptrain.kernels.cpu.nodewise.temporal``)."""
    address: HopAddress
    first: int = 0
    """Local id, in the batch, of the first node in ``nodes``."""
    times: Array | None = None
    """(B,) int64 times that bound the edges of each tree; None for samplers without times."""


class EdgeReader(Protocol):
    """A reader of the edges of one relation from files. Each method draws one hop of several batches and combines their reads."""

    def uniformly(self, rule: DrawOptions, requests: Sequence[Request]) -> list[Drawn]:
        """Draw edges uniformly; read only the sources of the drawn edges."""

    def by_weight(self, rule: DrawOptions, requests: Sequence[Request]) -> list[Drawn]:
        """Draw edges by weight; read the weights of whole columns, and the sources of the drawn edges."""

    def by_time(self, rule: TimedDrawOptions, requests: Sequence[Request]) -> list[Drawn]:
        """Draw edges bounded by time; read the times of whole columns, and the sources of the drawn edges."""

    def from_columns(self, draws: AloneDraws, hop: int, requests: Sequence[Request], names: Sequence[str]) -> list[Drawn]:
        """Read the arrays ``names`` of whole columns, and draw from these with ``draws``."""

    def nothing(self, requests: Sequence[Request]) -> list[Drawn]:
        """Return no edges and empty weights, for a sampler whose blocks have weights."""


class Draws(Protocol):
    """The interface of an object that draws the edges of nodes along one relation. A sampler returns such an object from ``HopSampler.along``.

    The same object serves graphs in memory, graphs in files and, as ``AloneDraws``, partitioned graphs.
    """

    @property
    def fanouts(self) -> Sequence[int | float]:
        """Number or share of the edges that a node draws, for each hop."""

    @property
    def number(self) -> int:
        """Index of the relation in the addresses of random numbers; for LABOR the index of the source type."""

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[Self]]) -> list[Drawn]:
        """Draw the edges of all steps of a hop from a graph in memory, add their sources to the batch, and return them with local ids."""

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the arrays (E,) of a relation that the draws read, by name.

        Raises:
            InputError: the draws need weights and the relation has none.
        """

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw the edges of one hop of several batches from files."""


class AloneDraws(Draws, Protocol):
    """The interface of ``Draws`` that read only the columns of the drawing nodes."""

    @property
    def has_weights(self) -> bool:
        """True if ``draw`` returns weights of the edges."""

    @property
    def needs_weight(self) -> bool:
        """True if at least one edge of the graph must have a weight above 0."""

    def draw(self, columns: RelationColumns, hop: int, request: Request, workspace: Workspace) -> Drawn:
        """Draw the edges of a request from columns in memory. The returned arrays have global source ids and belong to the workspace."""


class SeedsByType(NamedTuple):
    """The seeds of a batch, grouped by node type."""

    kind: str | None
    """Type of all seeds; None if they may be of several types."""
    by_type: Mapping[str, tuple[Array, Array | slice]]
    """For each type its seeds (B_t,), and their positions among the given seeds as an array (B_t,) or a slice."""
    number: int
    """Total number of seeds over all types."""


_ALL = slice(None)


def seeds_of_one_type(kind: str, seeds: Array) -> SeedsByType:
    """Return seeds (B,) that are all of one type as ``SeedsByType``."""
    return SeedsByType(kind, {kind: (seeds, _ALL)}, len(seeds))


SomeDraws = TypeVar("SomeDraws", bound=Draws, covariant=True)


class Step(NamedTuple, Generic[SomeDraws]):
    """The part of a hop along one relation: the nodes [first, last) of the destination type draw edges."""

    relation: Relation
    draws: SomeDraws
    hop: int
    first: int
    last: int
    num_edges: int
    """Number of edges of earlier hops, which stay at the beginning of the step's arrays."""
    name: str
    """Suffix of the names of the step's arrays in the workspace."""


_NONE = np.zeros(0, np.int64), np.zeros(0, np.int64)


@dataclass(eq=False, slots=True)
class GrowingBatch:
    """A mini-batch whose hops are being sampled.

    Attributes:
        address: seed, epoch and batch, which address its random numbers.
        columns: columns (CSC) of each relation.
        seeds: seeds by node type.
        workspace: owner of the arrays.
        frontiers: nodes found so far, by node type. Samplers with times store keys instead of ids: a key combines the index of a seed with a node id.
        nested: whether a hop expands only the nodes found by the previous hop; then the blocks of the last hop hold the edges of all hops.
        times: (B,) int64 times that bound the edges of each seed's tree, or None for samplers without times.
        counts: number of nodes of each type, before the first hop and after each hop.
        hops: drawn edges of each hop, with local ids of sources; if nested, including the edges of the previous hops.
    """

    address: Address
    columns: Mapping[Relation, RelationColumns]
    seeds: SeedsByType
    workspace: Workspace
    frontiers: Mapping[str, Frontier]
    nested: bool
    times: Array | None
    counts: list[dict[str, int]]
    hops: list[dict[Relation, Drawn]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        graph: Graph | HeteroGraph,
        roots: tuple[SeedsByType, Array | None],
        address: Address,
        workspace: Workspace,
        nested: bool,
        name: str = "",
    ) -> GrowingBatch:
        """Return a batch that has only the seeds, with their times or None. Its node arrays have ``name`` in their workspace names.

        Raises:
            InputError: a seed is given twice.
        """
        (seeds, times), frontiers = roots, {}
        for kind, (number, dtype) in types_of(graph).items():
            ids, places = seeds.by_type.get(kind, _NONE)
            table = workspace.table_of(kind) if kind else workspace.table
            if times is None:
                frontiers[kind] = Frontier(workspace, table, number, dtype, f"nodes{name}.{kind}")
            else:  # the range of keys is so large that the table becomes a hash table
                frontiers[kind] = Frontier(workspace, table, 1 << 63, np.int64, f"keys{name}.{kind}")
                ids = (np.arange(seeds.number)[places] << TREE_SHIFT) | ids.astype(np.int64)
            frontiers[kind].enter_seeds(ids)
        counts = {kind: frontier.num_nodes for kind, frontier in frontiers.items()}
        return cls(address, columns_of(graph), seeds, workspace, frontiers, nested, times, [counts])

    def grow(self, draws: Mapping[Relation, Draws], num_hops: int) -> Generator[list[Step[Draws]], Sequence[Drawn], None]:
        """Sample all hops: for each hop yield its steps and receive the drawn edges of each step; then yield an empty list.

        The received edges have local ids of sources. If nested, they include the edges of all previous hops.
        """
        first = dict.fromkeys(self.frontiers, 0)
        for hop in range(num_hops):
            last, steps = self.counts[-1], []
            for number, (relation, own) in enumerate(draws.items()):
                num_edges = len(self.hops[-1][relation].sources) if self.nested and hop else 0
                name = f".{number}" if self.nested else f".{hop}.{number}"
                steps.append(Step(relation, own, hop, first[relation[2]], last[relation[2]], num_edges, name))
            drawn = yield steps
            self.counts.append({kind: frontier.num_nodes for kind, frontier in self.frontiers.items()})
            self.hops.append(dict(zip(draws, drawn, strict=True)))
            if self.nested:
                first = last
        yield []

    def at(self, step: Step[Draws]) -> HopAddress:
        """Return the address (seed, epoch, batch, hop) of a step's random numbers."""
        return self.address.at_hop(step.draws.number * MOST_HOPS + step.hop)

    def buffers(self, step: Step[Draws], most: int, dtype: DTypeLike | None = None) -> HopEdges:
        """Return arrays of a step with space for ``most`` more edges; sources have ``dtype``, by default that of node ids."""
        columns, array, before = self.columns[step.relation], self.workspace.array, step.num_edges
        edges = HopEdges(
            indptr=array(f"indptr{step.name}", step.last + 1, id_dtype(before + most + 1), keep=step.first + 1 if step.first else 0),
            edge_ids=array(f"edge_ids{step.name}", before + most, id_dtype(columns.num_edges), keep=before),
            indices=array(
                f"{'indices' if dtype is None else 'sources'}{step.name}", before + most, dtype or columns.indices.dtype, keep=before
            ),
        )
        edges.indptr[step.first : step.first + 1 if most else None] = before
        return edges

    def blocks(self) -> tuple[dict[Relation, Block], ...]:
        """Return the blocks of each hop by relation, the last hop first."""
        if self.nested:
            return nested_hops(self._blocks(self.hops[-1], self.counts[-1]), self.counts)
        return tuple(map(self._blocks, reversed(self.hops), reversed(self.counts)))

    def _blocks(self, hop: Mapping[Relation, Drawn], counts: Mapping[str, int]) -> dict[Relation, Block]:
        blocks = {}
        for number, (relation, (indptr, edge_ids, sources, weights)) in enumerate(hop.items()):
            indices = sources
            if self.times is not None:  # keys are int64; blocks have the dtype of node ids
                indices = self.workspace.array(f"indices.{number}", len(sources), self.columns[relation].indices.dtype)
                np.copyto(indices, sources, casting="same_kind")
            blocks[relation] = Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=counts[relation[0]], weights=weights)
        return blocks

    def nodes(self) -> dict[str, Array]:
        """Return the global node ids of each type, or their keys if the batch has times."""
        return {kind: frontier.nodes() for kind, frontier in self.frontiers.items()}
