"""Links as seeds: which these are, their ends, and what a batch of them asks of the sampler of neighbourhoods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.engine.columns import RelationColumns
from hoptrain.engine.hetero_graph import Relation
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.kernels.cpu.seeds import link as kernels
from hoptrain.samplers.checks import check_ids
from hoptrain.samplers.scratch.workspace import Workspace

Looked: TypeAlias = Mapping[str, Mapping[Relation, Array]]
"""What was looked up of the links of a batch where the edges are not at hand: of a graph's arrays (E,), by name, the entries of each relation's links."""


class Links(NamedTuple):
    """What a batch of links asks for.

    Attributes:
        seeds: (S,) of the sampler within.
        times: (S,) int64 of these, with a sampler of times.
        extra: what the batch holds besides, by name; with "pairs" as local ids.
        positives: of each relation (2, P) the links as local ids; none where edges are not excluded.
    """

    seeds: Array
    times: Array | None
    extra: dict[str, Array]
    positives: list[Array]

    def copied(self) -> Links:
        """With arrays of its own."""
        extra = {name: array.copy() for name, array in self.extra.items()}
        return Links(self.seeds.copy(), self.times, extra, [own.copy() for own in self.positives])


def places_of(graph: Graph | RelationColumns, edges: Array) -> Array:
    """The places (N,) of the edges with the ids ``edges`` (N,), which are checked."""
    number = graph.num_edges if graph.edge_ids is None else int(graph.edge_ids.max(initial=-1)) + 1
    return graph.places_of(check_ids(edges, number, "edge", "edge", "edges"))


def edges_into(graph: Graph | RelationColumns, vertices: Array) -> Array:
    """The places of all edges into ``vertices`` (N,), column by column.

    Raises:
        InputError: there is none.
    """
    begins, degrees = graph.indptr[vertices].astype(np.int64), (graph.indptr[vertices + 1] - graph.indptr[vertices]).astype(np.int64)
    if degrees.sum() == 0:
        raise InputError(
            f"no edge leads into any of the {len(vertices):,} vertices of the split: there is no link to learn; choose another"
        )
    return np.repeat(begins - (np.cumsum(degrees) - degrees), degrees) + np.arange(degrees.sum())


def write_ends(columns: Graph | RelationColumns, places: Array, sources: Array | None, src: Array, dst: Array) -> None:
    """Write the ends of the edges at ``places`` (P,) into ``src`` and ``dst`` (P,); ``sources`` (P,) where they were looked up."""
    if sources is None:
        kernels.end_points(columns.indptr, columns.indices, places, src, dst)
    else:
        src[:], dst[:] = sources, np.searchsorted(columns.indptr, places, side="right") - 1


def distinct_ends(num_vertices: int, pairs: Array, workspace: Workspace, name: str = "link_nodes") -> Array:
    """The distinct vertices of the pairs, in order of first appearance; ``pairs`` become local ids."""
    nodes = workspace.array(name, pairs.size + 1, pairs.dtype)
    workspace.table.start(num_vertices, min(pairs.size, num_vertices))
    return nodes[: relabel(pairs.reshape(-1), 0, pairs.size, workspace.table.view(), nodes, 0)]
