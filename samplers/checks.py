"""What is asked of a sampler is checked: addresses, seeds, fanouts."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.kernels.cpu.csc import first_out_of_range
from hoptrain.kernels.shared.philox import MAX_BATCH, MAX_EPOCH, MAX_HOP


def check_fanouts(fanouts: Sequence[int | float], limit: int) -> tuple[int | float, ...]:
    """The fanouts, one a hop, below ``limit``; -1 takes all edges, a float the share of them that it is.

    Raises:
        InputError: no hop, too many, or a fanout that is neither a positive whole number nor -1 nor a share.
    """
    try:
        checked = tuple(map(as_fanout, fanouts))
    except TypeError:
        raise InputError(
            f"fanouts are {fanouts!r}: give a whole number or a share for each hop, at least one, for instance [15, 10] or [0.5, 10]"
        ) from None
    if not 0 < len(checked) < MAX_HOP:
        raise InputError(f"fanouts are {list(fanouts)}: give one number for each hop, at least one, for instance [15, 10]")
    for fanout in checked:
        if fanout == 0 or not is_fanout(fanout, limit):
            raise InputError(f"fanout {fanout} in {list(fanouts)}: {fanout_rule(1, limit)}; correct it")
    return checked


def as_counts(name: str, given: Sequence[int]) -> tuple[int, ...]:
    """Whole numbers, one a hop.

    Raises:
        InputError: one is not whole, or they are no sequence.
    """
    try:
        return tuple(map(index, given))
    except TypeError:
        raise InputError(f"{name} is {given!r}: give a whole number for each hop, for instance [10, 5]") from None


def as_fanout(given: int | float) -> int | float:
    """A number as Python has it: a float stays one, for it is a share of the degree.

    Raises:
        TypeError: it is no number.
    """
    if isinstance(given, bool | np.bool_):
        raise TypeError("a truth value is no number")
    return float(given) if isinstance(given, float | np.floating) else index(given)


def is_fanout(fanout: int | float, limit: int) -> bool:
    """Whether a hop can take so many edges, or such a share; 0 leaves it out."""
    return 0 < fanout <= 1 if isinstance(fanout, float) else -1 <= fanout < limit


def fanout_rule(least: int, limit: int) -> str:
    """What fanouts are, for errors."""
    return f"a hop takes {least} to {limit - 1} edges a node, or -1 for all, or a share of them such as 0.5, above 0 and at most 1.0"


def check_address(seed: int, epoch: int, batch: int) -> None:
    """Refuse what does not fit into a random number's address (``hoptrain.kernels.shared.philox``)."""
    for name, value, limit in (("seed", seed, 1 << 64), ("epoch", epoch, MAX_EPOCH), ("batch", batch, MAX_BATCH)):
        if not 0 <= value < limit:
            raise InputError(f"{name} is {value}: it is part of a random number's address and lies in [0, {limit})")


def check_bulk_address(seed: int, epoch: int, first_batch: int, number: int) -> None:
    """``check_address`` of ``number`` batches that follow one another."""
    check_address(seed, epoch, first_batch)
    check_address(seed, epoch, first_batch + number - 1)


_DISTINCT = "use numpy.unique(seeds)"


def check_seeds(graph: Graph, seeds: Array, *, distinct: bool = False, remedy: str = _DISTINCT) -> Array:
    """The seeds as an array, checked for kind and range and, if asked, for duplicates, against which there is a remedy."""
    seeds = check_nodes(seeds, graph.num_nodes)
    return check_distinct(seeds, remedy) if distinct else seeds


def check_nodes(seeds: Array, num_nodes: int) -> Array:
    """The seeds as an array, checked for kind and range."""
    return check_ids(seeds, num_nodes, "seed", "node", "nodes")


def check_ids(ids: Array, number: int, name: str, kind: str, kinds: str) -> Array:
    """Ids in [0, ``number``) as an array, checked for kind and range; ``name`` is what they are called, ``kind`` what they name."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or len(ids) == 0 or not is_integer(ids.dtype):
        raise InputError(f"{name}s are {ids.dtype} of shape {ids.shape}: give a one-dimensional integer array of at least one {kind} id")
    bad = first_out_of_range(ids, number)
    if bad >= 0:
        raise InputError(f"{name} {ids[bad]} is not in the graph: its {kinds} are 0 to {number - 1}; drop it")
    return ids


def check_distinct(seeds: Array, remedy: str = _DISTINCT) -> Array:
    """The seeds (B,), none of them twice."""
    values, counts = np.unique(seeds, return_counts=True)
    if counts.max() > 1:
        raise seed_given_twice(values[counts.argmax()], remedy)
    return seeds


def no_edges(sampler: str) -> InputError:
    """The error for pairs of nodes that are asked for their edge's features."""
    return InputError(
        f"{sampler} with features of edges: its batches hold pairs that are no edges of the graph; use a Dataset without edge_attr"
    )


def seed_given_twice(vertex: int, remedy: str = _DISTINCT) -> InputError:
    """The error for a seed that stands in a batch or split more than once."""
    return InputError(f"seed {vertex} is given twice: the seeds of a batch are distinct; {remedy}")
