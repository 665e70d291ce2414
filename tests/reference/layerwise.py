"""A slow reference for layer-wise sampling: Python integers and dictionaries; no code shared with the kernels."""

from bisect import bisect_right
from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
from reference.neighbor import words


def columns_of(graph):
    """Return the in-neighbours of every node, as lists."""
    starts = graph.indptr.tolist()
    return [graph.indices[a:b].tolist() for a, b in pairwise(starts)]


def keys(columns, destinations, kind, scores=None):
    """Return the integer keys {node: key} of the destinations' in-neighbours, in order of first appearance.

    ``kind`` is "mean", "gcn" (squared edge weights) or "adaptive".
    """
    scale = 1 << (60 - len(destinations).bit_length() - (16 if scores is not None else 0))
    sums = {}
    for v in destinations:
        degree = len(columns[v])
        for u in columns[v]:
            share = {"mean": degree**2, "gcn": degree + 1, "adaptive": degree}[kind]
            sums[u] = sums.get(u, 0) + scale // share + 1
    if kind == "gcn":
        sums = {u: total // (len(columns[u]) + 1) + 1 for u, total in sums.items()}
    return {u: total * (1 if scores is None else scores[u]) for u, total in sums.items()}


def draws(distribution, count, key):
    """Draw ``count`` nodes with the integer weights ``distribution`` = {node: key}; ``key`` is (seed, epoch, batch, hop)."""
    if not distribution:
        return []
    candidates, prefix = list(distribution), list(accumulate(distribution.values()))
    stream = words(key, 0, 2 * count)
    targets = [((high << 32) + low) * prefix[-1] >> 64 for high, low in zip(stream[::2], stream[1::2], strict=True)]
    return [candidates[bisect_right(prefix, target)] for target in targets]


def layer(graph, columns, nodes, distribution, drawn, normalize=False):
    """Return the block from the drawn nodes to the destinations, (indptr, indices, edge ids, weights, number of sources), and all nodes."""
    times, total = Counter(drawn), sum(distribution.values())
    local = {v: i for i, v in enumerate(nodes)}
    counts, indices, edge_ids, weights = [0], [], [], []
    for v in nodes:
        of_column = []
        for offset, u in enumerate(columns[v]):
            if times[u]:
                of_column.append(np.float32(times[u] * (float(total) / (float(len(drawn)) * float(distribution[u])))))
                indices.append(local.setdefault(u, len(local)))
                edge_ids.append(int(graph.indptr[v]) + offset)
        if normalize and of_column:
            factor = len(columns[v]) / sum(float(weight) for weight in of_column)
            of_column = [np.float32(float(weight) * factor) for weight in of_column]
        weights += [float(weight) for weight in of_column]
        counts.append(len(weights))
    return (counts, indices, edge_ids, weights, len(local)), list(local)


def batch(graph, seeds, layer_sizes, address, kind, *, global_distribution=False, scores=None, normalize=False):
    """Return the blocks from the seeds outward, the input nodes, and each layer's integer weights and drawn nodes.

    With ``global_distribution`` every node of the graph counts as a destination for the weights, as in FastGCN. ``address`` is (seed, epoch, batch).
    """
    columns = columns_of(graph)
    nodes, blocks, distributions = list(seeds), [], []
    for hop, size in enumerate(layer_sizes):
        distribution = keys(columns, range(graph.num_nodes) if global_distribution else nodes, kind, scores)
        drawn = draws(distribution, size, (*address, hop))
        block, nodes = layer(graph, columns, nodes, distribution, drawn, normalize)
        blocks.append(block)
        distributions.append((distribution, drawn))
    return blocks, nodes, distributions
