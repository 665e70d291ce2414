"""A slow reference for HGT's sampling by budgets: Python floats, lists and dictionaries; no code shared with the kernels."""

from itertools import accumulate

from reference import neighbor


def batch(graph, seeds, num_samples, key):
    """Return each relation's edges as (indptr, indices, edge ids), and nodes by type. ``num_samples`` holds a list for each type."""
    nodes = {name: list(seeds.get(name, [])) for name in graph.num_nodes}
    read = dict.fromkeys(graph.relations, 0)
    budgets = {name: {} for name in nodes}  # in order of first appearance, whether sampled or not
    for name, own in nodes.items():
        budgets[name] = dict.fromkeys(own, 0.0)
    for hop in range(len(next(iter(num_samples.values())))):
        for relation, columns in graph.relations.items():
            source, _, destination = relation
            for v in nodes[destination][read[relation] :]:
                column = columns.indices[columns.indptr[v] : columns.indptr[v + 1]].tolist()
                for u in column:
                    budgets[source].setdefault(u, 0.0)
                    if u not in nodes[source]:
                        budgets[source][u] += 1 / len(column)
            read[relation] = len(nodes[destination])
        for k, (name, own) in enumerate(nodes.items()):
            own += drawn(budgets[name], own, num_samples[name][hop], (*key, 16 * k + hop))
    return {
        relation: edges_between(columns, nodes[relation[0]], nodes[relation[2]]) for relation, columns in graph.relations.items()
    }, nodes


def drawn(budgets, taken, number, key):
    """Draw up to ``number`` distinct nodes in sequence, with probability proportional to their squared budgets."""
    squares = [0.0 if u in taken else budget * budget for u, budget in budgets.items()]
    candidates = list(budgets)
    left = [u for u in candidates if u not in taken]
    if len(left) <= number:
        return left
    size = 1 << (len(squares) - 1).bit_length()
    squares += [0.0] * (size - len(squares))
    found = []
    for j in range(number):
        high, low = neighbor.words(key, j, 2)
        place = find(squares, ((high << 32) + low >> 11) / 2**53 * halved_sum(squares))
        found.append(candidates[place])
        squares[place] = 0.0
    return found


def halved_sum(values):
    """Return the sum of the two halves' sums, recursively."""
    half = len(values) // 2
    return values[0] if half == 0 else halved_sum(values[:half]) + halved_sum(values[half:])


def find(values, rest):
    """Return the index whose interval of the cumulative sum contains ``rest``."""
    half = len(values) // 2
    if half == 0:
        return 0
    left, right = halved_sum(values[:half]), halved_sum(values[half:])
    return half + find(values[half:], rest - left) if rest >= left and right > 0 else find(values[:half], rest)


def edges_between(columns, sources, destinations):
    """Return (indptr, indices, edge ids) of the edges between sampled nodes."""
    counts, indices, edge_ids = [], [], []
    for v in destinations:
        own = [e for e in range(columns.indptr[v], columns.indptr[v + 1]) if columns.indices[e] in sources]
        counts.append(len(own))
        edge_ids += own
        indices += [sources.index(columns.indices[e]) for e in own]
    return list(accumulate(counts, initial=0)), indices, edge_ids
