"""The loops of sampling programs on the CPU. They are compiled for each program, with the program's functions inlined.

Walks are processed in chunks, one step at a time: while a walk waits for its column, the columns of the next walks are prefetched.
"""

import numpy as np
from numba import njit

from hoptrain.kernels.bare import linked_bare
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.shared.program import STOP, WRONG, RandomSource, Transit, edge_number, make_draw, make_step

_CHUNK = 32


def _compiled(function):
    return linked_bare(lambda **without: njit(function, error_model="numpy", nogil=True, **without))


def walk_kernel(next_edge, transit_of):
    """Make the function that runs the walks of a program.

    Args:
        next_edge: ``next(parameters, transit, step, random)`` of the program.
        transit_of: ``transit_of(parameters, earlier, step, random)``, which returns the position in ``earlier`` of the node to extend.

    Returns:
        ``walk(parameters, columns, copies, address, first, last, walks, states)``. It fills ``walks[first:last]`` (W, steps + 1) with global
        ids, -1 after the end of a walk; column 0 holds the roots. ``states`` is (W, state_size) int64. Walk w is copy ``w % copies`` of root
        ``w // copies``. It returns -1, or the number of a walk for which ``next`` returned an invalid edge.
    """
    take_step = make_step(_compiled, next_edge, transit_of)

    @_compiled
    def walk(parameters, columns, copies, address, first, last, walks, states):
        indptr, indices, _ = columns
        positions = np.empty(_CHUNK, np.int64)
        for begin in range(first, last, _CHUNK):
            end = min(begin + _CHUNK, last)
            for step in range(walks.shape[1] - 1):
                for w in range(begin, end):
                    position = np.int64(STOP)
                    if walks[w, step] >= 0:
                        position = take_step(parameters, columns, walks, states, w, step, address, walks[w, 0], w % copies, copies)
                        if position == WRONG:
                            return w
                    positions[w - begin] = position
                    if position >= 0:
                        prefetch_many(indices, position)
                for w in range(begin, end):
                    position = positions[w - begin]
                    walks[w, step + 1] = indices[position] if position >= 0 else STOP
                    if position >= 0:
                        prefetch_many(indptr, np.int64(walks[w, step + 1]))
        return -1

    return walk


def block_kernel(next_edge):
    """Make the function that draws the edges of a block.

    Args:
        next_edge: ``next(parameters, transit, step, random)`` of the program.

    Returns:
        ``draw(parameters, columns, nodes, first, last, num_draws, unique, step, address, out_indptr, out_edges, out_neighbors, num_edges)``.
        Every transit in ``nodes[first:last]`` makes ``num_draws`` draws; with ``unique``, repeated edges are dropped. It returns the new number
        of edges, or ``-1 - i`` for a transit i for which ``next`` returned an invalid edge.
    """
    draw_edge = make_draw(_compiled, next_edge)

    @_compiled
    def draw(
        parameters, columns, nodes, first, last, num_draws, unique, step, address, out_indptr, out_edges, out_neighbors, num_edges
    ):  # fmt: skip
        indptr, indices, _ = columns
        state = np.zeros(1, np.int64)
        for begin in range(first, last, _CHUNK):
            end, before = min(begin + _CHUNK, last), num_edges
            for i in range(end, min(end + _CHUNK, last)):
                prefetch_many(indptr, np.int64(nodes[i]))
            for i in range(begin, end):
                start = num_edges
                for j in range(num_draws):
                    position = draw_edge(parameters, columns, np.int64(nodes[i]), nodes[i : i + 1], step, address, j, num_draws, state)
                    if position == WRONG:
                        return -1 - i
                    if position >= 0 and not (unique and _is_among(position, out_edges, start, num_edges)):
                        out_edges[num_edges] = position
                        num_edges += 1
                        prefetch_many(indices, position)
                out_indptr[i + 1] = num_edges
            for e in range(before, num_edges):
                out_neighbors[e] = indices[out_edges[e]]
        return num_edges

    return draw


def collective_kernel(next_edge):
    """Make the function that draws from all neighbours of a layer together.

    Args:
        next_edge: ``next(parameters, transit, step, random)`` of the program.

    Returns:
        ``draw(parameters, columns, candidates, counts, layer, num_draws, step, address, chosen)``. ``candidates`` (C,) are the distinct
        in-neighbours of ``layer``, ``counts`` (C,) float32 are the numbers of their edges into it. ``chosen`` (C,) bool is set for drawn
        candidates. It returns -1, or the number of a draw for which ``next`` returned an invalid candidate.
    """
    next_edge = _compiled(next_edge)

    @_compiled
    def draw(parameters, columns, candidates, counts, layer, num_draws, step, address, chosen):
        indptr, indices, _ = columns
        seed, epoch, batch = address
        state = np.zeros(1, np.int64)
        for j in range(num_draws if len(candidates) else 0):
            transit = Transit(np.int64(-1), candidates, counts, np.int64(-1), layer, state, indptr, indices)
            random = RandomSource(seed, epoch, batch, np.uint64(step), np.uint64(0), np.uint64(j), np.uint64(num_draws))
            place = edge_number(next_edge(parameters, transit, step, random))
            if place >= len(candidates) or place < STOP:
                return j
            if place != STOP:
                chosen[place] = True
        return -1

    return draw


@_compiled
def keep_chosen(indptr, places, chosen, edges, neighbors):
    """Keep the edges whose candidate was chosen, and their neighbours, in place. ``places`` (M,) is the candidate of each edge."""
    kept, begin = 0, 0
    for i in range(len(indptr) - 1):
        end = indptr[i + 1]
        for e in range(begin, end):
            if chosen[places[e]]:
                edges[kept], neighbors[kept] = edges[e], neighbors[e]
                kept += 1
        begin = end
        indptr[i + 1] = kept
    return kept


@_compiled
def all_edges(indptr, indices, nodes, last, out_indptr, out_edges, out_neighbors):
    """Write all in-edges of ``nodes[:last]`` and their sources."""
    num_edges = 0
    for i in range(last):
        for position in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            out_edges[num_edges] = position
            out_neighbors[num_edges] = indices[position]
            num_edges += 1
        out_indptr[i + 1] = num_edges


@_compiled
def _is_among(position, edges, first, last):
    found = False
    for e in range(first, last):
        found |= edges[e] == position
    return found
