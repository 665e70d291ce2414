"""Blocks for tests of sums over edges, and the expected sums, edge by edge."""

import itertools

import numpy as np

DEGREES = {
    "random": [3, 0, 5, 1, 2, 4, 0, 7, 2, 3, 1],
    "empty": [0, 0, 0],
    "no destinations": [],
    "ragged": [0, 1, 0, 13, 4, 2, 0, 0, 9, 1, 0],
    "a hub": [1, 2, 61, 0, 3],
    "hubs side by side": [17, 22, 4, 5, 16, 0, 12, 9],
    "one hub": [32],
}
"""In-degrees of a block's destinations, by the name of the case."""


def block_of(case, num_rows=14, seed=0):
    """Return (ptr, ind), the offsets and the sources of a block; the last of ``num_rows`` sources has no edge."""
    degrees = DEGREES[case]
    ptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    ind = np.random.default_rng(seed).integers(0, num_rows - 1, ptr[-1]).astype(np.int32)
    return ptr, ind


def in_pieces(begin, end, piece):
    """Return the edges of a destination in the order of summation: whole, or cut at multiples of 2 ** ``piece``."""
    if end - begin <= 1 << piece:
        return [(begin, end)]
    cuts = [begin, *(cut << piece for cut in range((begin >> piece) + 1, ((end - 1) >> piece) + 1)), end]
    return list(itertools.pairwise(cuts))


def expected_sums(ptr, ind, rows, *, weights=None, scale=None, heads=1, mean=False, piece=2):
    """Return the sums (D, W) in the dtype of ``rows``, by the same additions in the same order as the kernels."""
    out = np.zeros((len(ptr) - 1, rows.shape[1]), rows.dtype)
    for row in range(len(out)):
        total = np.zeros_like(out[row])
        pieces = in_pieces(int(ptr[row]), int(ptr[row + 1]), piece)
        for begin, end in pieces:
            part = np.zeros_like(total)
            for e in range(begin, end):
                by = np.ones(heads, rows.dtype) if weights is None else weights[e].copy()
                if scale is not None:
                    by *= scale[ind[e]]
                part += np.repeat(by, rows.shape[1] // heads) * rows[ind[e]]
            total = part if len(pieces) == 1 else total + part
        degree = ptr[row + 1] - ptr[row]
        by = rows.dtype.type(1) / rows.dtype.type(max(1, degree)) if mean else rows.dtype.type(1)
        out[row] = by * total
    return out


def expected_dots(ptr, ind, rows, gradient, *, heads=1, inverse=None):
    """Return (M, heads): the dot product of each edge's source row with the gradient of its destination."""
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    products = (rows[ind].astype(np.float64) * gradient[owner]).reshape(len(ind), heads, rows.shape[1] // heads).sum(2)
    return products if inverse is None else products * inverse[owner, None]
