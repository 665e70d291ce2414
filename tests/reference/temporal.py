"""A slow reference for temporal sampling: Python integers, lists and tuples; no code shared with the kernels."""

from itertools import pairwise

from reference import neighbor


def admitted(graph, node, bound):
    """Return the ids of a node's in-edges up to the time bound, ordered by time and then by id."""
    ids = range(graph.indptr[node], graph.indptr[node + 1])
    return sorted((e for e in ids if graph.times[e] <= bound), key=lambda e: (int(graph.times[e]), e))


def batch(graph, seeds, times, fanouts, strategy, replace, key):
    """Return the outermost block (indptr, indices, edge ids), the number of nodes before each hop and at the end, and nodes as (tree, node)."""
    nodes = list(enumerate(seeds))
    columns, indices, edge_ids, sizes = [], [], [], [len(nodes)]
    first = 0
    for hop, fanout in enumerate(fanouts):
        last = len(nodes)
        for i in range(first, last):
            tree, node = nodes[i]
            edges = admitted(graph, node, times[tree])
            if strategy == "recent":
                drawn = edges[max(0, len(edges) - neighbor.wanted(len(edges), fanout)) :]
            else:
                drawn = [edges[offset] for offset in neighbor.offsets(len(edges), fanout, replace, (*key, hop), i)]
            columns.append(len(drawn))
            edge_ids += drawn
            for e in drawn:
                source = (tree, int(graph.indices[e]))
                if source not in nodes:
                    nodes.append(source)
                indices.append(nodes.index(source))
        first = last
        sizes.append(len(nodes))
    ends = [0]
    for count in columns:
        ends.append(ends[-1] + count)
    assert all(b >= a for a, b in pairwise(ends))
    return (ends, indices, edge_ids), sizes, nodes


def batch_of_paths(graph, seeds, times, fanouts, strategy, replace, key):
    """Sample trees whose edge times increase along paths: every edge leads to a node of its own, whose edges are earlier.

    The result is the outermost block (indptr, indices, edge ids), the number of nodes before each hop and at the end, and nodes as (tree,
    node).
    """
    nodes, bounds = list(enumerate(seeds)), list(times)
    ends, indices, edge_ids, sizes = [0], [], [], [len(nodes)]
    first = 0
    for hop, fanout in enumerate(fanouts):
        last = len(nodes)
        for i in range(first, last):
            edges = admitted(graph, nodes[i][1], bounds[i])
            if strategy == "recent":
                drawn = edges[max(0, len(edges) - neighbor.wanted(len(edges), fanout)) :]
            else:
                drawn = [edges[offset] for offset in neighbor.offsets(len(edges), fanout, replace, (*key, hop), i)]
            for e in drawn:
                indices.append(len(nodes))
                nodes.append((nodes[i][0], int(graph.indices[e])))
                bounds.append(int(graph.times[e]) - 1)
            edge_ids += drawn
            ends.append(len(edge_ids))
        first = last
        sizes.append(len(nodes))
    return (ends, indices, edge_ids), sizes, nodes
