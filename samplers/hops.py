"""The hop loop of every sampler that goes from the seeds outward, and the protocol by which it gets the edges of a hop.

A batch grows hop by hop (``GrowingBatch.grow``): it asks for the edges of a hop, one ``Step`` for each relation, and gets them. Who answers is one of these:

* ``Draws.sample``: this process, from a graph in memory, which turns sources into local ids at once. Draws are uniform or by weight
  (``hoptrain.samplers.nodewise.neighbor``), by LABOR's random numbers (``nodewise.labor``) or bounded by time (``nodewise.temporal``);
* ``Draws.read``: files of the graph's edges, for many batches in lockstep (``hoptrain.samplers.loader.topology``);
* ``AloneDraws.draw``: the owners of the nodes, for a partitioned graph, again for many batches in lockstep (``hoptrain.samplers.distributed``);
* kernels on a CUDA device, which have a loop of their own (``hoptrain.samplers.cuda``).

A draw's address is (seed, epoch, batch, hop, node, draw), so all of them give the same batches, bit for bit. A plain graph has one relation, ``ONLY``.
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
from hoptrain.kernels.cpu.nodewise.neighbor import Edges, Rule
from hoptrain.kernels.shared.temporal import TREE_SHIFT
from hoptrain.samplers.batch.minibatch import ONLY, Block, nested_hops
from hoptrain.samplers.buffers.frontier import Frontier
from hoptrain.samplers.buffers.workspace import Workspace

if TYPE_CHECKING:
    from hoptrain.kernels.cpu.nodewise.temporal import TimedRule

MOST_HOPS = 16
"""A relation's hops have a range of their own among the hops of a random number's address."""


def columns_of(graph: Graph | HeteroGraph) -> Mapping[Relation, RelationColumns]:
    """Return the edges of each relation."""
    return graph.relations if isinstance(graph, HeteroGraph) else {ONLY: graph}


def types_of(graph: Graph | HeteroGraph) -> Mapping[str, tuple[int, DTypeLike]]:
    """Return of each node type the number of its nodes and the dtype of their ids."""
    if isinstance(graph, HeteroGraph):
        return {name: (number, id_dtype(number)) for name, number in graph.num_nodes.items()}
    return {"": (graph.num_nodes, graph.indices.dtype)}


class Drawn(NamedTuple):
    """Edges into some nodes as compressed columns: those of node i are from indptr[i] to indptr[i + 1]."""

    indptr: Array
    edge_ids: Array
    """(n,) CSC positions in the graph that was drawn from."""
    sources: Array
    """(n,) local ids, or global ones from who has no batch at hand; of samplers with times these are keys."""
    weights: Array | None = None
    """(n,) float32, of samplers whose blocks have them."""


class Request(NamedTuple):
    """Nodes (M,) of one batch whose edges along one relation are drawn in one hop, by who has the columns and not the batch."""

    nodes: Array
    """Global ids; of samplers with times keys, see ``hoptrain.kernels.cpu.nodewise.temporal``."""
    address: HopAddress
    first: int = 0
    """Number of the first one among the batch's nodes."""
    times: Array | None = None
    """(B,) int64 of samplers with times: what bounds the edges of each tree."""


class EdgeReader(Protocol):
    """Files of one relation's edges; each method draws the edges of some batches in one hop, and reads what that takes for all of them together."""

    def uniformly(self, rule: Rule, requests: Sequence[Request]) -> list[Drawn]:
        """Read the sources of the drawn edges alone."""

    def by_weight(self, rule: Rule, requests: Sequence[Request]) -> list[Drawn]:
        """Read the weights of whole columns, and the sources of the drawn edges."""

    def by_time(self, rule: TimedRule, requests: Sequence[Request]) -> list[Drawn]:
        """Read the times of whole columns, and the sources of the drawn edges."""

    def from_columns(self, draws: AloneDraws, hop: int, requests: Sequence[Request], names: Sequence[str]) -> list[Drawn]:
        """Read the arrays ``names`` of whole columns, and let ``draws`` draw from these."""

    def nothing(self, requests: Sequence[Request]) -> list[Drawn]:
        """Draw no edge, of a sampler whose blocks have weights."""


class Draws(Protocol):
    """How nodes draw their edges along one relation: what a sampler says about it (``HopSampler.along``), whoever has the edges."""

    @property
    def fanouts(self) -> Sequence[int | float]:
        """Edges, or a share of the edges, that a node draws, one number a hop."""

    @property
    def number(self) -> int:
        """Number of the relation in the addresses of random numbers; of LABOR that of the sources' type."""

    def sample(self, batch: GrowingBatch, steps: Sequence[Step[Self]]) -> list[Drawn]:
        """Draw the edges of all steps of a hop from a graph in memory; their sources become nodes of the batch, and local ids."""

    def arrays(self, columns: RelationColumns) -> dict[str, Array]:
        """Return the arrays (E,) of a relation that draws look at, by name.

        Raises:
            InputError: there are no weights where they are needed.
        """

    def read(self, files: EdgeReader, hop: int, requests: Sequence[Request]) -> list[Drawn]:
        """Draw from files."""


class AloneDraws(Draws, Protocol):
    """``Draws`` that need nothing but the columns of the nodes that draw."""

    @property
    def has_weights(self) -> bool:
        """Whether ``draw`` returns weights of the edges."""

    @property
    def needs_weight(self) -> bool:
        """Whether an edge of the graph must have a weight above 0."""

    def draw(self, columns: RelationColumns, hop: int, request: Request, workspace: Workspace) -> Drawn:
        """Draw from columns in memory; the arrays, with global ids of sources, are the workspace's."""


