"""Uniform and node2vec walks on the CPU. Results are bit-identical to those of the same programs in ``hoptrain.kernels.cpu.programs.program``, but faster.

The programs are in ``hoptrain.samplers.programs.walks``. Walks are processed in chunks, one step at a time. Random words are computed for a whole chunk
by the processor's vector units, and each pass over a chunk prefetches what the next pass reads.

Shapes: W walks of L steps; ``walks`` (W, L + 1) are global ids, -1 after the end of a walk, with the roots in column 0. Walk w is copy ``w % copies`` of
root ``w // copies`` and uses the words ``copy + draw * copies`` of the root's stream at the hop.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import places, unsigned
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.shared.draws import bounded
from hoptrain.kernels.shared.philox import four_words
from hoptrain.kernels.shared.program import MAX_STEPS, in_column

_CHUNK = 256
_PIECE = 64
_U1, _U2 = np.uint64(1), np.uint64(2)


@cpu_kernel
def uniform_walks(indptr, indices, copies, restart, address, first, last, walks):
    """Fill the walks [first, last). With probability ``restart`` / 2**32 (``uint64``) a step begins at the walk's root."""
    roots, numbers = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    words, again, positions = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.int64)
    for begin in range(first, last, _CHUNK):
        number = min(_CHUNK, last - begin)
        for i in range(number):
            roots[i], numbers[i] = walks[begin + i, 0], (begin + i) % copies
            prefetch_many(indptr, np.int64(walks[begin + i, 0]))
        for step in range(walks.shape[1] - 1):
            lane_words(roots, numbers, number, address, np.uint64(step), words)
            if restart > 0:
                lane_words(roots, numbers, number, address, np.uint64(MAX_STEPS + step), again)
            for i in range(number):
                goes_on = walks[begin + i, step] >= 0
                vertex = np.int64(walks[begin + i, step] if restart == 0 or again[i] >= restart else walks[begin + i, 0])
                positions[i] = _position(indptr, vertex, words[i]) if goes_on else -1
                prefetch_many(indices, max(positions[i], 0))
            for i in range(number):
                vertex = np.int64(indices[positions[i]]) if positions[i] >= 0 else np.int64(-1)
                walks[begin + i, step + 1] = vertex
                prefetch_many(indptr, max(vertex, 0))


@cpu_kernel
def start_step(walks, step, copies, restart, address, vertices, words):
    """Write the node (W,) from which each walk takes its step, -1 for an ended walk, and the walk's random word (W,) ``uint64``.

    ``walks`` (W, L + 1) are all walks of a batch. Together with ``take_step`` it makes the same walks as ``uniform_walks``, for callers that do not
    hold the whole graph.
    """
    roots, numbers, again = np.empty(len(walks), np.uint64), np.empty(len(walks), np.uint64), np.empty(len(walks), np.uint64)
    for i in range(len(walks)):
        roots[i], numbers[i] = walks[i, 0], i % copies
    lane_words(roots, numbers, len(walks), address, np.uint64(step), words)
    if restart > 0:
        lane_words(roots, numbers, len(walks), address, np.uint64(MAX_STEPS + step), again)
    for i in range(len(walks)):
        goes_on = walks[i, step] >= 0
        vertices[i] = -1 if not goes_on else walks[i, step] if restart == 0 or again[i] >= restart else walks[i, 0]


@cpu_kernel
def take_step(indptr, indices, vertices, words):
    """Replace each node (N,) by the neighbour that its word in ``words`` (N,) draws, or by -1 if it has no edges."""
    for i in range(len(vertices)):
        prefetch_many(indptr, np.int64(vertices[min(i + _PIECE, len(vertices) - 1)]))
        position = _position(indptr, np.int64(vertices[i]), words[i])
        vertices[i] = indices[position] if position >= 0 else -1


@cpu_kernel
def lane_words(vertices, numbers, number, address, hop, words):
    """Write word ``numbers[i]`` of the random stream of the i-th node at a hop to ``words[i]``, for the first ``number`` lanes. All are ``uint64``.

    The loop is split into pieces so that LLVM vectorises it, see ``hoptrain.kernels.cpu.nodewise.labor.source_words``.
    """
    seed, epoch, batch = address
    for begin in range(0, number, _PIECE):
        end = min(begin + _PIECE, number)
        _words_of(vertices[begin:end], numbers[begin:end], seed, epoch, batch, hop, words[begin:end])


