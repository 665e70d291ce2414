"""Keys of temporal batches. Each seed has a tree of its own; a *key* is one integer that holds a node's graph id and its tree."""

import numpy as np

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.philox import MAX_VERTEX

TREE_SHIFT = MAX_VERTEX.bit_length() - 1
_VERTEX = MAX_VERTEX - 1


@shared
def vertex_of(key):
    """Return the global node id of a key as ``int64``."""
    return np.int64(key) & _VERTEX


@shared
def tree_of(key):
    """Return the tree of a key as ``int64``."""
    return np.int64(key) >> TREE_SHIFT


@shared
def key_in(tree, vertex):
    """Return the key (``int64``) of a node, given by its global id, in a tree."""
    return (np.int64(tree) << TREE_SHIFT) | np.int64(vertex)
