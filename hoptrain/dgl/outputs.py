"""A mini-batch as DGL's blocks, or as a subgraph of DGL's. Nothing of it stays in the memory of the queue but gathered features.

Features of the graph come along as they do in DGL: looked up when they are asked for.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoptrain.engine.arrays import Array
from hoptrain.samplers import Block, MiniBatch
from hoptrain.samplers.batch.copies import Copies, with_copies
from hoptrain.samplers.batch.dgl_compat import import_dgl
from hoptrain.samplers.batch.transfer import as_tensor

dgl = import_dgl()


def blocks_of(g: Any, batch: MiniBatch, copies: Copies | None, *, weighted: bool) -> tuple[Tensor, list[Any], Tensor | None]:
    """Input nodes (S,), blocks, and the features that were gathered, (S, F) or None.

    Args:
        g: the DGL graph that was sampled.
        batch: of the distinct seeds.
        copies: which of the seeds stand there several times.
        weighted: whether blocks have ``edata["edge_weights"]``, with the mean 1 over a destination's edges, as DGL's.
    """
    batch = batch if copies is None else with_copies(batch, copies)
    nodes = _ids(g, batch.node_ids)
    blocks = []
    for block in batch.blocks:
        made = _block(g, nodes, block, batch.ids_of(block.edge_ids))
        if weighted:
            made.edata["edge_weights"] = _of_mean_one(block)
        blocks.append(made)
    return nodes, blocks, _rows(batch)


def _block(g: Any, nodes: Tensor, block: Block, edge_ids: Array) -> Any:
    """As ``dgl.create_block`` makes one, which takes thrice as long: it looks for the largest source, and lays out the types anew each time."""
    ((source, edge, destination),) = g.canonical_etypes
    index = dgl.heterograph_index
    relation = index.create_unitgraph_from_csr(2, block.num_src, block.num_dst, *_columns(g, block), ["coo", "csr", "csc"], True)
    ends = [nodes[: block.num_src]], [nodes[: block.num_dst]]
    return dgl.convert.DGLBlock(
        index.create_heterograph_from_relations(_from_one_type_to_another(), [relation], None),
        ([source], [destination]),
        [edge],
        dgl.utils.extract_node_subframes_for_block(g, *ends),
        _edge_frames(g, edge_ids),
    )


@cache
def _from_one_type_to_another() -> Any:
    """DGL's graph of the types in a block."""
    return dgl.graph_index.from_coo(2, [0], [1], True)


def subgraph_of(g: Any, batch: MiniBatch, layout: str = "csc") -> tuple[Tensor, Any, Tensor | None]:
    """The vertices (S,) of a batch whose outermost block is square, the graph of its edges, and the features that were gathered.

    ``layout`` is "csr" where the edges were turned round.
    """
    nodes, block = _ids(g, batch.node_ids), batch.blocks[0]
    made = dgl.heterograph({g.canonical_etypes[0]: (layout, _columns(g, block))}, {g.ntypes[0]: len(nodes)})
    frames = dgl.utils.extract_node_subframes(g, [nodes])
    dgl.utils.set_new_frames(made, node_frames=frames, edge_frames=_edge_frames(g, batch.ids_of(block.edge_ids)))
    return nodes, made, _rows(batch)


def _ids(g: Any, ids: Array) -> Tensor:
    """A copy with the graph's dtype. NumPy makes it: of an array of this size torch's threads are no faster, and wait for each other."""
    return torch.from_numpy(ids.astype(np.int32 if g.idtype == torch.int32 else np.int64))


def _columns(g: Any, block: Block) -> tuple[Tensor, Tensor, Tensor]:
    """As DGL takes compressed columns: of one dtype, and without ids of edges, which count as they stand."""
    return _ids(g, block.indptr), _ids(g, block.indices), torch.empty(0, dtype=g.idtype)


def _rows(batch: MiniBatch) -> Tensor | None:
    return None if batch.x is None else as_tensor(batch.x)


def _edge_frames(g: Any, edge_ids: Array) -> Any:
    return dgl.utils.extract_edge_subframes(g, [_ids(g, edge_ids)])


def _of_mean_one(block: Block) -> Tensor:
    """(M,) float32: the weights, divided by the mean of those of their destination."""
    degrees = np.diff(block.indptr)
    destinations = np.repeat(np.arange(block.num_dst), degrees)
    sums = np.bincount(destinations, block.weights, block.num_dst)
    with np.errstate(invalid="ignore"):  # of a destination without edges
        return torch.from_numpy((block.weights * (degrees / sums)[destinations]).astype(np.float32))
