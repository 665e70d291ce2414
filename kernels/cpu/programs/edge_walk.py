"""Random walks that return their edges. Edges are drawn uniformly or by weight, and a walk may end before any step."""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.places import unsigned
from hoptrain.kernels.shared.draws import alias_offset, bounded
from hoptrain.kernels.shared.philox import four_words

_HOP = np.uint64(0)


@cpu_kernel
def edge_walks(indptr, indices, threshold, alias, ends, address, steps, first, last, walks, edges):
    """Make the steps [steps[0], steps[1]) of the walks [first, last).

    Fills ``walks`` (W, L + 1) with global ids, whose column ``steps[0]`` holds the nodes to start from, and ``edges`` (W, L) with CSC positions;
    both are -1 after the end of a walk. Walk w uses the random stream of node number w, with four words a step. Two words choose the edge, by the
    alias tables ``threshold`` and ``alias`` (E,) unless these are empty. One decides the end: before step s a walk ends with probability
    ``ends[s]`` / 2**32 (``uint64``). It also ends at a node without edges, or without positive weights.
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
