"""A slow reference for sampling heterogeneous graphs: Python integers, lists and dictionaries; no code shared with the kernels."""

from itertools import accumulate

from reference import neighbor, temporal


def batch(graph, seeds, fanouts, replace, key, *, expand="all", tables=None):
    """Return blocks from the seeds outward, as (indptr, indices, edge ids, number of sources), and nodes by type.

    ``seeds`` are lists by type, ``fanouts`` a list for each relation, ``tables`` the weight tables of ``neighbor.batch`` for weighted
    relations, and ``key`` is (seed, epoch, batch). For hop h, relation k uses the random words of hop ``16 * k + h``.
    """

    def choose(relation, k, h, v, _):
        columns, fanout = graph.relations[relation], fanouts[relation][h]
        begin, end = int(columns.indptr[v]), int(columns.indptr[v + 1])
        own = tables and relation in tables and tuple(table[begin:end].tolist() for table in tables[relation])
        degree = 0 if own and own[1] and own[1][0] < 0 else end - begin
        chosen = neighbor.offsets(degree, fanout, replace, (*key, 16 * k + h), v, own or None) if fanout else []
        return [(begin + offset, int(columns.indices[begin + offset])) for offset in chosen]

    nodes = {name: list(seeds.get(name, [])) for name in graph.num_nodes}
    return hops_of(graph, nodes, len(next(iter(fanouts.values()))), choose, expand), nodes


def trees(graph, seeds, bounds, fanouts, strategy, replace, key):
    """Return the blocks of seeds that each have a tree and a time; nodes are (tree, node), ``seeds`` are (type, node), blocks are nested."""

    def choose(relation, k, h, node, local):
        columns, fanout, (tree, v) = graph.relations[relation], fanouts[relation][h], node
        column = list(range(columns.indptr[v], columns.indptr[v + 1]))
        edges = column if columns.times is None else temporal.admitted(columns, v, bounds[tree])
        if strategy == "recent" and columns.times is not None:
            drawn = edges[max(0, len(edges) - neighbor.wanted(len(edges), fanout)) :] if fanout else []
        else:
            drawn = [edges[o] for o in neighbor.offsets(len(edges), fanout, replace, (*key, 16 * k + h), local)] if fanout else []
        return [(e, (tree, int(columns.indices[e]))) for e in drawn]

    nodes = {name: [(tree, v) for tree, (kind, v) in enumerate(seeds) if kind == name] for name in graph.num_nodes}
    return hops_of(graph, nodes, len(next(iter(fanouts.values()))), choose, "new"), nodes


def hops_of(graph, nodes, num_hops, choose, expand):
    """Return the blocks of each hop.

    ``choose`` returns (edge, source) pairs for a relation, its index, the hop, and a node with its local id.
    """
    first = dict.fromkeys(nodes, 0)
    rows = {relation: [] for relation in graph.relations}
    hops = []
    for h in range(num_hops):
        before = {name: len(ids) for name, ids in nodes.items()}
        for k, relation in enumerate(graph.relations):
            source, _, destination = relation
            if expand == "all":
                rows[relation] = []
            for i in range(first[destination], before[destination]):
                row = []
                for edge, u in choose(relation, k, h, nodes[destination][i], i):
                    if u not in nodes[source]:
                        nodes[source].append(u)
                    row.append((edge, nodes[source].index(u)))
                rows[relation].append(row)
        first = before if expand == "new" else first
        hops.append({relation: (*block_of(own), len(nodes[relation[0]])) for relation, own in rows.items()})
    return hops


def block_of(rows):
    """Return (indptr, indices, edge ids)."""
    edges = [edge for row in rows for edge in row]
    return list(accumulate(map(len, rows), initial=0)), [local for _, local in edges], [edge for edge, _ in edges]
