"""A graph whose edges are hidden, for tests that edges are read from their files and never from the map of them."""

import numpy as np

from hoptrain.engine.arrays import read_only
from hoptrain.samplers.hops import columns_of

READ = ("indices", "weights", "times")
"""The arrays that samplers look at."""


def hide_edges(graph, names=READ):
    """Set the arrays of a graph's edges to 0 in memory. The files keep the edges."""
    for columns in columns_of(graph).values():
        for name in names:
            if (array := getattr(columns, name)) is not None:
                setattr(columns, name, read_only(np.zeros(len(array), array.dtype)))  # as kernels were compiled for


def hide_edges_from(loader, names=READ):
    """Let a loader with ``feature_cache`` start its processes anew on a graph whose edges are hidden; the next iteration is of epoch 0.

    The first batch decides where edges come from, so it is made before.
    """
    next(iter(loader))
    loader.close()
    hide_edges(loader.task.graph, names)
    loader.set_epoch(0)
