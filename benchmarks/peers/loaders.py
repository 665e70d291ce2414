"""The loaders that hoptrain's is compared with, each driven as its documentation advises and in its own mode of expansion.

DGL
    ``dgl.dataloading.DataLoader`` over a graph of compressed columns with int64 ids, ``NeighborSampler`` fused as by default, features and
    labels named for prefetching: they are fetched in the consumer's process, by as many threads as there are cores. Workers are persistent.
    Every hop expands all vertices found so far: mode "all".
PyG
    ``torch_geometric.loader.NeighborLoader``, its operator from pyg-lib where that is installed, else from torch-sparse. Features and labels
    are fetched in the consumer's process, its default for data in memory (``filter_per_worker``). Workers are persistent. Every hop expands
    the vertices that the hop before found: mode "new".

Features lie in memory of their own. Both return new tensors for every mini-batch; the C library's allocator gives large ones back to the system
at once, so that each costs thousands of page faults. DGL's guide for CPUs advises tcmalloc against that. So each is measured with either.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from typing import Any

import numpy as np

from hoptrain.benchmarks.common.loaders import Case, Epoch
from hoptrain.benchmarks.peers.samplers import require
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers.batch.dgl_compat import import_dgl


def open_dgl(data: Dataset) -> Callable[[Case, int], Epoch]:
    """Take the data set over into DGL.

    Raises:
        InputError: DGL is not installed or cannot be imported.
    """
    require("dgl")
    warnings.simplefilter("ignore")  # that pinning processes to cores may help; this process is DGL's alone
    dgl = import_dgl()
    import torch

    indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in (data.graph.indptr, data.graph.indices))
    graph = dgl.graph(("csc", (indptr, indices, indptr.new_empty(0))), num_nodes=data.graph.num_nodes).formats("csc")
    graph.ndata["x"], graph.ndata["y"] = (torch.tensor(array) for array in (data.x, data.y))

    def make(case: Case, workers: int) -> Epoch:
        sampler = dgl.dataloading.NeighborSampler(list(reversed(case.fanouts)), prefetch_node_feats=["x"], prefetch_labels=["y"])
        loader = dgl.dataloading.DataLoader(
            graph,
            torch.from_numpy(case.seeds),
            sampler,
            batch_size=case.batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

        def epoch() -> Iterator[tuple[int, Array]]:
            for _, _, blocks in loader:
                yield sum(block.num_edges() for block in blocks), blocks[0].srcdata["x"].numpy()
                del blocks

        return epoch

    return make


def pyg_data(data: Dataset) -> Any:
    """The data set as PyG's ``Data``, for its ``NeighborLoader``.

    Raises:
        InputError: PyG is not installed, or neither of the libraries that sample for it.
    """
    require("torch_geometric")
    warnings.simplefilter("ignore")  # that torch-sparse will not be used any more one day
    import torch
    from torch_geometric import typing as installed
    from torch_geometric.data import Data

    if not (installed.WITH_PYG_LIB or installed.WITH_TORCH_SPARSE):
        raise InputError("neither pyg-lib nor torch-sparse is installed")
    graph = data.graph
    destinations = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), graph.in_degrees()))
    edge_index = torch.stack([torch.from_numpy(graph.indices.astype(np.int64)), destinations])
    return Data(edge_index=edge_index, x=torch.tensor(data.x), y=torch.tensor(data.y), num_nodes=graph.num_nodes)


def open_pyg(data: Dataset) -> Callable[[Case, int], Epoch]:
    """Take the data set over into PyG; see ``pyg_data``."""
    owned = pyg_data(data)
    import torch
    from torch_geometric.loader import NeighborLoader

    def make(case: Case, workers: int) -> Epoch:
        loader = NeighborLoader(
            owned,
            list(case.fanouts),
            input_nodes=torch.from_numpy(case.seeds),
            is_sorted=True,
            batch_size=case.batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

        def epoch() -> Iterator[tuple[int, Array]]:
            for batch in loader:
                yield batch.edge_index.size(1), batch.x.numpy()
                del batch

        return epoch

    return make


def tcmalloc() -> str | None:
    """The name by which the dynamic linker knows tcmalloc, if it is installed."""
    return find_library("tcmalloc_minimal") or find_library("tcmalloc")