@cpu_kernel
def _words_of(vertices, numbers, seed, epoch, batch, hop, words):
    for i in range(len(vertices)):
        w0, w1, w2, w3 = four_words(seed, epoch, batch, hop, vertices[i], numbers[i] >> _U2)
        low = w1 if numbers[i] & _U1 else w0
        high = w3 if numbers[i] & _U1 else w2
        words[i] = high if numbers[i] & _U2 else low


@cpu_kernel
def _position(indptr, vertex, word):
    """Return the CSC position of the edge that a word draws uniformly from a node's column, or -1 if the node has no edges."""
    column = np.int64(indptr[unsigned(vertex)])
    degree = np.int64(indptr[unsigned(vertex + 1)]) - column
    return column + bounded(word, degree) if degree > 0 else np.int64(-1)


@cpu_kernel
def second_order_walks(indptr, indices, copies, biases, address, first, last, walks):
    """Fill the node2vec walks [first, last). ``biases`` are (back, near, out) in units of 1 / 2**32 (``uint64``); the largest is 2**32.

    A step proposes edges until one is accepted. Proposal t is drawn by word 2 t and accepted if word 2 t + 1 is below the bias of its destination.
    The word alone decides in nearly all cases. Only if the result depends on the distance to the previous node, the graph is searched for an edge.
    """
    roots, copy_of = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    lanes, positions = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.int64)
    vertices, numbers = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    words, chances = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    for begin in range(first, last, _CHUNK):
        number = min(_CHUNK, last - begin)
        for i in range(number):
            roots[i], copy_of[i] = walks[begin + i, 0], (begin + i) % copies
            prefetch_many(indptr, np.int64(walks[begin + i, 0]))
        own = walks[begin : begin + number]
        for step in range(walks.shape[1] - 1):
            waiting, trial = _start_step(indptr, own, step, lanes), np.uint64(0)
            while waiting > 0:
                for k in places(0, waiting):
                    lane = unsigned(lanes[k])
                    vertices[k], numbers[k] = roots[lane], copy_of[lane] + _U2 * trial * np.uint64(copies)
                lane_words(vertices, numbers, waiting, address, np.uint64(step), words)
                for k in places(0, waiting):
                    positions[k] = _position(indptr, np.int64(own[unsigned(lanes[k]), unsigned(step)]), words[k])
                    prefetch_many(indices, positions[k])
                    numbers[k] += np.uint64(copies)
                if step > 0:
                    lane_words(vertices, numbers, waiting, address, np.uint64(step), chances)
                waiting = _accept(indptr, indices, biases, own, step, waiting, lanes, positions, chances)
                trial += _U1


@cpu_kernel
def _start_step(indptr, own, step, lanes):
    """List the lanes whose walks continue, and end the walks of the remaining lanes. Return the number of listed lanes."""
    waiting = 0
    for i in places(0, len(own)):
        vertex = np.int64(own[i, unsigned(step)])
        own[i, unsigned(step + 1)] = -1
        lanes[unsigned(waiting)] = i
        waiting += 1 if vertex >= 0 and indptr[unsigned(max(vertex, 0))] < indptr[unsigned(max(vertex, 0) + 1)] else 0
    return waiting


@cpu_kernel
def _accept(indptr, indices, biases, own, step, waiting, lanes, positions, chances):
    """Take the steps of the accepted proposals, compact the list of lanes whose proposals were rejected, and return their number."""
    back, near, out = biases
    low, high = min(near, out), max(near, out)
    left = 0
    for k in places(0, waiting):
        lane, proposed = unsigned(lanes[k]), indices[unsigned(positions[k])]
        accepted = True
        if step > 0:
            before, chance = own[lane, unsigned(step - 1)], chances[k]
            if proposed == before:
                accepted = chance < back
            elif low <= chance < high:
                accepted = in_column(indptr, indices, proposed, before) == (near > out)
            else:
                accepted = chance < low
        if accepted:
            own[lane, unsigned(step + 1)] = proposed
            prefetch_many(indptr, np.int64(proposed))
        else:
            lanes[unsigned(left)] = lane
            left += 1
    return left
