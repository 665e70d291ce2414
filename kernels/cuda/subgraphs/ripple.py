"""Ripple walks on CUDA, see ``hoptrain.kernels.cpu.subgraphs.ripple``. A block processes a subgraph, since each choice depends on the ones before.

One thread makes the choices; all threads visit the neighbours of the chosen nodes, a tile of a column at a time.
"""

import numpy as np
from numba import cuda, int64

from hoptrain.kernels.cuda.compile import device_function
from hoptrain.kernels.cuda.draw import words_at
from hoptrain.kernels.cuda.relabel import enter_tile
from hoptrain.kernels.cuda.widths import id_kernel
from hoptrain.kernels.shared.draws import bounded_wide

RATIO_BITS = 32
"""Number of fractional bits of the ratio, as in ``hoptrain.kernels.cpu.subgraphs.ripple``."""
_ROOT = np.int64(1 << 32)


@device_function
def choose(address, b, stream, n):
    """Return an integer in [0, n) from the first words of a random stream."""
    word0, word1, _, _ = words_at(address, b, stream, 0)
    return bounded_wide(word0, word1, n)


@device_function
def take_root(roots, address, b, stream, numbers, known, seen, drawn, number, num_seen):
    """Draw a root, and add it to the members unless it is already a member. Return 1 if it was added, else 0."""
    vertex = np.int64(roots[choose(address, b, stream, len(roots))])
    is_new = 1 if numbers[b, vertex] >= known else 0
    cuda.syncthreads()
    if is_new and cuda.threadIdx.x == 0:
        numbers[b, vertex] = num_seen
        seen[b, num_seen] = vertex
        drawn[b, number] = vertex
    cuda.syncthreads()
    return is_new


@device_function
def take_waiting(address, b, count, waiting, num_waiting, seen, drawn, number):
    """Draw ``count`` of the waiting neighbours, and add them to the members."""
    if cuda.threadIdx.x == 0:
        for k in range(count):
            place = choose(address, b, number + k, num_waiting - k)
            drawn[b, number + k] = seen[b, waiting[b, place]]
            waiting[b, place] = waiting[b, num_waiting - k - 1]
    cuda.syncthreads()


@device_function
def meet(indptr, indices, vertex, b, numbers, known, seen, num_seen, waiting, num_waiting, buffer):
    """Add the in-neighbours of a node that were not seen before to the waiting nodes. Return the number of added nodes."""
    begin, end = np.int64(indptr[vertex]), np.int64(indptr[vertex + 1])
    met = np.int64(0)
    for first in range(begin, end, cuda.blockDim.x):
        position = first + cuda.threadIdx.x
        source = np.int64(indices[position]) if position < end else np.int64(-1)
        _, num_new = enter_tile(numbers, b, source, source, known, seen, num_seen + met, buffer)
        for k in range(cuda.threadIdx.x, num_new, cuda.blockDim.x):
            waiting[b, num_waiting + met + k] = num_seen + met + k
        met += num_new
    cuda.syncthreads()
    return met


@id_kernel(
    "void(ID[::1], ID[::1], ID[::1], int64, int64, int64, uint64[::1], int64, ID[:, ::1], ID[:, ::1], ID[:, ::1], ID[:, ::1], int64[::1])"
)
def grow_subgraphs(indptr, indices, roots, size, ratio, attempts, address, known, numbers, seen, waiting, drawn, num_drawn):
    """Fill ``drawn`` (K, size) with distinct nodes, and ``num_drawn`` with their number, by one block for each batch.

    ``numbers``, ``seen`` and ``waiting`` (K, V) are scratch memory: the number of each node, the nodes by number, and the numbers that wait. On input
    all ``numbers`` are at least ``known`` + the threads of a block; ``known`` is at least V.
    """
    buffer = cuda.shared.array(0, int64)
    b = cuda.blockIdx.y
    number, num_seen, num_waiting = np.int64(0), np.int64(0), np.int64(0)
    num_roots, failures = np.int64(0), np.int64(0)
    while number < size and failures < attempts:
        first = number
        if num_waiting == 0:
            is_new = take_root(roots, address, b, num_roots | _ROOT, numbers, known, seen, drawn, number, num_seen)
            num_roots += 1
            failures = np.int64(0) if is_new else failures + 1
            num_seen += is_new
            number += is_new
        else:
            count = min(size - number, max(np.int64(1), (num_waiting * ratio) >> RATIO_BITS))
            take_waiting(address, b, count, waiting, num_waiting, seen, drawn, number)
            num_waiting -= count
            number += count
        for i in range(first, number):
            met = meet(indptr, indices, drawn[b, i], b, numbers, known, seen, num_seen, waiting, num_waiting, buffer)
            num_seen += met
            num_waiting += met
    if cuda.threadIdx.x == 0:
        num_drawn[b] = number
