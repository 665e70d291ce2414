"""A slow reference for PinSAGE's neighbourhoods: one walk after another, counted in a dictionary."""

from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
from reference.neighbor import words


def visits(along, root, num_walks, length, restart, key):
    """Count how often walks from ``root`` visit each node, including the root; ``along`` has the columns of each step to a visit."""
    steps, counts = length * len(along), Counter()
    stream = words(key, root, num_walks * steps)
    for walk in range(num_walks):
        node = root
        for step in range(steps):
            column = along[step % len(along)][node]
            if not column:
                break
            offset, rest = divmod(stream[walk * steps + step] * len(column), 2**32)
            node = column[offset]
            if (step + 1) % len(along) == 0:
                counts[node] += 1
                if rest < int(restart * 2**32):
                    break
    return counts


def columns_of(graph):
    """Return the sources of each node's in-edges."""
    return [graph.indices[a:b].tolist() for a, b in pairwise(graph.indptr.tolist())]


def batch(along, seeds, num_neighbors, num_walks, length, restart, seed, epoch, batch):
    """Return the blocks from the seeds outward, as (indptr, indices, number of sources, weights), and the input nodes.

    ``along`` has the columns of each step to a visit.
    """
    nodes, blocks = list(seeds), []
    for hop, most in enumerate(num_neighbors):
        after, counts, indices, weights = list(nodes), [0], [], []
        for v in nodes:
            counted = visits(along, v, num_walks, length, restart, (seed, epoch, batch, hop))
            counted.pop(v, None)
            taken = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:most]
            for u, count in taken:
                if u not in after:
                    after.append(u)
                indices.append(after.index(u))
                degree = float(len(along[0][v])) if len(along) == 1 else 1.0
                weights.append(float(np.float32(count * degree / sum(n for _, n in taken))))
            counts.append(len(taken))
        nodes = after
        blocks.append((list(accumulate(counts)), indices, len(nodes), weights))
    return blocks, nodes
