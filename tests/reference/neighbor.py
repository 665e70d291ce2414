"""A slow reference for neighbour sampling: Python integers and lists; no code shared with the kernels."""

from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, floor

MASK = 0xFFFFFFFF


def philox4x32(counter, key):
    """Compute Philox4x32-10 of Salmon et al.: four 32-bit words from a counter of four words and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def counter_of(epoch, batch, hop, node, group):
    """Return the 128-bit counter of an address as four words: 40 bits of node, 24 of group, 32 of batch, 12 of hop, 20 of epoch."""
    whole = node + (group << 40) + (batch << 64) + (hop << 96) + (epoch << 108)
    return tuple((whole >> shift) & MASK for shift in (0, 32, 64, 96))


def words(key, node, number):
    """Return the first ``number`` random words of a node; ``key`` = (seed, epoch, batch, hop)."""
    seed, epoch, batch, hop = key
    stream = []
    for group in range((number + 3) // 4):
        stream += philox4x32(counter_of(epoch, batch, hop, node, group), (seed & MASK, seed >> 32))
    return stream[:number]


def bounded(word, n):
    """Return an integer in [0, n): the word as a fraction of 2**32, times n."""
    return word * n // 2**32


def wanted(degree, fanout):
    """Return the number of edges to draw for a node; a float fanout is a fraction of the degree, in multiples of 2**-30."""
    if not isinstance(fanout, float):
        return degree if fanout < 0 else fanout
    return ceil(degree * Fraction(max(1, floor(fanout * 2**30)), 2**30))


def select(degree, rest, stream):
    """Select each offset with probability (number still needed) / (number left)."""
    chosen = []
    for offset, word in enumerate(stream):
        if bounded(word, degree - offset) < rest - len(chosen):
            chosen.append(offset)
    return chosen


def offsets(degree, fanout, replace, key, node, tables=None):
    """Return positions within a node's column: all, draws with replacement (``tables``: threshold, alias), or Floyd's subset.

    A fraction of the degree without replacement is drawn by ``select``. With ``tables`` (threshold, alias, weights), distinct edges are
    drawn by ``distinct_by_weight``.
    """
    if tables and (fanout == -1 or not replace):
        return distinct_by_weight(*tables, fanout, key, node) if degree else []
    is_share, is_all, fanout = isinstance(fanout, float), fanout == -1, wanted(degree, fanout)
    if degree == 0 or is_all or (not replace and degree <= fanout):
        return list(range(degree))
    if is_share and not replace:
        return select(degree, fanout, words(key, node, degree))
    if tables:
        threshold, alias, *_ = tables
        stream = words(key, node, 2 * fanout)
        drawn = [(bounded(place, degree), keep) for place, keep in zip(stream[::2], stream[1::2], strict=True)]
        return [offset if keep < threshold[offset] else alias[offset] for offset, keep in drawn]
    stream = words(key, node, fanout)
    if replace:
        return [bounded(word, degree) for word in stream]
    chosen = []
    for word, top in zip(stream, range(degree - fanout, degree), strict=True):
        offset = bounded(word, top + 1)
        chosen.append(top if offset in chosen else offset)
    return chosen


def distinct_by_weight(threshold, alias, weights, fanout, key, node):
    """Draw distinct edges by alias tables, ignoring repeats; after 4 fanout + 32 draws, draw among the remaining edges by integer weights."""
    positive = [offset for offset, weight in enumerate(weights) if weight > 0]
    fanout = wanted(len(positive), fanout)
    if len(positive) <= fanout:
        return positive
    attempts = 4 * fanout + 32
    stream = words(key, node, 2 * attempts + 4 * fanout)
    chosen = []
    for attempt in range(attempts):
        place, keep = stream[2 * attempt : 2 * attempt + 2]
        offset = bounded(place, len(weights))
        offset = offset if keep < threshold[offset] else alias[offset]
        if offset not in chosen and len(chosen) < fanout:
            chosen.append(offset)
    while len(chosen) < fanout:
        left = [offset for offset in positive if offset not in chosen]
        largest = max(weights[offset] for offset in left)
        shares = [int(weights[offset] / largest * 2**31) for offset in left]
        high, low = stream[2 * attempts + 4 * len(chosen) :][:2]
        rest = ((high << 32) + low) * sum(shares) >> 64
        ends = list(accumulate(shares))
        chosen.append(next(offset for offset, end in zip(left, ends, strict=True) if rest < end))
    return chosen


def hop(columns, nodes, fanout, replace, key, tables=None, first=0):
    """Sample one hop over ``columns`` (each node's in-neighbours) from the destinations ``nodes[first:]``; all nodes differ.

    ``tables`` holds (threshold, alias) for each node; an alias of -1 marks a column without positive weights. Returns, for each
    destination, positions within its column, the sources as local ids, and all nodes after the hop.
    """
    drawn = []
    for v in nodes[first:]:
        table = tables[v] if tables else None
        degree = 0 if table and table[1] and table[1][0] < 0 else len(columns[v])
        drawn.append(offsets(degree, fanout, replace, key, v, table))
    after = list(nodes)
    place = {v: i for i, v in enumerate(after)}
    local = []
    for v, chosen in zip(nodes[first:], drawn, strict=True):
        for offset in chosen:
            neighbor = columns[v][offset]
            if neighbor not in place:
                place[neighbor] = len(after)
                after.append(neighbor)
            local.append(place[neighbor])
    return drawn, local, after


def batch(graph, seeds, fanouts, replace, seed, epoch, batch, *, tables=None, expand="all"):
    """Return the blocks from the seeds outward, as (indptr, indices, edge ids, number of sources), and the input nodes.

    ``tables`` are alias tables over all edges, plus the weights if edges are distinct within a hop. With ``expand="new"`` a block consists
    of the rows of all hops so far.
    """
    starts = graph.indptr.tolist()
    columns = [graph.indices[a:b].tolist() for a, b in pairwise(starts)]
    by_node = tables and [tuple(table[a:b].tolist() for table in tables) for a, b in pairwise(starts)]
    nodes, first, blocks = list(seeds), 0, []
    counts, indices, edge_ids = [0], [], []
    for h, fanout in enumerate(fanouts):
        if expand == "all":
            first, counts, indices, edge_ids = 0, [0], [], []
        drawn, local, after = hop(columns, nodes, fanout, replace, (seed, epoch, batch, h), by_node, first)
        counts = counts + [len(chosen) for chosen in drawn]
        indices = indices + local
        edge_ids = edge_ids + [starts[v] + offset for v, chosen in zip(nodes[first:], drawn, strict=True) for offset in chosen]
        blocks.append((list(accumulate(counts)), indices, edge_ids, len(after)))
        first, nodes = len(nodes), after
    return blocks, nodes


def permutation(n, seed, epoch):
    """Return range(n) sorted by 64 random bits for each element, from the reserved hop 4095."""
    keys = []
    for i in range(n):
        high, low = words((seed, epoch, 0, 4095), i, 2)
        keys.append((high << 32) + low)
    return sorted(range(n), key=lambda i: keys[i])
