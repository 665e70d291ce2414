"""What a sampling program sees and calls, and one step of it; the step is compiled for the CPU and for CUDA from the same source.

A program's ``next`` is handed a ``Transit`` and a ``RandomSource`` and returns the number of one of the transit's edges. Shapes: V nodes
and E edges of the graph, D edges of the transit.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import overload

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.draws import bounded, word_at
from hoptrain.kernels.shared.philox import MAX_HOP, four_words

STOP = -1
"""What ``next`` returns where a walk ends, or where a draw gives no edge."""
WRONG = -2
"""What a step gives if ``next`` returned no edge of its transit."""

MAX_STEPS = MAX_HOP // 2
"""The random words of ``transit_of`` are those of hops from here up."""

_U2 = np.uint64(2)
_U3 = np.uint64(3)
_SCALE = 4294967296.0


class Transit(NamedTuple):
    """A node whose neighbours are being sampled."""

    vertex: Any
    """Its global id."""
    neighbors: Any
    """(D,) global ids of its in-neighbours."""
    weights: Any
    """(D,) weights of its edges; empty where the graph has none."""
    first_edge: Any
    """The edge id of ``neighbors[0]``; the others follow it."""
    earlier: Any
    """(steps so far + 1,) the nodes of the sample, the root first; for blocks the transit alone."""
    state: Any
    """(state_size,) int64 of the sample: zero at first, and kept from step to step."""
    indptr: Any
    indices: Any


class RandomSource(NamedTuple):
    """Random words 0, 1, 2, ... of one draw: a pure function of their address. All ``uint64``."""

    seed: Any
    epoch: Any
    batch: Any
    hop: Any
    vertex: Any
    first: Any
    """The word of the draw that is numbered 0; those of draws beside it lie between."""
    stride: Any


@shared
def random_word(rng, draw):
    """Word ``draw`` of the source, 32 bits in a ``uint64``."""
    place = np.uint64(rng.first) + np.uint64(draw) * np.uint64(rng.stride)
    words = four_words(
        np.uint64(rng.seed),
        np.uint64(rng.epoch),
        np.uint64(rng.batch),
        np.uint64(rng.hop),
        np.uint64(rng.vertex),
        place >> _U2,
    )
    return np.uint64(word_at(np.int64(place & _U3), words[0], words[1], words[2], words[3]))


@shared
def randint(rng: Any, n: int, draw: int = 0) -> int:
    """An integer in [0, n), uniform up to a bias of n / 2**32; the same one for the same ``draw``.

    Args:
        rng: as ``next`` got it.
        n: at least 1, below 2**32.
        draw: which of the source's numbers: 0, 1, 2, ...; ask for different ones where they have to be independent.
    """
    return bounded(random_word(rng, draw), n)


@shared
def bernoulli(rng: Any, probability: float, draw: int = 0) -> bool:
    """True with ``probability`` (exact to 2**-32), as ``randint`` from random word ``draw``."""
    return random_word(rng, draw) < np.uint64(min(max(probability, 0.0), 1.0) * _SCALE)


def has_edge(transit: Any, source: int, destination: int) -> bool:
    """Whether the graph has an edge from ``source`` to ``destination``: by bisection, so the graph's columns are sorted."""
    return in_column(transit.indptr, transit.indices, source, destination)


def in_column(indptr, indices, source, destination):
    """Whether ``source`` is in the sorted column of ``destination``."""
    low, end = np.int64(indptr[destination]), np.int64(indptr[destination + 1])
    high = end
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < source:
            low = middle + 1
        else:
            high = middle
    return low < end and indices[low] == source


@overload(has_edge)
def _compile_has_edge(transit: Any, source: int, destination: int) -> Any:
    """Compiled code takes the same source; the simulator interprets it. Numba wants the annotations to be the same, too."""
    return has_edge


@overload(in_column)
def _compile_in_column(indptr, indices, source, destination):
    """As above."""
    return in_column


def edge_number(value):
    """What ``next`` returned, as ``int64``. A program whose ``next`` returns anything but integers is not compiled."""
    return np.int64(value)


@overload(edge_number)
def _compile_edge_number(value):
    if not isinstance(value, types.Integer):
        raise TypingError(f"next returns {value}: an edge has a whole number")
    return lambda value: np.int64(value)


def make_choice(compiled, next_edge):
    """The function that asks ``next`` for one edge of a node.

    Returns:
        ``choose(parameters, columns, vertex, earlier, state, step, random)``: the edge id, ``STOP`` or ``WRONG``.
    """
    next_edge = compiled(next_edge)

    @compiled
    def choose(parameters, columns, vertex, earlier, state, step, rng):
        indptr, indices, weights = columns
        begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
        if begin == end:
            return STOP
        edges = weights[begin:end] if len(weights) else weights
        transit = Transit(vertex, indices[begin:end], edges, begin, earlier, state, indptr, indices)
        offset = edge_number(next_edge(parameters, transit, step, rng))
        if offset == STOP:
            return STOP
        return begin + offset if 0 <= offset < end - begin else WRONG

    return choose


def make_step(compiled, next_edge, transit_of):
    """The function that takes one step of one walk.

    Args:
        compiled: the decorator of the target; of the simulator, one that changes nothing.
        next_edge: ``next(parameters, transit, step, random)``.
        transit_of: ``transit_of(parameters, earlier, step, random)``, the place in ``earlier`` of the node to extend.

    Returns:
        ``take_step(parameters, columns, walks, states, walk, step, address, root, copy, copies)``: as of ``make_choice``.
    """
    choose, transit_of = make_choice(compiled, next_edge), compiled(transit_of)

    @compiled
    def take_step(parameters, columns, walks, states, walk, step, address, root, copy, copies):
        seed, epoch, batch = address
        earlier = walks[walk, : step + 1]
        rng = RandomSource(seed, epoch, batch, np.uint64(MAX_STEPS + step), np.uint64(root), np.uint64(copy), np.uint64(copies))
        place = transit_of(parameters, earlier, step, rng)
        if place < 0 or place > step:
            return WRONG
        rng = RandomSource(seed, epoch, batch, np.uint64(step), np.uint64(root), np.uint64(copy), np.uint64(copies))
        return choose(parameters, columns, np.int64(earlier[place]), earlier, states[walk], step, rng)

    return take_step


def make_draw(compiled, next_edge):
    """The function that makes one draw of a transit of a block.

    Returns:
        ``draw(parameters, columns, vertex, earlier, step, address, draw, num_draws, state)``: as of ``make_choice``.
    """
    choose = make_choice(compiled, next_edge)

    @compiled
    def draw_edge(parameters, columns, vertex, earlier, step, address, draw, num_draws, state):
        seed, epoch, batch = address
        rng = RandomSource(seed, epoch, batch, np.uint64(step), np.uint64(vertex), np.uint64(draw), np.uint64(num_draws))
        return choose(parameters, columns, vertex, earlier, state, step, rng)

    return draw_edge
