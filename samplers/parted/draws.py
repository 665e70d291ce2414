"""What the owner of vertices draws for them: the samplers of which it can do so alone, from its own columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hoptrain.engine import Address, Graph, InputError
from hoptrain.engine.arrays import Array, id_dtype
from hoptrain.engine.partition.topology.graph import PartedGraph
from hoptrain.kernels.cpu.nodewise import neighbor as kernels
from hoptrain.kernels.shared.draws import ALL
from hoptrain.samplers.nodewise.labor import LaborHop, LaborSampler
from hoptrain.samplers.nodewise.neighbor import NeighborSampler
from hoptrain.samplers.programs.walks import RandomWalk
from hoptrain.samplers.scratch.alias import no_weight, weights_of
from hoptrain.samplers.scratch.frontier import Frontier
from hoptrain.samplers.scratch.hop import Hop, count_edges, draw_in_order, most_edges
from hoptrain.samplers.scratch.workspace import Workspace


class Drawn(NamedTuple):
    """Edges into some vertices, in compressed columns: those of vertex i are from indptr[i] to indptr[i + 1]. Arrays of the workspace."""

    indptr: Array
    edge_ids: Array
    """(n,) places in the graph that was drawn from."""
    sources: Array
    """(n,) global ids."""
    weights: Array | None = None
    """(n,) float32, of samplers whose blocks have them."""


class Asked(NamedTuple):
    """Vertices (M,) of one batch, at one hop of a sampler."""

    sampler: Any
    nodes: Array
    address: Address
    hop: int


def draw(graph: Graph, asked: Asked, workspace: Workspace) -> Drawn:
    """The draws of the vertices asked for, each for itself, from a graph that has their columns."""
    return _DRAWS[type(asked.sampler)](graph, asked, workspace)


def check_alone(sampler: object, graph: PartedGraph | None = None) -> None:
    """Refuse a sampler that needs more of the graph than each vertex's own edges, or weights where all of the whole ``graph``'s are 0.

    Raises:
        InputError: it does.
    """
    if type(sampler) not in _DRAWS and type(sampler) is not RandomWalk:
        known = ", ".join(sorted(kind.__name__ for kind in (*_DRAWS, RandomWalk)))
        raise InputError(
            f"{type(sampler).__name__} on a graph in parts: there a vertex's owner draws for it alone, as {known} do; take one of these, or part the "
            "features alone"
        )
    if isinstance(sampler, LaborSampler) and sampler.importance_rounds:
        raise InputError(
            f"importance_rounds is {sampler.importance_rounds} on a graph in parts: importances are found from all edges of a hop; take 0, or part the "
            "features alone"
        )
    if graph is not None and isinstance(sampler, NeighborSampler) and sampler.weighted and not graph.has_weight:
        raise no_weight(graph.num_edges)


def has_weights(sampler: object) -> bool:
    """Whether its blocks have weights of their edges."""
    return isinstance(sampler, LaborSampler)


def _neighbors(graph: Graph, asked: Asked, workspace: Workspace) -> Drawn:
    sampler, nodes, address, hop = asked
    rule, columns, number = sampler.rules()[hop], sampler.columns(graph)[hop], len(nodes)
    most = most_edges(number, rule.fanout, lambda: count_edges(columns, nodes, 0, number, rule))
    edges = kernels.Edges(
        indptr=workspace.array("drawn.indptr", number + 1, id_dtype(most + 1)),
        edge_ids=workspace.array("drawn.edge_ids", most, id_dtype(graph.num_edges)),
        indices=workspace.array("drawn.sources", most, graph.indices.dtype),
    )
    edges.indptr[: 1 if most else None] = 0
    [total] = draw_in_order([Hop(workspace, columns, nodes, 0, number, rule, address.at_hop(hop), edges, 0)], lambda *_: None)
    return Drawn(edges.indptr, edges.edge_ids[:total], edges.indices[:total])


def _labor(graph: Graph, asked: Asked, workspace: Workspace) -> Drawn:
    sampler, nodes, address, hop = asked
    frontier = Frontier(workspace, workspace.table, graph.num_nodes, graph.indices.dtype, "drawn.nodes")
    frontier.enter_seeds(nodes)
    fanout, weights = sampler.fanout_codes[hop], weights_of(graph) if sampler.weighted else None
    number = fanout if fanout != ALL else graph.num_edges
    kept, total = LaborHop(graph, frontier, frontier, len(nodes), address.at_hop(hop), number, 0, weights).keep("drawn")
    return Drawn(kept.indptr, kept.edge_ids[:total], kept.sources[:total], kept.weights[:total])


_DRAWS: dict[type, Callable[[Graph, Any, Workspace], Drawn]] = {NeighborSampler: _neighbors, LaborSampler: _labor}
"""By the sampler's very class: a subclass may sample otherwise."""
