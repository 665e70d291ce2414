"""A graph whose edges are zeros in memory, for tests that edges are read from files and never from a memory map."""

import numpy as np

from hoptrain.engine.arrays import read_only
from hoptrain.engine.storage.file_rows import FileRows
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.hops import columns_of

READ = ("indices", "weights", "times")
"""Names of the edge arrays that samplers read."""


def hide_edges(graph, names=READ):
    """Set the edge arrays of a graph to 0 in memory. The files keep the edges."""
    for columns in columns_of(graph).values():
        for name in names:
            if (array := getattr(columns, name)) is not None:
                setattr(columns, name, read_only(np.zeros(len(array), array.dtype)))  # kernels were compiled for read-only arrays


def files_of(graph):
    """Return the files of a graph's edges by the names of ``EdgeFiles``. An empty array has none, since it cannot be mapped."""
    arrays = {(name, relation): array for relation, own in columns_of(graph).items() for name, array in own.arrays().items()}
    return {named(*key): FileRows.of(array, "edges") for key, array in arrays.items() if key[0] != "indptr" and len(array)}


def hide_edges_from(loader, names=READ):
    """Restart the processes of a loader with ``feature_cache`` on a graph with hidden edges; the next epoch is 0.

    The first batch decides where edges are read from, so it is sampled before the edges are hidden.
    """
    next(iter(loader))
    loader.close()
    hide_edges(loader.task.graph, names)
    loader.set_epoch(0)
