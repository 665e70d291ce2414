"""Metapath relations, which lead from nodes of one type to nodes of another type via intermediate types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import matmul
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.errors import InputError
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph, Relation, relation_name


def with_metapaths(data: HeteroDataset, metapaths: Sequence[Sequence[str]]) -> HeteroDataset:
    """Replace a data set's relations by one relation per metapath. Node types at which no metapath begins or ends are dropped, except the seed type.

    An edge from u to v exists if at least one path connects them (PyG's ``AddMetaPaths`` with ``drop_orig_edge_types``; Wang et al. 2019, "Heterogeneous
    graph attention network"). A path of two types is the relation itself, without parallel edges. Edges have no weights, times, features or splits.

    Args:
        data: the data set.
        metapaths: node types of each metapath from source to destination, such as [paper, author, paper]. If several relations connect two types, each step
            must be a relation ``source:name:destination``.

    Raises:
        InputError: there is no metapath, one occurs twice, or a step is no relation or several relations.
    """
    graph = data.graph
    paths = {tuple(steps_of(graph, path)): path for path in metapaths}
    if not paths or len(paths) < len(metapaths):
        raise InputError(
            f"metapaths are {[list(path) for path in metapaths]}: at least one is needed, each once; give for example [paper, author, paper]"
        )
    edges = {(path[0][0], "-".join(map(_step_name, path)), path[-1][2]): _product(graph, path) for path in paths}
    ends = {name for relation in edges for name in (relation[0], relation[2])} | {data.seed_type}
    num_nodes = {name: number for name, number in graph.num_nodes.items() if name in ends}
    made = HeteroGraph(num_nodes, edges)
    x = {name: rows for name, rows in data.x.items() if name in ends}
    return replace(data, graph=made, x=x, edge_attr={}, edge_splits={}, path=None, validate=False)


def _step_name(relation: Relation) -> str:
    """Return ``source_name_destination``, because relation names must not contain ":", and PyG's layers allow no dots in names."""
    return "_".join(relation)


def steps_of(graph: HeteroGraph, path: Sequence[str]) -> list[Relation]:
    """Return the relations of a metapath. Raise InputError if a step matches no relation, or several."""
    if len(path) and ":" in path[0]:
        named = {relation_name(relation): relation for relation in graph.relations}
        unknown = next((step for step in path if step not in named), None)
        if unknown is not None:
            raise InputError(
                f"{unknown} in metapath {list(path)} is not a relation: it must be one of {', '.join(named)}; choose one of them"
            )
        steps = [named[step] for step in path]
        if any(one[2] != two[0] for one, two in pairwise(steps)):
            raise InputError(
                f"metapath {list(path)} is broken: each relation must begin at the type where the previous one ends; correct the order"
            )
        return steps
    if len(path) < 2:
        raise InputError(f"metapath {list(path)} has no step: it needs two types or more; give for example [paper, author, paper]")
    return [_between(graph, source, destination, path) for source, destination in pairwise(path)]


def _between(graph: HeteroGraph, source: str, destination: str, path: Sequence[str]) -> Relation:
    found = [relation for relation in graph.relations if (relation[0], relation[2]) == (source, destination)]
    if len(found) != 1:
        there = ", ".join(map(relation_name, found or graph.relations))
        said = (
            f"several relations do, {there}; write the steps of the metapath as relations"
            if found
            else f"no relation does, there are {there}; use these"
        )
        raise InputError(f"metapath {list(path)} goes from {source} to {destination}: {said}")
    return found[0]


def _product(graph: HeteroGraph, path: Sequence[Relation]) -> tuple[Array, Array]:
    """Return CSC arrays (indptr, indices) of a path's relation, sorted and without parallel edges."""
    from scipy.sparse import csc_array

    def matrix(relation: Relation) -> Any:
        columns = graph.relations[relation]
        parts, shape = (np.ones(columns.num_edges, bool), columns.indices, columns.indptr), (columns.num_src, columns.num_nodes)
        return csc_array(parts, shape=shape, copy=True)

    product = reduce(matmul, map(matrix, path))
    product.sum_duplicates()
    return product.indptr, product.indices
