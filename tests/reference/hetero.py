"""A slow, plain reference of sampling typed edges: Python integers, lists and dictionaries; nothing shared with the kernels."""

from itertools import accumulate

from reference import neighbor


def batch(graph, seed_type, seeds, fanouts, replace, key):
    """(blocks from the seeds outward, nodes by type); a block is (indptr, indices, edge ids, number of sources).

    ``fanouts`` holds a list for each relation, ``key`` is (seed, epoch, batch). Relation k draws in the hops from 16 k on.
    """
    nodes = {name: [] for name in graph.num_nodes}
    nodes[seed_type] += seeds
    hops = []
    for h in range(len(next(iter(fanouts.values())))):
        before = {name: len(ids) for name, ids in nodes.items()}
        drawn = {}
        for k, (relation, columns) in enumerate(graph.relations.items()):
            source, _, destination = relation
            counts, indices, edge_ids = [], [], []
            for v in nodes[destination][: before[destination]]:
                begin, end = int(columns.indptr[v]), int(columns.indptr[v + 1])
                fanout = fanouts[relation][h]
                chosen = neighbor.offsets(end - begin, fanout, replace, (*key, 16 * k + h), v) if fanout else []
                counts.append(len(chosen))
                edge_ids += [begin + offset for offset in chosen]
                for offset in chosen:
                    u = int(columns.indices[begin + offset])
                    if u not in nodes[source]:
                        nodes[source].append(u)
                    indices.append(nodes[source].index(u))
            drawn[relation] = (list(accumulate(counts, initial=0)), indices, edge_ids)
        hops.append({relation: (*block, len(nodes[relation[0]])) for relation, block in drawn.items()})
    return hops, nodes
