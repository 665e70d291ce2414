"""Ripple walks on the CPU: subgraphs that grow by a random share of their neighbours in each step."""

from typing import Any, NamedTuple

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.relabel import relabel
from hoptrain.kernels.shared.draws import bounded_wide
from hoptrain.kernels.shared.philox import four_words

RATIO_BITS = 32
CHUNK = 512
_B32 = np.uint64(32)
_U0 = np.uint64(0)


class Ripple(NamedTuple):
    """Scratch memory for one subgraph. A *number* is the local id of a seen node: members and their neighbours, in order of first appearance."""

    seen: Any
    """(V+1,) global id of each seen node, by its number (local id)."""
    waiting: Any
    """(V,) numbers (local ids) of the seen neighbours that are not members of the subgraph yet."""
    sources: Any
    """(CHUNK,) scratch memory for the global ids or the numbers (local ids) of sources."""


@cpu_kernel
def grow(indptr, indices, roots, size, ratio, attempts, address, table, ripple, drawn):
    """Fill ``drawn`` with up to ``size`` distinct nodes, and return their number.

    A step draws ``max(1, waiting * ratio >> 32)`` of the waiting neighbours uniformly; then the neighbours of the drawn nodes wait, too. If no
    neighbour waits, a root is drawn from ``roots`` (N,), and redrawn if it is already a member, at most ``attempts`` times in a row. Choice k uses the random
    stream of node number k, and root r the stream of node number r + 2**32.
    """
    number, num_seen, num_waiting, num_roots, failures = 0, 0, 0, 0, 0
    seen, waiting, sources = ripple.seen, ripple.waiting, ripple.sources
    while number < size and failures < attempts:
        first = number
        if num_waiting == 0:
            place = _choice(address, np.uint64(num_roots) | (np.uint64(1) << _B32), len(roots))
            num_roots += 1
            sources[0] = roots[place]
            after = relabel(sources, 0, 1, table, seen, num_seen)
            # No seen neighbour is left to draw, so all seen nodes are members. A root not seen before is a new member.
            if after > num_seen:
                drawn[number] = seen[num_seen]
                number += 1
                failures = 0
            else:
                failures += 1
            num_seen = after
        else:
            for _ in range(min(size - number, max(1, (num_waiting * ratio) >> RATIO_BITS))):
                place = _choice(address, np.uint64(number), num_waiting)
                chosen = waiting[place]
                num_waiting -= 1
                waiting[place] = waiting[num_waiting]
                drawn[number] = seen[chosen]
                number += 1
        for i in range(first, number):
            num_seen, num_waiting = _meet(indptr, indices, np.int64(drawn[i]), table, ripple, num_seen, num_waiting)
    return number


@cpu_kernel
def _choice(address, stream, n):
    """Return an integer in [0, n) from the first words of a random stream."""
    word0, word1, _, _ = four_words(address.seed, address.epoch, address.batch, address.hop, stream, _U0)
    return bounded_wide(word0, word1, n)


@cpu_kernel
def _meet(indptr, indices, vertex, table, ripple, num_seen, num_waiting):
    """Append the in-neighbours of a node that were not seen before to ``ripple.waiting``. Return the number of seen and of waiting nodes."""
    seen, waiting, sources = ripple.seen, ripple.waiting, ripple.sources
    end = np.int64(indptr[vertex + 1])
    for begin in range(np.int64(indptr[vertex]), end, CHUNK):
        number = min(CHUNK, end - begin)
        for j in range(number):
            sources[j] = indices[begin + j]
        after = relabel(sources, 0, number, table, seen, num_seen)
        for new in range(num_seen, after):
            waiting[num_waiting] = new
            num_waiting += 1
        num_seen = after
    return num_seen, num_waiting
