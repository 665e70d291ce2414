"""Relations along metapaths: from nodes of one type to those of another, through the types between."""

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
    """The data set with one relation for each metapath in place of those that it has; types on no end of one are left out, but that of the seeds.

    There is one edge from u to v where at least one path leads there (PyG's ``AddMetaPaths`` with ``drop_orig_edge_types``; Wang et al. 2019, "Heterogeneous
    graph attention network"). A path of two types is a relation itself, without copies of edges. Edges have neither weights, times, features nor splits.

    Args:
        data: the data set.
        metapaths: of each the types from source to destination, such as [paper, author, paper]; where several relations join two types, each step is written
            as a relation, ``source:name:destination``.

    Raises:
        InputError: no metapath or the same one twice, a step that is no relation, or several.
    """
    graph = data.graph
    paths = {tuple(steps_of(graph, path)): path for path in metapaths}
    if not paths or len(paths) < len(metapaths):
        raise InputError(f"metapaths are {[list(path) for path in metapaths]}: give one or more, each once, such as [paper, author, paper]")
    edges = {(path[0][0], "-".join(map(_step_name, path)), path[-1][2]): _product(graph, path) for path in paths}
    ends = {name for relation in edges for name in (relation[0], relation[2])} | {data.seed_type}
    num_nodes = {name: number for name, number in graph.num_nodes.items() if name in ends}
    made = HeteroGraph(num_nodes, edges)
    x = {name: rows for name, rows in data.x.items() if name in ends}
    return replace(data, graph=made, x=x, edge_attr={}, edge_splits={}, path=None, validate=False)


def _step_name(relation: Relation) -> str:
    """``source_name_destination``: a relation's own name may have no ":", and PyG's layers take none with a point."""
    return "_".join(relation)


def steps_of(graph: HeteroGraph, path: Sequence[str]) -> list[Relation]:
    """The relations of a metapath; arguments and errors as of ``with_metapaths``."""
    if len(path) and ":" in path[0]:
        named = {relation_name(relation): relation for relation in graph.relations}
        unknown = next((step for step in path if step not in named), None)
        if unknown is not None:
            raise InputError(f"{unknown} in metapath {list(path)} is no relation: there are {', '.join(named)}; correct it")
        steps = [named[step] for step in path]
        if any(one[2] != two[0] for one, two in pairwise(steps)):
            raise InputError(f"metapath {list(path)} is broken: each relation begins where the one before ends; correct it")
        return steps
    if len(path) < 2:
        raise InputError(f"metapath {list(path)} has no step: give two types or more, such as [paper, author, paper]")
    return [_between(graph, source, destination, path) for source, destination in pairwise(path)]


def _between(graph: HeteroGraph, source: str, destination: str, path: Sequence[str]) -> Relation:
    found = [relation for relation in graph.relations if (relation[0], relation[2]) == (source, destination)]
    if len(found) != 1:
        there = ", ".join(map(relation_name, found or graph.relations))
        said = (
            f"relations are {there}; write the steps of the metapath as relations"
            if found
            else f"no relation does, there are {there}; correct it"
        )
        raise InputError(f"metapath {list(path)} goes from {source} to {destination}: {said}")
    return found[0]


def _product(graph: HeteroGraph, path: Sequence[Relation]) -> tuple[Array, Array]:
    """Columns (indptr, indices), sorted and without copies."""
    from scipy.sparse import csc_array

    def matrix(relation: Relation) -> Any:
        columns = graph.relations[relation]
        parts, shape = (np.ones(columns.num_edges, bool), columns.indices, columns.indptr), (columns.num_src, columns.num_nodes)
        return csc_array(parts, shape=shape, copy=True)

    product = reduce(matmul, map(matrix, path))
    product.sum_duplicates()
    return product.indptr, product.indices
