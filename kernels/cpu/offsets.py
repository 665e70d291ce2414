"""Draws for many nodes at once. Each node has a *lane*, so that the processor's vector units work on 8 or 16 nodes in parallel.

Shapes: L lanes, k draws each (fanout), G groups of four random words. ``words`` (4, G * L) holds word ``4 * g + i`` of lane l at
``[i, g * L + l]``; ``offsets`` (k, L) int32 receives the offsets into the nodes' columns. Loops over lanes are innermost.
"""

import numpy as np

from hoptrain.kernels.cpu import cpu_kernel
from hoptrain.kernels.cpu.prefetch import prefetch_many
from hoptrain.kernels.shared.draws import alias_offset, bounded
from hoptrain.kernels.shared.philox import four_words


@cpu_kernel
def random_words(vertices, num_lanes, num_groups, seed, epoch, batch, hop, words):
    """Fill ``words`` with the first ``num_groups`` groups of the random streams of the L nodes."""
    w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
    for group in range(num_groups):
        for lane in range(num_lanes):
            i = group * num_lanes + lane
            w0[i], w1[i], w2[i], w3[i] = four_words(seed, epoch, batch, hop, np.uint64(vertices[lane]), np.uint64(group))


@cpu_kernel
def distinct_offsets(words, degrees, num_lanes, count, found, offsets):
    """Draw ``count`` distinct offsets in [0, degree) in every lane, for degree > count. ``found`` (L,) int32 is scratch memory."""
    for j in range(count):
        draw_distinct(words, degrees, num_lanes, count, j, found, offsets)


@cpu_kernel
def draw_distinct(words, degrees, num_lanes, count, j, found, offsets):
    """Make draw number ``j`` of ``count`` in every lane, by Floyd's method.

    The draw is compared with all earlier ones. These are count / 2 comparisons per draw on average, but without a branch, and one vector instruction
    makes 16 comparisons. For usual fanouts this costs less than a single mispredicted branch of a smarter test; for fanouts of some thousands it is slow.
    """
    plane, start = j & 3, (j >> 2) * num_lanes
    for lane in range(num_lanes):
        offsets[j, lane] = bounded(words[plane, start + lane], degrees[lane] - count + j + 1)
        found[lane] = 0
    for i in range(j):
        for lane in range(num_lanes):
            found[lane] |= np.int32(offsets[i, lane] == offsets[j, lane])
    for lane in range(num_lanes):
        offsets[j, lane] = np.int32(degrees[lane] - count + j) if found[lane] else offsets[j, lane]


@cpu_kernel
def independent_offsets(words, degrees, num_lanes, count, stride, offsets):
    """Make ``count`` draws with replacement in every lane; each uses the first of ``stride`` words."""
    for j in range(count):
        draw_independent(words, degrees, num_lanes, j * stride, offsets[j])


@cpu_kernel
def draw_independent(words, degrees, num_lanes, word, drawn):
    """Make one draw in every lane from word number ``word``."""
    row = words[word & 3, (word >> 2) * num_lanes : ((word >> 2) + 1) * num_lanes]
    for lane in range(num_lanes):
        drawn[lane] = bounded(row[lane], degrees[lane])


@cpu_kernel
def weighted_offsets(words, begins, degrees, num_lanes, count, threshold, alias, offsets):
    """Make ``count`` weighted draws with replacement in every lane by the alias tables of the columns, which begin at ``begins`` (L,)."""
    independent_offsets(words, degrees, num_lanes, count, 2, offsets)
    for j in range(count):
        for lane in range(num_lanes):
            prefetch_many(threshold, begins[lane] + offsets[j, lane])
            prefetch_many(alias, begins[lane] + offsets[j, lane])
    for j in range(count):
        word = 2 * j + 1
        row = words[word & 3, (word >> 2) * num_lanes : ((word >> 2) + 1) * num_lanes]
        for lane in range(num_lanes):
            offset = np.int64(offsets[j, lane])
            place = begins[lane] + offset
            offsets[j, lane] = alias_offset(offset, row[lane], threshold[place], np.int64(alias[place]))
