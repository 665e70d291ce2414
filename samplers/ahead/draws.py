"""What vertices draw from their own columns, whoever has these: the samplers whose batches can be put together from such draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from hoptrain.engine import Address, Graph
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.kernels.cpu.address import HopAddress
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.shared.draws import ALL
from hoptrain.samplers.nodewise.hetero_labor import OneLabor
from hoptrain.samplers.nodewise.labor import LaborHop, LaborSampler
from hoptrain.samplers.nodewise.neighbor import NeighborSampler
from hoptrain.samplers.scratch.alias import weights_of
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.hop import Hop, count_edges, draw_in_order, most_edges
from hoptrain.samplers.scratch.workspace import Workspace
from hoptrain.samplers.typed import MOST_HOPS


class Drawn(NamedTuple):
    """Edges into some vertices, in compressed columns: those of vertex i are from indptr[i] to indptr[i + 1]."""

    indptr: Array
    edge_ids: Array
    """(n,) places in the graph that was drawn from."""
    sources: Array
    """(n,) global ids; of samplers of times keys."""
    weights: Array | None = None
    """(n,) float32, of samplers whose blocks have them."""


class Asked(NamedTuple):
    """Vertices (M,) of one batch, at one hop of a sampler: all that the hop expands, or some."""

    sampler: Any
    nodes: Array
    """Of samplers of times keys, as ``hoptrain.kernels.cpu.nodewise.temporal`` has them."""
    address: Address
    hop: int
    relation: int = 0
    """Its number, where the sampler draws along one of several; of LABOR that of the sources' type."""
    first: int = 0
    """Which node of the batch the first one is."""
    bounds: Array | None = None
    """(B,) int64 of samplers of times: of each tree what bounds its edges."""

    @property
    def at(self) -> HopAddress:
        """The address of the draws."""
        return self.address.at_hop(self.relation * MOST_HOPS + self.hop)


Draws: TypeAlias = Callable[[int, Sequence[Asked]], Sequence[Drawn]]
"""What some batches, none too, drew at a hop, each for its vertices in their order; the arrays are their own."""


def draw(graph: Graph, asked: Asked, workspace: Workspace) -> Drawn:
    """The draws of the vertices asked for from a graph that has their columns, in arrays of the workspace."""
    return _DRAWS[type(asked.sampler)](graph, asked, workspace)


def can_be_drawn(sampler: object) -> bool:
    """Whether there is ``draw`` for a sampler: not of a subclass, which may sample otherwise."""
    return type(sampler) in (NeighborSampler, LaborSampler)


def has_weights(sampler: object) -> bool:
    """Whether its blocks have weights of their edges."""
    return isinstance(sampler, LaborSampler)


def _neighbors(graph: Graph, asked: Asked, workspace: Workspace) -> Drawn:
    sampler, nodes, hop = asked.sampler, asked.nodes, asked.hop
    rule, columns, number = sampler.rules()[hop], sampler.columns(graph)[hop], len(nodes)
    most = most_edges(number, rule.fanout, lambda: count_edges(columns, nodes, 0, number, rule))
    edges = kernels.Edges(
        indptr=workspace.array("drawn.indptr", number + 1, id_dtype(most + 1)),
        edge_ids=workspace.array("drawn.edge_ids", most, id_dtype(graph.num_edges)),
        indices=workspace.array("drawn.sources", most, graph.indices.dtype),
    )
    edges.indptr[: 1 if most else None] = 0
    [total] = draw_in_order([Hop(workspace, columns, nodes, 0, number, rule, asked.at, edges, 0)], lambda *_: None)
    return Drawn(edges.indptr, edges.edge_ids[:total], edges.indices[:total])


def _labor(graph: Graph, asked: Asked, workspace: Workspace) -> Drawn:
    sampler, nodes, hop = asked.sampler, asked.nodes, asked.hop
    frontier = Frontier(workspace, workspace.table, graph.num_nodes, graph.indices.dtype, "drawn.nodes")
    frontier.enter_seeds(nodes)
    sources = frontier
    if isinstance(sampler, OneLabor):  # maybe of another type
        sources = Frontier(workspace, workspace.table_of("drawn"), sampler.num_sources, graph.indices.dtype, "drawn.from")
        sources.enter_seeds(nodes[:0])
    fanout, weights = sampler.fanout_codes[hop], weights_of(graph) if sampler.weighted else None
    rounds, number = (sampler.importance_rounds, fanout) if fanout != ALL else (0, graph.num_edges)
    kept, total = LaborHop(graph, frontier, sources, len(nodes), asked.at, number, rounds, weights).keep("drawn")
    return Drawn(kept.indptr, kept.edge_ids[:total], kept.sources[:total], kept.weights[:total])


_DRAWS: dict[type, Callable[[Graph, Any, Workspace], Drawn]] = {NeighborSampler: _neighbors, LaborSampler: _labor, OneLabor: _labor}
"""By the very class of the sampler, or of what it has along a relation."""
