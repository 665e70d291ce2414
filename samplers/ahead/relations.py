"""Plain graphs and typed ones alike: the types of their vertices, their relations, and who draws along each of these. A plain graph has one of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hoptrain.engine import Graph, HeteroGraph
from hoptrain.engine.arrays import id_dtype
from hoptrain.engine.hetero_graph import Relation, RelationColumns, relation_name
from hoptrain.samplers.ahead.draws import can_be_drawn
from hoptrain.samplers.nodewise.hetero import HeteroSampler

ONLY: Relation = ("", "", "")
"""The relation of a plain graph, from vertices of type "" to such."""


def columns_of(graph: Graph | HeteroGraph) -> Mapping[Relation, Graph | RelationColumns]:
    """The edges of each relation."""
    return graph.relations if isinstance(graph, HeteroGraph) else {ONLY: graph}


def types_of(graph: Graph | HeteroGraph) -> dict[str, tuple[int, Any]]:
    """Of each type how many vertices it has, and the dtype of their ids."""
    if isinstance(graph, HeteroGraph):
        return {name: (number, id_dtype(number)) for name, number in graph.num_nodes.items()}
    return {"": (graph.num_nodes, graph.indices.dtype)}


def can_be_grown(sampler: object) -> bool:
    """Whether batches can be grown together (``hoptrain.samplers.ahead.window``): not those of a subclass, which may sample otherwise."""
    return can_be_drawn(sampler) or type(sampler) is HeteroSampler


def along(sampler: Any, graph: Graph | HeteroGraph) -> Mapping[Relation, Any]:
    """Who draws along each relation: a sampler of plain graphs itself.

    Raises:
        InputError: as ``HeteroSampler.along``.
    """
    return sampler.along(graph) if isinstance(graph, HeteroGraph) else {ONLY: sampler}


def named(name: str, relation: Relation) -> str:
    """The name of what a relation's edges have, where there may be several; "edge_attr" becomes that of the store of their features."""
    return name if relation == ONLY else f"{name}.{relation_name(relation)}"
