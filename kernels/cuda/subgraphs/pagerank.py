"""Personalised PageRank by pushing on CUDA, see ``hoptrain.kernels.cpu.subgraphs.shadow``. A block processes a seed; its threads share the edges of a push.

Pushes depend on each other, and are made in the CPU's order. Within a push every edge adds its share as if the edges before it had already done so:
a thread counts the preceding edges of its tile to the same node. Shapes: W blocks with a row of every scratch matrix each; R nodes that a seed
reaches at most.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.relabel import enter_tile, find_slot
from hoptrain.kernels.cuda.scan import block_scan
from hoptrain.kernels.cuda.widths import id_kernel

MASS = 1 << 40
ALPHA_BITS = 16
"""``MASS`` and ``ALPHA_BITS`` have the same values as in ``hoptrain.kernels.cpu.subgraphs.shadow``."""
_PLACE_BITS = 20
_PLACE = np.int64((1 << 20) - 1)
_EMPTY = -1


class PageRankScratch(NamedTuple):
    """Scratch memory for the seeds that are processed at once."""

    keys: Any
    """(W, power of two) hash table of global ids, at most half full, for each of W seeds."""
    values: Any
    """(W, power of two) int32 places (local ids within a seed's set) of the keys."""
    members: Any
    """(W, R) global id of each node of the set by its place; the seed has place 0."""
    residue: Any
    """(W, R) int64 number of walks that are currently at each node, by the node's place in the set."""
    score: Any
    """(W, R) int64 number of walks that ended at each node, by the node's place in the set."""
    queue: Any
    """(W, R) int32 ring buffer of the places of nodes to push."""
    kept: Any
    """(W, top) int64 sort keys of the chosen nodes."""


@device_function
def least_for_push(indptr, vertex, threshold):
    """Return the minimum number of walks at a node for which the node is pushed."""
    return threshold * max(np.int64(indptr[vertex + 1]) - np.int64(indptr[vertex]), np.int64(1))


@device_function
def start_search(keys, values, members, residue, score, queue, w, seed):
    """Empty the hash table, and put all walks at the seed."""
    for slot in range(cuda.threadIdx.x, keys.shape[1], cuda.blockDim.x):
        keys[w, slot] = _EMPTY
        values[w, slot] = MASS >> 10  # larger than all indices of nodes and all values proposed by ``enter_tile``
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        values[w, find_slot(keys, w, seed)] = 0
        members[w, 0] = seed
        residue[w, 0] = MASS
        score[w, 0] = 0
        queue[w, 0] = 0
    cuda.syncthreads()


@device_function
def push_edges(indptr, indices, begin, end, share, threshold, keys, values, members, residue, score, queue, w, size, head, waiting, buffer):
    """Add ``share`` walks to the source of each edge of a column. Return the number of reached nodes and of nodes that wait to be pushed."""
    thread, capacity = cuda.threadIdx.x, queue.shape[1]
    for first in range(begin, end, cuda.blockDim.x):
        active = first + thread < end
        vertex, slot = np.int64(0), np.int64(-1)
        if active:
            vertex = np.int64(indices[first + thread])
            slot = np.int64(find_slot(keys, w, vertex))
        place, num_new = enter_tile(values, w, slot, vertex, capacity, members, size, buffer)
        if active and place >= size:  # all threads of a new node write the same values
            residue[w, place] = 0
            score[w, place] = 0
        size += num_new
        cuda.syncthreads()
        buffer[thread] = place
        cuda.syncthreads()
        crossed = 0
        if active:
            before = residue[w, place]
            for k in range(thread):
                if buffer[k] == place:
                    before += share
            least = least_for_push(indptr, vertex, threshold)
            crossed = 1 if before < least <= before + share else 0
        cuda.syncthreads()
        if active:
            cuda.atomic.add(residue, (w, place), share)
        rank = block_scan(buffer, crossed)
        if crossed:
            slot = head + waiting + rank - 1
            queue[w, slot - capacity if slot >= capacity else slot] = place
        waiting += buffer[cuda.blockDim.x - 1]
        cuda.syncthreads()
    return size, waiting


@device_function
def push_all(indptr, indices, seed, alpha, threshold, keys, values, members, residue, score, queue, w, buffer):
    """Push until no node has enough walks, and return the number of reached nodes."""
    start_search(keys, values, members, residue, score, queue, w, seed)
    capacity, size, head = queue.shape[1], np.int64(1), np.int64(0)
    waiting = np.int64(1) if least_for_push(indptr, seed, threshold) <= MASS else np.int64(0)
    while waiting > 0:
        place = queue[w, head]
        head = head + 1 if head + 1 < capacity else 0
        waiting -= 1
        vertex = members[w, place]
        begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
        here = residue[w, place]
        ended = here if begin == end else (here * alpha) >> ALPHA_BITS
        share = (here - ended) // max(end - begin, np.int64(1))
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            score[w, place] += ended
            residue[w, place] = here - ended - share * (end - begin)
        cuda.syncthreads()
        size, waiting = push_edges(
            indptr, indices, begin, end, share, threshold, keys, values, members, residue, score, queue, w, size, head, waiting, buffer
        )
    return size


@device_function
def end_at_once(score, residue, w, size, alpha):
    """Add the share ``alpha`` / 2**16 of the walks that remain at each node to its score."""
    for place in range(cuda.threadIdx.x, size, cuda.blockDim.x):
        score[w, place] += (residue[w, place] * alpha) >> ALPHA_BITS
    cuda.syncthreads()


@device_function
def order_of(score, w, place):
    """Return a node's sort key, by descending score and then by place; it is negative if the score is 0."""
    value = score[w, place]
    return ((MASS - value) << _PLACE_BITS) | np.int64(place) if value > 0 else np.int64(-1)


@device_function
def count_up_to(score, w, size, limit, buffer):
    """Return the number of nodes, without the seed, whose sort key is at most ``limit``."""
    number = np.int64(0)
    for place in range(1 + cuda.threadIdx.x, size, cuda.blockDim.x):
        if 0 <= order_of(score, w, place) <= limit:
            number += 1
    block_scan(buffer, number)
    total = buffer[cuda.blockDim.x - 1]
    cuda.syncthreads()
    return total


@device_function
def keep_first(score, w, size, top, kept, buffer):
    """Write the sort keys of the first ``top`` nodes to ``kept``, in any order, and return their number."""
    low, high = np.int64(0), np.int64(1) << 60
    if count_up_to(score, w, size, high, buffer) > top:
        while low < high:
            middle = (low + high) >> 1
            if count_up_to(score, w, size, middle, buffer) >= top:
                high = middle
            else:
                low = middle + 1
    number = np.int64(0)
    for first in range(1, size, cuda.blockDim.x):
        place = first + cuda.threadIdx.x
        order = order_of(score, w, place) if place < size else np.int64(-1)
        is_kept = 0 <= order <= high
        rank = block_scan(buffer, 1 if is_kept else 0)
        if is_kept:
            kept[w, number + rank - 1] = order
        number += buffer[cuda.blockDim.x - 1]
        cuda.syncthreads()
    return number


@id_kernel(
    "void(ID[::1], ID[::1], ID[:, ::1], int64[::1], int64, int64, int64, int64, ID[:, ::1], int32[:, ::1], ID[:, ::1], int64[:, ::1], "
    "int64[:, ::1], int32[:, ::1], int64[:, ::1], ID[:, ::1], ID[:, ::1])"
)
def pagerank_sets(
    indptr, indices, seeds, num_seeds, capacity, top, alpha, threshold, keys, values, members, residue, score, queue, kept, chosen, counts
):  # fmt: skip
    """Write the nodes of each seed's set, without the seed, to ``chosen[b, i * top:]`` by descending score, and their number to ``counts[b, i]``.

    Blocks (x,) process the K * ``capacity`` seeds one after another. For ``keys`` to ``kept`` see ``PageRankScratch``.
    """
    buffer = cuda.shared.array(0, int64)
    w = cuda.blockIdx.x
    for task in range(w, len(num_seeds) * capacity, cuda.gridDim.x):
        b = np.int32(task // capacity)  # int32 instead of int64 saves registers
        i = np.int32(task - b * capacity)
        if i < num_seeds[b]:
            size = push_all(indptr, indices, seeds[b, i], alpha, threshold, keys, values, members, residue, score, queue, w, buffer)
            end_at_once(score, residue, w, size, alpha)
            number = keep_first(score, w, size, top, kept, buffer)
            for k in range(cuda.threadIdx.x, number, cuda.blockDim.x):
                rank = np.int64(0)
                for other in range(number):
                    rank += 1 if kept[w, other] < kept[w, k] else 0
                chosen[b, i * top + rank] = members[w, np.int64(kept[w, k] & _PLACE)]
            if cuda.threadIdx.x == 0:
                counts[b, i] = number
            cuda.syncthreads()
