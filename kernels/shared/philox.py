"""Philox4x32-10: random numbers as a pure function of an address.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11 (Random123). The generator has no state: the same
(key, counter) gives the same four words on every target, so a mini-batch depends neither on the process that samples it nor on the order of sampling.

Layout of the 128-bit counter. Callers (``hoptrain.samplers``, ``hoptrain.engine.schedule``) check that each field fits:

=====  ==========================================================
word   content (bits)
=====  ==========================================================
0      node, low 32
1      node, high 8 | index of the group of four words (24) << 8
2      batch number within the epoch (32)
3      hop (12) | epoch (20) << 12
=====  ==========================================================
"""

import numpy as np

from hoptrain.kernels.shared import inlined

MAX_EPOCH = 1 << 20
MAX_BATCH = 1 << 32
MAX_VERTEX = 1 << 40
MAX_DRAWS = 1 << 26
MAX_HOP = (1 << 12) - 16
"""Exclusive upper bound of hops in random addresses. The sixteen values from here are reserved for random streams that are not hops (``HOP_*``)."""
HOP_SHUFFLE = np.uint64((1 << 12) - 1)
HOP_SYNTHETIC = np.uint64((1 << 12) - 2)
HOP_LARGE_BATCH = np.uint64((1 << 12) - 5)
HOP_NEGATIVES = np.uint64((1 << 12) - 3)
HOP_PRESAMPLE = np.uint64((1 << 12) - 8)
HOP_FEATURES = np.uint64((1 << 12) - 9)
HOP_HELD_OUT = np.uint64((1 << 12) - 10)
HOP_IMAGES = np.uint64((1 << 12) - 11)
HOP_HOST = np.uint64((1 << 12) - 12)
HOP_SEEDS = np.uint64((1 << 12) - 15)

_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_B8 = np.uint64(8)
_B12 = np.uint64(12)
_B32 = np.uint64(32)


@inlined
def _round(c0, c1, c2, c3, k0, k1):
    """Return the counter after one round, and the key of the next round, as 32-bit words in ``uint64``.

    The conversions serve interpreted callers such as the CUDA simulator, where compiled functions return Python integers.
    """
    p0 = _M0 * np.uint64(c0)
    p1 = _M1 * np.uint64(c2)
    x0 = (p1 >> _B32) ^ np.uint64(c1) ^ np.uint64(k0)
    x2 = (p0 >> _B32) ^ np.uint64(c3) ^ np.uint64(k1)
    return x0, p1 & _LOW, x2, p0 & _LOW, (np.uint64(k0) + _W0) & _LOW, (np.uint64(k1) + _W1) & _LOW


@inlined
def _five_rounds(c0, c1, c2, c3, k0, k1):
    """Return the counter and key after five rounds. They are written out because LLVM vectorises only loops with a straight-line body."""
    c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _round(c0, c1, c2, c3, k0, k1)
    return _round(c0, c1, c2, c3, k0, k1)


@inlined
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Return four random words for a counter of four words and a key of two, by ten rounds. Loops over counters are vectorised."""
    c0, c1, c2, c3, k0, k1 = _five_rounds(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = _five_rounds(c0, c1, c2, c3, k0, k1)
    return c0, c1, c2, c3


@inlined
def counter_of(epoch, batch, hop, vertex, group):
    """Return the counter of an address as four words. All arguments are ``uint64``."""
    return vertex & _LOW, (vertex >> _B32) | (group << _B8), batch, hop | (epoch << _B12)


@inlined
def key_of(seed):
    """Return the key of the user's seed (``uint64``) as two words."""
    return seed & _LOW, seed >> _B32


@inlined
def four_words(seed, epoch, batch, hop, vertex, group):
    """Return words ``4 * group`` to ``4 * group + 3`` of the stream at (seed, epoch, batch, hop, node). All arguments are ``uint64``."""
    c0, c1, c2, c3 = counter_of(epoch, batch, hop, vertex, group)
    k0, k1 = key_of(seed)
    return philox4x32(c0, c1, c2, c3, k0, k1)
