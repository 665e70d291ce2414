"""From a node's degree and random words to the edges it gives.

Four ways to draw, told by ``replace`` and ``weighted`` of the callers:

* without replacement, uniform: Floyd's method (Bentley & Floyd, CACM 1987) over the words 0, 1, 2, ...: draw j is ``bounded(word, top + 1)``
  with ``top = degree - count + j``, or ``top`` itself if that offset was drawn before. Every subset is equally likely.
* with replacement, uniform: draw j is ``bounded(word j, degree)``.
* with replacement, by weight: draw j is ``alias_offset`` of the words 2 j and 2 j + 1.
* without replacement, by weight: the first distinct ones of these draws; see ``hoptrain.kernels.cpu.nodewise.weighted``.

How many are drawn is the hop's fanout, or a share of the node's degree, of which there is no bound: then draws without replacement, uniform, go
over the column instead (selection sampling; Fan, Muller, Rezucha, JASA 1962): of ``left`` edges from the one at offset j on, of which ``wanted`` are
still to be drawn, it is taken if ``bounded(word j, left) < wanted``. Every subset is equally likely, in time proportional to the degree.
"""

import numpy as np

from hoptrain.kernels.shared import shared

_B32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
ALL = -1
"""The fanout of a hop that takes all edges of a node, once each. Smaller ones are shares of the degree."""
_SHARE_BITS = 30
_ALMOST_ONE = (1 << _SHARE_BITS) - 1


def fanout_code(fanout):
    """A fanout as kernels take it: a number of edges, ``ALL``, or ``-1 - n`` for the share n / 2**30, a float in (0, 1] rounded down.

    Rounded down, since ceil(degree * share) is then what it is for the share as it was written: ceil(10 * 0.1) = 1, though as a float 0.1 is more.
    """
    return ALL - max(1, int(fanout * (1 << _SHARE_BITS))) if isinstance(fanout, float) else fanout


@shared
def bounded(word, n):
    """An integer in [0, n) from 32 random bits, by multiply-shift (Lemire 2019, without the rejection).

    Bias: each value has a probability within 2**-32 of 1/n, so a relative error of at most n / 2**32; for a node with a million
    neighbours that is 0.03 %. ``word`` < 2**32 and 0 < ``n`` < 2**32 of any integer type; returns ``int64``.
    """
    return np.int64((np.uint64(word) * np.uint64(n)) >> _B32)


@shared
def bounded_wide(high, low, n):
    """The same from 64 random bits, two words: for an ``n`` of many millions. Relative error at most n / 2**64."""
    return np.int64((np.uint64(high) * np.uint64(n) + ((np.uint64(low) * np.uint64(n)) >> _B32)) >> _B32)


@shared
def bounded64(high, low, n):
    """An integer in [0, n) from 64 random bits, two words of 32: the upper half of their product with ``n``, 0 < ``n`` < 2**63; ``uint64``.

    Bias: each value has a probability within 2**-64 of 1/n.
    """
    n = np.uint64(n)
    n0, n1 = n & _LOW, n >> _B32
    high0, low1 = np.uint64(high) * n0, np.uint64(low) * n1
    carry = ((np.uint64(low) * n0) >> _B32) + (high0 & _LOW) + (low1 & _LOW)
    return np.uint64(high) * n1 + (high0 >> _B32) + (low1 >> _B32) + (carry >> _B32)


@shared
def wanted(degree, fanout):
    """How many edges a hop that does not take all wants of a node: ``fanout``, or ceil(degree * share), exactly, for degrees below 2**33."""
    if fanout < ALL:
        return (degree * (ALL - fanout) + _ALMOST_ONE) >> _SHARE_BITS
    return fanout


@shared
def takes_all(degree, fanout, replace):
    """Whether a node gives all its edges, once each and in the graph's order: no random word is read."""
    return fanout == ALL or degree == 0 or (degree <= wanted(degree, fanout) and not replace)


@shared
def num_draws(degree, fanout, replace):
    """How many edges a node gives: min(degree, wanted); with replacement as many as are wanted if it has any; all for fanout -1."""
    if takes_all(degree, fanout, replace):
        return degree
    return wanted(degree, fanout)


@shared
def selects(word, left, rest):
    """Whether an edge is taken of which, and of those after it, there are ``left``, while ``rest`` of them are still to be drawn."""
    return bounded(word, left) < rest


@shared
def alias_offset(offset, word, threshold, alias):
    """The second step of Walker's alias method (1977): ``offset`` if the word is below its threshold, else its alias.

    ``word`` and ``threshold`` hold 32 bits; ``offset`` and ``alias`` are ``int64``. Bias: below 2**-32 for an edge.
    """
    return offset if np.uint64(word) < np.uint64(threshold) else alias


@shared
def word_at(lane, word0, word1, word2, word3):
    """Word ``lane`` of four, chosen without an indexed read: on CUDA an indexed tuple would live in slow local memory."""
    low = word1 if lane == 1 else word0
    high = word3 if lane == 3 else word2
    return high if lane >= 2 else low
