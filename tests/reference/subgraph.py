"""A slow reference for subgraph samplers: Python integers, lists and sets; alias tables and METIS clusters are inputs."""

from collections import deque
from itertools import pairwise

from reference.neighbor import bounded, offsets, words

MASS = 2**40


def columns_of(graph):
    return [graph.indices[a:b].tolist() for a, b in pairwise(graph.indptr.tolist())]


def wide(stream, n):
    """Return an integer in [0, n): two words as a fraction of 2**64, times n."""
    return (stream[0] * 2**32 + stream[1]) * n // 2**64


# From nodes to a mini-batch


def seeds_first(members, split):
    """Return distinct nodes, first the nodes of the split, and the number of nodes of the split."""
    distinct = list(dict.fromkeys(members))
    seeds = [v for v in distinct if v in split]
    return seeds + [v for v in distinct if v not in split], len(seeds)


def induced(graph, nodes):
    """Return the edges between distinct ``nodes`` in the graph's order: (indptr, sources as local ids, edge ids)."""
    place = {v: i for i, v in enumerate(nodes)}
    indptr, indices, edge_ids = [0], [], []
    for v in nodes:
        for e in range(graph.indptr[v], graph.indptr[v + 1]):
            if int(graph.indices[e]) in place:
                indices.append(place[int(graph.indices[e])])
                edge_ids.append(e)
        indptr.append(len(indices))
    return indptr, indices, edge_ids


# GraphSAINT


def node_draws(tables, budget, key, attempt=0):
    """Draw nodes by alias tables (threshold, alias) over all nodes."""
    drawn = []
    for i in range(budget):
        stream = words(key, i + (attempt << 32), 3)
        place = wide(stream, len(tables[0]))
        drawn.append(place if stream[2] < tables[0][place] else tables[1][place])
    return drawn


def walks(columns, roots, number, length, key, attempt=0):
    """Walk ``length`` steps against the edges, one walk after another."""
    drawn = []
    for i in range(number):
        stream = words(key, i + (attempt << 32), 2 + length)
        drawn.append(roots[wide(stream, len(roots))])
        for word in stream[2:]:
            column = columns[drawn[-1]]
            drawn.append(column[bounded(word, len(column))] if column else drawn[-1])
    return drawn


def edge_draws(columns, budget, key, attempt=0):
    """Draw edges and return their ends; an edge is a random in-edge of a random node with in-edges."""
    return walks(columns, [v for v, column in enumerate(columns) if column], budget, 1, key, attempt)


# Ripple walks


def ripple(columns, roots, size, ratio, key, attempts=100):
    """Return the nodes of a ripple walk in order of appearance; ``ratio`` is a fraction of 2**32."""
    drawn, seen, waiting, num_roots, failures = [], set(), [], 0, 0
    while len(drawn) < size and failures < attempts:
        new = []
        if waiting:
            for _ in range(min(size - len(drawn), max(1, len(waiting) * ratio // 2**32))):
                place = wide(words(key, len(drawn) + len(new), 2), len(waiting))
                new.append(waiting[place])
                waiting[place] = waiting[-1]
                waiting.pop()
        else:
            root = roots[wide(words(key, num_roots + 2**32, 2), len(roots))]
            num_roots += 1
            new = [] if root in seen else [root]
            failures = failures + 1 if root in seen else 0
            seen.add(root)
        drawn += new
        for v in new:
            for u in columns[v]:
                if u not in seen:
                    seen.add(u)
                    waiting.append(u)
    return drawn


# ShaDow


def neighbor_set(columns, seed_node, depth, fanout, key):
    """Return the nodes that neighbour sampling reaches, the seed first; ``key`` = (seed, epoch, batch)."""
    found, first = [seed_node], 0
    for hop in range(depth):
        last = len(found)
        for v in found[first:last]:
            for offset in offsets(len(columns[v]), fanout, False, (*key, hop), v):
                if columns[v][offset] not in found:
                    found.append(columns[v][offset])
        first = last
    return found


def push(columns, seed_node, alpha, threshold):
    """Return the scores and residues of the push algorithm, by node in order of discovery; ``alpha`` is a fraction of 2**16."""
    residue, score = {seed_node: MASS}, {seed_node: 0}

    def least(v):
        return threshold * max(len(columns[v]), 1)

    queue = deque([seed_node] if least(seed_node) <= MASS else [])
    while queue:
        v = queue.popleft()
        here, degree = residue[v], len(columns[v])
        ended = here * alpha // 2**16 if degree else here
        share = (here - ended) // max(degree, 1)
        score[v] += ended
        residue[v] = here - ended - share * degree
        for u in columns[v]:
            before = residue.setdefault(u, 0)
            score.setdefault(u, 0)
            residue[u] = before + share
            if before < least(u) <= residue[u]:
                queue.append(u)
    return score, residue


def pagerank_set(columns, seed_node, top, alpha, threshold):
    """Return the seed and the nodes with the highest positive scores, including final residues; ties by order of discovery."""
    score, residue = push(columns, seed_node, alpha, threshold)
    score = {v: score[v] + residue[v] * alpha // 2**16 for v in score}
    others = [v for v in score if v != seed_node and score[v] > 0]
    return [seed_node, *sorted(others, key=lambda v: -score[v])[:top]]


def disjoint_union(graph, sets):
    """Return nodes and edges of the disjoint union of the subgraphs ``sets``, each with its seed first; all seeds come first."""
    nodes, locals_of = [s[0] for s in sets], []
    for i, members in enumerate(sets):
        locals_of.append([i, *range(len(nodes), len(nodes) + len(members) - 1)])
        nodes += members[1:]
    rows = {}
    for members, local in zip(sets, locals_of, strict=True):
        indptr, indices, edge_ids = induced(graph, members)
        for row, (a, b) in zip(local, pairwise(indptr), strict=True):
            rows[row] = [local[i] for i in indices[a:b]], edge_ids[a:b]
    indptr, all_indices, all_edge_ids = [0], [], []
    for row in range(len(nodes)):
        all_indices += rows[row][0]
        all_edge_ids += rows[row][1]
        indptr.append(len(all_indices))
    return nodes, indptr, all_indices, all_edge_ids
