"""Walks that tell their edges, drawn uniformly or by weight, and that may end before any step."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import unsigned
from hoptrain.kernels.shared.draws import alias_offset, bounded
from hoptrain.kernels.shared.philox import four_words

_HOP = np.uint64(0)


@cpu_kernel
def edge_walks(indptr, indices, threshold, alias, ends, address, steps, first, last, walks, edges):
    """Fill ``walks`` (W, L + 1), of which the first of the ``steps`` finds a node, and ``edges`` (W, L), places in ``indices``; -1 after an end.

    Walk w has the stream of "node" w, and four words a step: for the edge two, by alias tables ``threshold`` and ``alias`` (E,) unless they are
    empty; and one for the end, which comes before step s with the probability ``ends[s]`` / 2**32 (``uint64``). A walk also ends at a node
    without edges, or without weights.
    """
    seed, epoch, batch = address
    is_weighted = len(alias) > 0
    for w in range(first, last):
        vertex = np.int64(walks[w, steps[0]])
        for step in range(steps[0], steps[1]):
            place = np.int64(-1)
            if vertex >= 0:
                w0, w1, w2, _ = four_words(seed, epoch, batch, _HOP, np.uint64(w), np.uint64(step))
                begin = np.int64(indptr[unsigned(vertex)])
                degree = np.int64(indptr[unsigned(vertex + 1)]) - begin
                if degree > 0 and np.uint64(w2) >= ends[step] and not (is_weighted and alias[unsigned(begin)] < 0):
                    place = begin + bounded(w0, degree)
                    if is_weighted:
                        other = np.int64(alias[unsigned(place)])
                        place = begin + alias_offset(place - begin, w1, threshold[unsigned(place)], other)
            vertex = np.int64(indices[unsigned(place)]) if place >= 0 else np.int64(-1)
            walks[w, step + 1], edges[w, step] = vertex, place