class SeedsByType(NamedTuple):
    """The seeds of a batch."""

    kind: str | None
    """The type of all of them; None where they may be of several."""
    by_type: Mapping[str, tuple[Array, Array | slice]]
    """For each type nodes (B_t,), and their positions among the seeds asked for: (B_t,), or a slice."""
    number: int


_ALL = slice(None)


def seeds_of_one_type(kind: str, seeds: Array) -> SeedsByType:
    """Return the seeds (B,) of a type."""
    return SeedsByType(kind, {kind: (seeds, _ALL)}, len(seeds))


SomeDraws = TypeVar("SomeDraws", bound=Draws, covariant=True)


class Step(NamedTuple, Generic[SomeDraws]):
    """One relation in one hop of a batch: the nodes ``first`` to ``last`` of the destinations' type draw edges."""

    relation: Relation
    draws: SomeDraws
    hop: int
    first: int
    last: int
    num_edges: int
    """Edges of earlier hops, which stand in the step's arrays and stay there."""
    name: str
    """Of the step's arrays in the workspace."""


_NONE = np.zeros(0, np.int64), np.zeros(0, np.int64)


@dataclass(eq=False, slots=True)
class GrowingBatch:
    """A mini-batch while its hops are sampled.

    Attributes:
        address: of its random numbers.
        columns: the edges of each relation.
        seeds: the seeds by type.
        workspace: holds the arrays.
        frontiers: the nodes of each type. With times a key stands for a node in the tree of a seed.
        nested: whether a hop expands only the nodes that were found on the hop before; then the blocks of the last hop hold the edges of all.
        times: (B,) int64 of samplers with times: what bounds the edges of each seed's tree.
        counts: nodes of each type before the first hop, and after each.
        hops: what each hop drew, with local ids of sources; if nested, with the edges of the hops before.
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
        """Return a batch of the seeds alone, with their times or None; its nodes are called by ``name`` in the workspace.

        Raises:
            InputError: a seed is given twice.
        """
        (seeds, times), frontiers = roots, {}
        for kind, (number, dtype) in types_of(graph).items():
            ids, places = seeds.by_type.get(kind, _NONE)
            table = workspace.table_of(kind) if kind else workspace.table
            if times is None:
                frontiers[kind] = Frontier(workspace, table, number, dtype, f"nodes{name}.{kind}")
            else:  # over all keys there are, so that the table is a hash table
                frontiers[kind] = Frontier(workspace, table, 1 << 63, np.int64, f"keys{name}.{kind}")
                ids = (np.arange(seeds.number)[places] << TREE_SHIFT) | ids.astype(np.int64)
            frontiers[kind].enter_seeds(ids)
        counts = {kind: frontier.num_nodes for kind, frontier in frontiers.items()}
        return cls(address, columns_of(graph), seeds, workspace, frontiers, nested, times, [counts])

    def grow(self, draws: Mapping[Relation, Draws], num_hops: int) -> Generator[list[Step[Draws]], Sequence[Drawn], None]:
        """Sample all hops: yield the steps of each, and take what is drawn, with local ids of sources, and all edges so far if nested; at last yield none."""
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
        """Return the address of a step's random numbers."""
        return self.address.at_hop(step.draws.number * MOST_HOPS + step.hop)

    def buffers(self, step: Step[Draws], most: int, dtype: DTypeLike | None = None) -> Edges:
        """Return arrays that can take ``most`` more edges than there are; sources have the dtype of ids, or another."""
        columns, array, before = self.columns[step.relation], self.workspace.array, step.num_edges
        edges = Edges(
            indptr=array(f"indptr{step.name}", step.last + 1, id_dtype(before + most + 1), keep=step.first + 1 if step.first else 0),
            edge_ids=array(f"edge_ids{step.name}", before + most, id_dtype(columns.num_edges), keep=before),
            indices=array(
                f"{'indices' if dtype is None else 'sources'}{step.name}", before + most, dtype or columns.indices.dtype, keep=before
            ),
        )
        edges.indptr[step.first : step.first + 1 if most else None] = before
        return edges

    def blocks(self) -> tuple[dict[Relation, Block], ...]:
        """Return the blocks of each hop, the last hop first."""
        if self.nested:
            return nested_hops(self._blocks(self.hops[-1], self.counts[-1]), self.counts)
        return tuple(map(self._blocks, reversed(self.hops), reversed(self.counts)))

    def _blocks(self, hop: Mapping[Relation, Drawn], counts: Mapping[str, int]) -> dict[Relation, Block]:
        blocks = {}
        for number, (relation, (indptr, edge_ids, sources, weights)) in enumerate(hop.items()):
            indices = sources
            if self.times is not None:  # they were keys, so they are int64 until here
                indices = self.workspace.array(f"indices.{number}", len(sources), self.columns[relation].indices.dtype)
                np.copyto(indices, sources, casting="same_kind")
            blocks[relation] = Block(indptr=indptr, indices=indices, edge_ids=edge_ids, num_src=counts[relation[0]], weights=weights)
        return blocks

    def nodes(self) -> dict[str, Array]:
        """Return the nodes of each type; with times they are keys."""
        return {kind: frontier.nodes() for kind, frontier in self.frontiers.items()}
