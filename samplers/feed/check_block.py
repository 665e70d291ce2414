"""The rules of a block, whatever graph it is of: types, dtypes and lengths; offsets, sources, edges and weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hoptrain.engine import Graph
from hoptrain.engine.arrays import Array
from hoptrain.engine.hetero_graph import RelationColumns
from hoptrain.samplers.batch.minibatch import Block

IDS = (np.dtype(np.int32), np.dtype(np.int64))
WEIGHTS = (np.dtype(np.float32),)


class BrokenRule(Exception):
    """Value, rule and remedy, without the sampler's name."""


def check_block_form(name: str, block: object) -> None:
    """Types, dtypes and lengths of what is called ``name``."""
    if not isinstance(block, Block):
        raise BrokenRule(f"{type(block).__name__} as {name}: the graph of a hop is a Block; return one")
    for key, array in block.arrays().items():
        check_array(f"{name}.{key}", array, WEIGHTS if key == "weights" else IDS)
        if key in ("edge_ids", "weights") and len(array) != block.num_edges:
            raise BrokenRule(f"{len(array)} {name}.{key} of {block.num_edges} edges: there is one for each; correct it")


def check_array(name: str, array: Any, dtypes: tuple[np.dtype[Any], ...]) -> None:
    """One dimension, of one of the dtypes."""
    dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", ())
    on_gpu = getattr(array, "is_cuda", False)  # a tensor; on the CPU, arrays are NumPy's
    if (str(dtype) not in _torch_names(dtypes)) if on_gpu else (dtype not in dtypes):
        kind, remedy = ("weights are float32", "numpy float32") if dtypes is WEIGHTS else ("ids are integers", "numpy int32 or int64")
        raise BrokenRule(f"{name} of {dtype or type(array).__name__}: {kind}; return {remedy}")
    if len(shape) != 1:
        raise BrokenRule(f"{name} of shape {shape}: it has one dimension; correct it")
    if name.endswith("indptr") and len(array) == 0:
        raise BrokenRule(f"{name} of no entry: offsets begin with 0, followed by an end for each destination; correct it")


@cache
def _torch_names(dtypes: tuple[np.dtype[Any], ...]) -> set[str]:
    return {f"torch.{dtype}" for dtype in dtypes}


def check_ends(name: str, block: Block) -> None:
    """The ends of the offsets."""
    first, last = block.indptr[0], block.indptr[-1]
    if first != 0 or last != block.num_edges:
        raise BrokenRule(f"{name}.indptr from {first} to {last}: offsets run from 0 to the number of edges, {block.num_edges}; correct it")


def check_block(name: str, block: Block, sources: Array, destinations: Array, columns: Graph | RelationColumns) -> None:
    """Every entry of a block from the nodes ``sources`` to ``destinations``, global ids; ``columns`` are the graph's, or the relation's."""
    if (np.diff(block.indptr) < 0).any():
        raise BrokenRule(f"{name}.indptr that falls: offsets never do; correct it")
    check_range(f"{name}.indices", block.indices, 0, block.num_src)
    if block.weights is not None:
        check_weights(f"{name}.weights", block.weights)
    check_range(f"{name}.edge_ids", block.edge_ids, -1, columns.num_edges)
    own = block.edge_ids >= 0  # -1 is an edge that the graph has not
    edges, src = block.edge_ids[own], sources[block.indices[own]]
    dst = np.repeat(destinations[: block.num_dst], np.diff(block.indptr))[own]
    is_right = (columns.indices[edges] == src) & (columns.indptr[dst] <= edges) & (edges < columns.indptr[dst + 1])
    if not is_right.all():
        wrong = np.flatnonzero(~is_right)[0]
        raise BrokenRule(
            f"{edges[wrong]} in {name}.edge_ids for the edge from vertex {src[wrong]} to {dst[wrong]}: an edge id is a place "
            "in graph.indices, in the column of its destination; correct it, or return -1 for an edge that the graph has not"
        )


def check_range(name: str, values: Array, least: int, end: int) -> None:
    """All in [least, end)."""
    if len(values) and not (least <= values.min() and values.max() < end):
        wrong = values.min() if values.min() < least else values.max()
        raise BrokenRule(f"{wrong} in {name}: they lie from {least} to {end - 1}; correct it")


def check_weights(name: str, weights: Array) -> None:
    """Finite, none negative."""
    wrong = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(wrong):
        raise BrokenRule(f"{wrong[0]} in {name}: weights are finite and not negative; correct it")
