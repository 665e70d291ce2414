"""Plain graphs and typed ones alike: the types of their vertices, their relations, and who draws along each of these. A plain graph has one of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.engine.arrays import id_dtype
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import Relation
from hoptrain.samplers.ahead.draws import can_be_drawn
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.nodewise.hetero import HeteroSampler
from hoptrain.samplers.nodewise.hetero_labor import HeteroLaborSampler
from hoptrain.samplers.nodewise.hetero_temporal import HeteroTemporalSampler
from hoptrain.samplers.nodewise.temporal import TemporalSampler
from hoptrain.samplers.seeds.link import HeteroLinkSampler, LinkSampler
from hoptrain.samplers.seeds.timed import TimedSeeds


def columns_of(graph: Graph | HeteroGraph) -> Mapping[Relation, Graph | RelationColumns]:
    """The edges of each relation."""
    return graph.relations if isinstance(graph, HeteroGraph) else {ONLY: graph}


def types_of(graph: Graph | HeteroGraph) -> dict[str, tuple[int, Any]]:
    """Of each type how many vertices it has, and the dtype of their ids."""
    if isinstance(graph, HeteroGraph):
        return {name: (number, id_dtype(number)) for name, number in graph.num_nodes.items()}
    return {"": (graph.num_nodes, graph.indices.dtype)}


def can_be_grown(sampler: object) -> bool:
    """Whether batches can be grown together (``hoptrain.samplers.ahead.window``): not those of a subclass, which may sample otherwise.

    Nor those whose negatives are compared with the graph, or whose nodes are paths.
    """
    if type(sampler) in (LinkSampler, HeteroLinkSampler, TimedSeeds):
        return getattr(sampler, "negatives", None) != "filtered" and can_be_grown(grows(sampler))
    if type(sampler) is TemporalSampler:
        return not sampler.monotone
    return can_be_drawn(sampler) or type(sampler) in (HeteroSampler, HeteroLaborSampler, HeteroTemporalSampler)


def grows(sampler: Any) -> Any:
    """What samples the neighbourhoods: the sampler itself, or the one within."""
    return sampler.sampler if isinstance(sampler, LinkSampler | HeteroLinkSampler | TimedSeeds) else sampler


def is_timed(sampler: object) -> bool:
    """Whether times bound the edges that it draws, so that its nodes are vertices in trees."""
    return isinstance(sampler, TemporalSampler | HeteroTemporalSampler)


def along(sampler: Any, graph: Graph | HeteroGraph) -> Mapping[Relation, Any]:
    """Who draws along each relation: a sampler of plain graphs itself.

    Raises:
        InputError: as ``HeteroSampler.along``.
    """
    return sampler.along(graph) if isinstance(graph, HeteroGraph) else {ONLY: sampler}
