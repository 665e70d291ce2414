"""A slow, plain reference of layer-wise sampling: Python integers and dictionaries, no Numba, no code shared with the kernels."""

from bisect import bisect_right
from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
from reference.neighbor import words


def columns_of(graph):
    """The in-neighbours of every node, as lists."""
    starts = graph.indptr.tolist()
    return [graph.indices[a:b].tolist() for a, b in pairwise(starts)]


def keys(columns, destinations, kind, scores=None):
    """The integer keys of the destinations' in-neighbours, in order of first appearance: {node: key}.

    ``kind`` is "mean" or "gcn" (squares of the edges' weights) or "adaptive".
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


def draws(law, count, key):
    """``count`` draws by the integers ``law`` = {node: key}; ``key`` is (seed, epoch, batch, hop)."""
    if not law:
        return []
    vertices, prefix = list(law), list(accumulate(law.values()))
    stream = words(key, 0, 2 * count)
    targets = [((high << 32) + low) * prefix[-1] >> 64 for high, low in zip(stream[::2], stream[1::2], strict=True)]
    return [vertices[bisect_right(prefix, target)] for target in targets]


def layer(graph, columns, nodes, law, drawn, normalize=False):
    """The block between the destinations ``nodes`` and the nodes drawn: (indptr, indices, edge ids, weights, number of sources), and all nodes."""
    times, total = Counter(drawn), sum(law.values())
    local = {v: i for i, v in enumerate(nodes)}
    counts, indices, edge_ids, weights = [0], [], [], []
    for v in nodes:
        of_column = []
        for offset, u in enumerate(columns[v]):
            if times[u]:
                of_column.append(np.float32(times[u] * (float(total) / (float(len(drawn)) * float(law[u])))))
                indices.append(local.setdefault(u, len(local)))
                edge_ids.append(int(graph.indptr[v]) + offset)
        if normalize and of_column:
            factor = len(columns[v]) / sum(float(weight) for weight in of_column)
            of_column = [np.float32(float(weight) * factor) for weight in of_column]
        weights += [float(weight) for weight in of_column]
        counts.append(len(weights))
    return (counts, indices, edge_ids, weights, len(local)), list(local)


def batch(graph, seeds, layer_sizes, address, kind, *, global_law=False, scores=None, normalize=False):
    """A mini-batch: its blocks from the seeds outward, the input nodes, and of each layer (its law, the nodes drawn).

    With ``global_law`` every node of the graph is a destination where the law is made, as in FastGCN. ``address`` is (seed, epoch, batch).
    """
    columns = columns_of(graph)
    nodes, blocks, laws = list(seeds), [], []
    for hop, size in enumerate(layer_sizes):
        law = keys(columns, range(graph.num_nodes) if global_law else nodes, kind, scores)
        drawn = draws(law, size, (*address, hop))
        block, nodes = layer(graph, columns, nodes, law, drawn, normalize)
        blocks.append(block)
        laws.append((law, drawn))
    return blocks, nodes, laws
