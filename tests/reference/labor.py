"""A slow reference for LABOR: Python numbers and lists, one edge at a time; with weights, c is found by bisection."""

from itertools import accumulate, pairwise

import numpy as np
from reference.neighbor import wanted, words


def solve(importances, fanout):
    """Solve sum of 1 / min(1, c p) = d**2 / fanout for c, with the importances p of a destination's in-edges; all edges for d <= fanout."""
    degree = len(importances)
    if degree <= fanout:
        return max((1.0 / p for p in importances), default=0.0)
    c, settled = 0.0, -1
    while True:
        certain = [c * p >= 1.0 for p in importances]
        if sum(certain) <= settled:
            return c
        settled, rest = sum(certain), 0.0
        for p, is_certain in zip(importances, certain, strict=True):
            if not is_certain:
                rest += 1.0 / p
        c = rest / (float(degree) * float(degree) / float(fanout) - settled)


def importances_of(columns, destinations, fanout, rounds):
    """Return the importance of every source after ``rounds`` fixed-point iterations."""
    importance = {u: 1.0 for v in destinations for u in columns[v]}
    for _ in range(rounds):
        factor = dict.fromkeys(importance, 0.0)
        for v in destinations:
            c = solve([importance[u] for u in columns[v]], fanout)
            for u in columns[v]:
                factor[u] = max(factor[u], c)
        importance = {u: p * factor[u] for u, p in importance.items()}
    return importance


def thresholds_of(columns, destinations, fanout, rounds):
    """Return, for each destination, the thresholds of its in-edges as fractions of 2**32."""
    if not rounds:
        degrees = [len(columns[v]) for v in destinations]
        return [[min(2**32, wanted(degree, fanout) * 2**32 // max(1, degree))] * degree for degree in degrees]
    importance = importances_of(columns, destinations, fanout, rounds)
    thresholds = []
    for v in destinations:
        c = solve([importance[u] for u in columns[v]], fanout)
        shares = [1.0 if len(columns[v]) <= fanout else c * importance[u] for u in columns[v]]
        thresholds.append([2**32 if share >= 1.0 else max(1, int(share * 2**32)) for share in shares])
    return thresholds


def batch(graph, seeds, fanouts, rounds, seed, epoch, batch):
    """Return the blocks from the seeds outward, as (indptr, indices, edge ids, number of sources, weights), and the input nodes."""
    starts = graph.indptr.tolist()
    columns = [graph.indices[a:b].tolist() for a, b in pairwise(starts)]
    nodes, blocks = list(seeds), []
    for hop, fanout in enumerate(fanouts):
        fanout = len(graph.indices) if fanout == -1 else fanout
        thresholds = thresholds_of(columns, nodes, fanout, rounds)
        place = {v: i for i, v in enumerate(nodes)}
        after, counts, indices, edge_ids, weights = list(nodes), [0], [], [], []
        for v, column in zip(nodes, thresholds, strict=True):
            before = len(indices)
            for offset, (u, threshold) in enumerate(zip(columns[v], column, strict=True)):
                if words((seed, epoch, batch, hop), u, 1)[0] < threshold:
                    if u not in place:
                        place[u] = len(after)
                        after.append(u)
                    indices.append(place[u])
                    edge_ids.append(starts[v] + offset)
                    weights.append(float(np.float32(2.0**32 / threshold)))
            counts.append(len(indices) - before)
        nodes = after
        blocks.append((list(accumulate(counts)), indices, edge_ids, len(nodes), weights))
    return blocks, nodes


def weighted_scale(weights, importances, fanout):
    """Solve sum of A**2 / min(1, c p) = S**2 (1 / fanout - 1 / d) + sum of A**2 for c, by bisection; all edges for d <= fanout."""
    weights, importances = np.array(weights, float), np.array(importances, float)
    if len(weights) <= fanout:
        return 1 / importances.min() if len(weights) else 0.0
    target = weights.sum() ** 2 * (1 / fanout - 1 / len(weights)) + (weights**2).sum()
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (weights**2 / np.minimum(1, 10**middle * importances)).sum() > target else (low, middle)
    return 10**high


def weighted_probabilities(columns, weights, fanout, rounds):
    """Return the probability of each edge of each column of (source, CSC position); ``weights`` are in CSC order."""
    columns = [[(u, e) for u, e in column if weights[e] > 0] for column in columns]
    importance = [[weights[e] for _, e in column] for column in columns]
    scale = [weighted_scale([weights[e] for _, e in column], own, fanout) for column, own in zip(columns, importance, strict=True)]
    for _ in range(rounds):
        largest = {}
        for column, own, c in zip(columns, importance, scale, strict=True):
            for (u, _), p in zip(column, own, strict=True):
                largest[u] = max(largest.get(u, 0.0), c * p)
        importance = [[largest[u] for u, _ in column] for column in columns]
        scale = [weighted_scale([weights[e] for _, e in column], own, fanout) for column, own in zip(columns, importance, strict=True)]
    return [
        {e: 1.0 if len(column) <= fanout else min(1.0, c * p) for (_, e), p in zip(column, own, strict=True)}
        for column, own, c in zip(columns, importance, scale, strict=True)
    ]
