"""Nodes of a batch with a tree for each seed: a node is a node in a tree, and one number, its *key*, tells both."""

import numpy as np

from hoptrain.kernels.shared import shared
from hoptrain.kernels.shared.philox import MAX_VERTEX

TREE_SHIFT = MAX_VERTEX.bit_length() - 1
_VERTEX = MAX_VERTEX - 1


@shared
def vertex_of(key):
    """The node of a key, ``int64``."""
    return np.int64(key) & _VERTEX


@shared
def tree_of(key):
    """The tree of a key, ``int64``."""
    return np.int64(key) >> TREE_SHIFT


@shared
def key_in(tree, vertex):
    """The key of a node in a tree, ``int64``."""
    return (np.int64(tree) << TREE_SHIFT) | np.int64(vertex)
