"""Arguments and helper functions of custom sampling programs, and a single step of such a program, compiled for both the CPU and CUDA.

A program's ``next`` gets a ``Transit`` and a ``RandomSource`` and returns the index of one of the transit's edges. Shapes: V nodes and E edges of
the graph, D edges of the transit.
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
"""Return value of ``next`` that takes no edge: it ends a walk, or skips a draw of a block."""
WRONG = -2
"""Result of a step if ``next`` returned an edge that the transit node does not have."""

MAX_STEPS = MAX_HOP // 2
"""Maximum number of steps of a program. Random words of ``transit_of`` use the hop indices from this value on."""

_U2 = np.uint64(2)
_U3 = np.uint64(3)
_SCALE = 4294967296.0


class Transit(NamedTuple):
    """A node whose neighbours are being sampled."""

    node: Any
    """Global id of the node."""
    neighbors: Any
    """(D,) global ids of the in-neighbours."""
    weights: Any
    """(D,) edge weights; empty if the graph has none."""
    first_edge: Any
    """Edge id of the edge from ``neighbors[0]``. The edge from ``neighbors[i]`` has the id ``first_edge + i``."""
    earlier: Any
    """(steps so far + 1,) global ids of the walk's nodes, the root first; for a block only the transit node."""
    state: Any
    """(state_size,) int64 state of the walk. It is zero at the root, and a step may change it for later steps."""
    indptr: Any
    indices: Any


class RandomSource(NamedTuple):
    """A source of random words 0, 1, 2, ... for one draw; the words are a pure function of its fields (``uint64``)."""

    seed: Any
    epoch: Any
    batch: Any
    hop: Any
    vertex: Any
    first: Any
    """Index of the source's first word in the stream. Its words are ``stride`` apart; the words in between belong to parallel draws."""
    stride: Any


@shared
def random_word(rng, draw):
    """Return word ``draw`` of the source: 32 bits in a ``uint64``."""
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
    """Return an integer in [0, n), uniform up to a bias of n / 2**32. The same ``draw`` gives the same integer.

    Args:
        rng: Random source that ``next`` got.
        n: Upper bound, at least 1 and below 2**32.
        draw: Index of the draw, 0, 1, 2, ...; use different indices for independent draws.
    """
    return bounded(random_word(rng, draw), n)


@shared
def bernoulli(rng: Any, probability: float, draw: int = 0) -> bool:
    """Return True with ``probability`` (exact to 2**-32).

    Args:
        rng: Random source that ``next`` got.
        probability: Probability in [0, 1]; values outside are clipped.
        draw: Index of the draw, 0, 1, 2, ...; use different indices for independent draws.
    """
    return random_word(rng, draw) < np.uint64(min(max(probability, 0.0), 1.0) * _SCALE)


def has_edge(transit: Any, source: int, destination: int) -> bool:
    """Return whether the graph has an edge from ``source`` to ``destination``, by bisection. The graph's columns must be sorted."""
    return in_column(transit.indptr, transit.indices, source, destination)


def in_column(indptr, indices, source, destination):
    """Return whether ``source`` is in the sorted column of ``destination``."""
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
    """Compile ``has_edge`` from its own source, which the simulator interprets. Numba requires the same annotations here."""
    return has_edge


@overload(in_column)
def _compile_in_column(indptr, indices, source, destination):
    """Compile ``in_column`` from its own source, which the simulator interprets."""
    return in_column


def edge_number(value):
    """Return the result of ``next`` as ``int64``. Programs whose ``next`` does not return integers do not compile."""
    return np.int64(value)


@overload(edge_number)
def _compile_edge_number(value):
    if not isinstance(value, types.Integer):
        raise TypingError(f"next returns {value}: must return an integer, the index of an edge; convert the result with int()")
    return lambda value: np.int64(value)


def make_choice(compiled, next_edge):
    """Make the function that calls ``next`` for one edge of a node.

    Args:
        compiled: Decorator that compiles for the target; for the simulator it returns the function unchanged.
        next_edge: ``next(parameters, transit, step, random)`` of the program.

    Returns:
        ``choose(parameters, columns, node, earlier, state, step, random)``, which returns an edge id, ``STOP`` or ``WRONG``.
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
    """Make the function that takes one step of one walk.

    Args:
        compiled: Decorator that compiles for the target; for the simulator it returns the function unchanged.
        next_edge: ``next(parameters, transit, step, random)`` of the program.
        transit_of: ``transit_of(parameters, earlier, step, random)``, which returns the position in ``earlier`` of the node to extend.

    Returns:
        ``take_step(parameters, columns, walks, states, walk, step, address, root, copy, copies)``, which returns an edge id, ``STOP`` or ``WRONG``.
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
    """Make the function that makes one draw for one transit node of a block.

    Args:
        compiled: Decorator that compiles for the target; for the simulator it returns the function unchanged.
        next_edge: ``next(parameters, transit, step, random)`` of the program.

    Returns:
        ``draw(parameters, columns, node, earlier, step, address, draw, num_draws, state)``, which returns an edge id, ``STOP`` or ``WRONG``.
    """
    choose = make_choice(compiled, next_edge)

    @compiled
    def draw_edge(parameters, columns, vertex, earlier, step, address, draw, num_draws, state):
        seed, epoch, batch = address
        rng = RandomSource(seed, epoch, batch, np.uint64(step), np.uint64(vertex), np.uint64(draw), np.uint64(num_draws))
        return choose(parameters, columns, vertex, earlier, state, step, rng)

    return draw_edge
