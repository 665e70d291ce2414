"""Random draws of a node's edges, from its degree and random words.

Callers choose one of four ways to draw by ``replace`` and ``weighted``:

* without replacement, uniform: Floyd's method (Bentley & Floyd, CACM 1987) over the words 0, 1, 2, ...: draw j is ``bounded(word, top + 1)``
  with ``top = degree - count + j``, or ``top`` itself if that offset was drawn before. Every subset is equally likely.
* with replacement, uniform: draw j is ``bounded(word j, degree)``.
* with replacement, by weight: draw j is ``alias_offset`` of the words 2 j and 2 j + 1.
* without replacement, by weight: the first distinct edges of these draws; see ``hoptrain.kernels.cpu.nodewise.weighted``.

The number of draws is the hop's fanout, or a share of the node's degree. A share has no upper bound, so uniform draws without replacement then
scan the column (selection sampling; Fan, Muller, Rezucha, JASA 1962). Let ``left`` be the number of edges from offset j on, and ``wanted`` the number
still to be drawn: edge j is taken if ``bounded(word j, left) < wanted``. Every subset is equally likely, in time proportional to the degree.
"""

import numpy as np

from hoptrain.kernels.shared import shared

_B32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
ALL = -1
"""Fanout code for all edges of a node, once each. Smaller codes are fractions of the degree."""
_SHARE_BITS = 30
_ALMOST_ONE = (1 << _SHARE_BITS) - 1


def fanout_code(fanout):
    """Return a fanout as kernels take it: a number of edges, ``ALL``, or ``-1 - n`` for the share n / 2**30.

    A share is a float in (0, 1] and is rounded down, so that ceil(degree * share) matches the decimal that the user wrote: ceil(10 * 0.1) = 1,
    although the float 0.1 is slightly larger than 1/10.
    """
    return ALL - max(1, int(fanout * (1 << _SHARE_BITS))) if isinstance(fanout, float) else fanout


@shared
def bounded(word, n):
    """Return an integer in [0, n) from 32 random bits, by multiply-shift (Lemire 2019, without the rejection).

    Bias: each value has a probability within 2**-32 of 1/n, so a relative error of at most n / 2**32; for a node with a million
    neighbours that is 0.03 %. ``word`` < 2**32 and 0 < ``n`` < 2**32 of any integer type; returns ``int64``.
    """
    return np.int64((np.uint64(word) * np.uint64(n)) >> _B32)


@shared
def bounded_wide(high, low, n):
    """Return an integer in [0, n) from 64 random bits in two words, for n of many millions. The relative error is at most n / 2**64."""
    return np.int64((np.uint64(high) * np.uint64(n) + ((np.uint64(low) * np.uint64(n)) >> _B32)) >> _B32)


@shared
def bounded64(high, low, n):
    """Return an integer in [0, n) as ``uint64``: the upper half of the product of n with 64 random bits in two words; 0 < ``n`` < 2**63.

    Bias: each value has a probability within 2**-64 of 1/n.
    """
    n = np.uint64(n)
    n0, n1 = n & _LOW, n >> _B32
    high0, low1 = np.uint64(high) * n0, np.uint64(low) * n1
    carry = ((np.uint64(low) * n0) >> _B32) + (high0 & _LOW) + (low1 & _LOW)
    return np.uint64(high) * n1 + (high0 >> _B32) + (low1 >> _B32) + (carry >> _B32)


@shared
def wanted(degree, fanout):
    """Return the number of edges to draw for a node: ``fanout``, or exactly ceil(degree * share) for degrees below 2**33. Not for ``ALL``."""
    if fanout < ALL:
        return (degree * (ALL - fanout) + _ALMOST_ONE) >> _SHARE_BITS
    return fanout


@shared
def takes_all(degree, fanout, replace):
    """Return whether all edges of a node are taken, once each and in the graph's order, without reading a random word."""
    return fanout == ALL or degree == 0 or (degree <= wanted(degree, fanout) and not replace)


@shared
def num_draws(degree, fanout, replace):
    """Return the number of edges to take from a node: min(degree, wanted), or ``wanted`` with replacement; the degree for fanout -1."""
    if takes_all(degree, fanout, replace):
        return degree
    return wanted(degree, fanout)


@shared
def selects(word, left, rest):
    """Return whether selection sampling takes an edge; ``left`` edges remain including this one, and ``rest`` are still to be drawn."""
    return bounded(word, left) < rest


@shared
def alias_offset(offset, word, threshold, alias):
    """Return ``offset`` if ``word`` is below its threshold, else its alias: the second step of Walker's alias method (1977).

    ``word`` and ``threshold`` hold 32 bits; ``offset`` and ``alias`` are ``int64``. Bias: below 2**-32 for each edge.
    """
    return offset if np.uint64(word) < np.uint64(threshold) else alias


@shared
def word_at(lane, word0, word1, word2, word3):
    """Return word ``lane`` of four without indexing a tuple, which CUDA would keep in slow local memory."""
    low = word1 if lane == 1 else word0
    high = word3 if lane == 3 else word2
    return high if lane >= 2 else low
