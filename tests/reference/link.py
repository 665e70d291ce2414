"""A slow reference for edges as seeds: Python integers, lists and sets; no code shared with the kernels."""

from itertools import pairwise

from reference import neighbor

HOP_NEGATIVES = 4093


def place(key, edge, number, limit):
    """Return a random integer in [0, limit) and a random word, for the ``number``-th negative of an edge; ``key`` = (seed, epoch, batch)."""
    high, low, word, _ = neighbor.words((*key, HOP_NEGATIVES), edge, 4 * number + 4)[-4:]
    return ((high << 32) + low) * limit >> 64, word


def negative(kind, key, edges, i, number, destinations, bounds, table, refused, count):
    """Return the destination of a negative of ``edges[i]``, drawn within ``bounds``; a filtered negative is not in ``refused``."""
    begin, end = bounds
    if kind == "filtered":
        for again in range(32):
            node = begin + place(key, edges[i], number + again * count, end - begin)[0]
            if node not in refused:
                break
        return node
    if kind == "in_batch":
        further, _ = place(key, edges[i], number, len(edges) - 1)
        return destinations[(i + 1 + further) % len(edges)]
    column, word = place(key, edges[i], number, end - begin)
    if kind == "degree" and word >= table[0][column]:
        column = int(table[1][column])
    return begin + column


def batch(graph, edges, options, fanouts, expand, key, table=None):
    """Return pairs as global ids, blocks from the seeds outward, and nodes; ``options`` = (negatives, number, exclude, destinations)."""
    kind, count, exclude, bounds = options
    owner = [v for v, (a, b) in enumerate(pairwise(graph.indptr.tolist())) for _ in range(a, b)]
    positives = [(int(graph.indices[e]), owner[e]) for e in edges]
    destinations = [v for _, v in positives]
    count = 0 if kind == "in_batch" and len(edges) == 1 else count
    sources = graph.indices.tolist()
    refused = [{u} | {v for source, v in zip(sources, owner, strict=True) if source == u} for u, _ in positives]
    negatives = [
        (
            place(key, edges[i], number + count, len(graph.indptr) - 1)[0] if kind == "pairs" else positives[i][0],
            negative(kind, key, edges, i, number, destinations, bounds, table, refused[i], count),
        )
        for i in range(len(edges))
        for number in range(count)
    ]
    pairs = positives + negatives
    seeds = list(dict.fromkeys([u for u, _ in pairs] + [v for _, v in pairs]))
    blocks, nodes = neighbor.batch(graph, seeds, fanouts, False, *key, expand=expand)
    dropped = set() if exclude == "none" else set(positives)
    if exclude == "reverse":
        dropped |= {(v, u) for u, v in positives}
    return pairs, [without(block, nodes, dropped) for block in blocks], nodes


def without(block, nodes, dropped):
    """Return a block without the edges between the pairs of global ids in ``dropped``."""
    indptr, indices, edge_ids, num_src = block
    kept = [[j for j in range(a, b) if (nodes[indices[j]], nodes[i]) not in dropped] for i, (a, b) in enumerate(pairwise(indptr))]
    flat = [j for column in kept for j in column]
    ends = [0]
    for column in kept:
        ends.append(ends[-1] + len(column))
    return ends, [indices[j] for j in flat], [edge_ids[j] for j in flat], num_src
