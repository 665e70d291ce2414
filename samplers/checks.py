"""Checks of samplers' arguments: addresses, seeds and fanouts. Each raises ``InputError`` with the value, the rule and a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np

from hoptrain.engine import Graph, InputError
from hoptrain.engine.arrays import Array, is_integer
from hoptrain.kernels.cpu.csc import first_out_of_range
from hoptrain.kernels.shared.philox import MAX_BATCH, MAX_EPOCH, MAX_HOP


def check_fanouts(fanouts: Sequence[int | float], limit: int) -> tuple[int | float, ...]:
    """Return the fanouts, one for each hop, checked to be below ``limit``; -1 takes all edges, and a float is a share of them.

    Raises:
        InputError: there are no hops or too many, or a fanout is neither a positive whole number nor -1 nor a share.
    """
    try:
        checked = tuple(map(as_fanout, fanouts))
    except TypeError:
        raise InputError(
            f"fanouts is {fanouts!r}: give a whole number or a share for each hop, at least one, for instance [15, 10] or [0.5, 10]"
        ) from None
    if not 0 < len(checked) < MAX_HOP:
        raise InputError(f"fanouts is {list(fanouts)}: give one number for each hop, at least one, for instance [15, 10]")
    for fanout in checked:
        if fanout == 0 or not is_fanout(fanout, limit):
            raise InputError(f"fanout {fanout} in {list(fanouts)}: {fanout_rule(1, limit)}")
    return checked


def as_counts(name: str, given: Sequence[int]) -> tuple[int, ...]:
    """Return the option ``name``, a whole number for each hop, as a tuple of integers.

    Raises:
        InputError: ``given`` is not a sequence of whole numbers.
    """
    try:
        return tuple(map(index, given))
    except TypeError:
        raise InputError(f"{name} is {given!r}: give a whole number for each hop, for instance [10, 5]") from None


def as_fanout(given: int | float) -> int | float:
    """Return a fanout as a Python number: an int is a number of edges, a float a share of the degree.

    Raises:
        TypeError: ``given`` is not a number.
    """
    if isinstance(given, bool | np.bool_):
        raise TypeError("expected a number, got bool")
    return float(given) if isinstance(given, float | np.floating) else index(given)


def is_fanout(fanout: int | float, limit: int) -> bool:
    """Return whether a number is a fanout: a share in (0, 1], -1 for all edges, or a whole number in [0, ``limit``)."""
    return 0 < fanout <= 1 if isinstance(fanout, float) else -1 <= fanout < limit


def fanout_rule(least: int, limit: int) -> str:
    """Return the rule for fanouts as the end of an error message."""
    return f"a hop takes {least} to {limit - 1} edges a node, or -1 for all, or a share of them such as 0.5, above 0 and at most 1.0"


def check_address(seed: int, epoch: int, batch: int) -> None:
    """Raise ``InputError`` if seed, epoch or batch do not fit into the address of a random number (``hoptrain.kernels.shared.philox``)."""
    for name, value, limit in (("seed", seed, 1 << 64), ("epoch", epoch, MAX_EPOCH), ("batch", batch, MAX_BATCH)):
        if not 0 <= value < limit:
            raise InputError(
                f"{name} is {value}: it must be in [0, {limit}), since it is part of the random number's address (the key and counter of Philox)"
            )


def check_bulk_address(seed: int, epoch: int, first_batch: int, number: int) -> None:
    """Raise ``InputError`` if an address of ``number`` consecutive batches is out of range; see ``check_address``."""
    check_address(seed, epoch, first_batch)
    check_address(seed, epoch, first_batch + number - 1)


_DISTINCT = "use numpy.unique(seeds)"


def check_seeds(graph: Graph, seeds: Array, *, distinct: bool = False, remedy: str = _DISTINCT) -> Array:
    """Return the seeds as an array, checked for dtype and range and, if ``distinct``, for duplicates; ``remedy`` ends that message."""
    seeds = check_nodes(seeds, graph.num_nodes)
    return check_distinct(seeds, remedy) if distinct else seeds


def check_nodes(seeds: Array, num_nodes: int) -> Array:
    """Return the seeds as an array, checked for dtype and range."""
    return check_ids(seeds, num_nodes, "seed", "node", "nodes")


def check_ids(ids: Array, number: int, name: str, kind: str, kinds: str) -> Array:
    """Return ids as an array, checked to be integers in [0, ``number``).

    Args:
        ids: (N,) at least one id.
        number: number of ids that exist.
        name: word for the ids in messages, such as "seed".
        kind: word for what they identify, such as "node".
        kinds: plural of ``kind``.

    Raises:
        InputError: ``ids`` is not a one-dimensional integer array of at least one id, or an id is out of range.
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or len(ids) == 0 or not is_integer(ids.dtype):
        raise InputError(f"{name}s are {ids.dtype} of shape {ids.shape}: give a one-dimensional integer array of at least one {kind} id")
    bad = first_out_of_range(ids, number)
    if bad >= 0:
        raise InputError(f"{name} {ids[bad]} is not in the graph: its {kinds} are 0 to {number - 1}; drop it")
    return ids


def check_distinct(seeds: Array, remedy: str = _DISTINCT) -> Array:
    """Return the seeds (B,), checked for duplicates; ``remedy`` ends the message.

    Raises:
        InputError: a seed is given twice.
    """
    values, counts = np.unique(seeds, return_counts=True)
    if counts.max() > 1:
        raise seed_given_twice(values[counts.argmax()], remedy)
    return seeds


def no_edges(sampler: str) -> InputError:
    """Return the error of a sampler that connects nodes without edges of the graph, on a data set with edge features."""
    return InputError(
        f"{sampler} with edge features: its batches hold pairs of nodes that are no edges of the graph; use a Dataset without edge_attr"
    )


def seed_given_twice(vertex: int, remedy: str = _DISTINCT) -> InputError:
    """Return the error for a seed that is in a batch or split more than once."""
    return InputError(f"seed {vertex} is given twice: the seeds of a batch must be distinct; {remedy}")
