"""A slow, plain reference of PinSAGE's neighbourhoods: one walk after the other, counts in a dictionary."""

from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
from reference.neighbor import words


def visits(columns, root, num_walks, length, restart, key):
    """How often the walks from ``root`` visit each vertex, itself included."""
    stream, counts = words(key, root, num_walks * length), Counter()
    for walk in range(num_walks):
        vertex = root
        for step in range(length):
            if not columns[vertex]:
                break
            offset, rest = divmod(stream[walk * length + step] * len(columns[vertex]), 2**32)
            vertex = columns[vertex][offset]
            counts[vertex] += 1
            if rest < int(restart * 2**32):
                break
    return counts


def batch(graph, seeds, num_neighbors, num_walks, length, restart, seed, epoch, batch):
    """A mini-batch: (indptr, indices, number of sources, weights) of every block from the seeds outward, and the input nodes."""
    starts = graph.indptr.tolist()
    columns = [graph.indices[a:b].tolist() for a, b in pairwise(starts)]
    nodes, blocks = list(seeds), []
    for hop, most in enumerate(num_neighbors):
        after, counts, indices, weights = list(nodes), [0], [], []
        for v in nodes:
            counted = visits(columns, v, num_walks, length, restart, (seed, epoch, batch, hop))
            counted.pop(v, None)
            taken = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:most]
            for u, count in taken:
                if u not in after:
                    after.append(u)
                indices.append(after.index(u))
                weights.append(float(np.float32(count * float(len(columns[v])) / sum(n for _, n in taken))))
            counts.append(len(taken))
        nodes = after
        blocks.append((list(accumulate(counts)), indices, len(nodes), weights))
    return blocks, nodes
