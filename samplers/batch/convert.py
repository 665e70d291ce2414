"""A mini-batch as the objects of PyG and DGL, for code that was written for their loaders.

A batch is a ``MiniBatch`` here, which is not imported: its methods call these functions.
"""

from __future__ import annotations

from typing import Any

from hoptrain.engine import InputError


def to_pyg(batch: Any) -> Any:
    """A ``torch_geometric.data.Data`` like those of PyG's ``NeighborLoader``.

    ``edge_index`` (2, M) holds every sampled edge once, in local ids, also where it was drawn in several hops; ``n_id`` (S,) and ``e_id``
    (M,) are global; the first ``batch_size`` nodes are the seeds. A model that applies all edges in every layer sees the union of the hops;
    one that has to see each hop's own sample takes the blocks.

    Raises:
        InputError: neighbours that are not joined by edges of the graph, as PinSAGE's.
    """
    import torch
    from torch_geometric.data import Data

    batch = batch.to("cpu") if not isinstance(batch.node_ids, torch.Tensor) else batch
    # From the seeds outward, so that an edge stands where it was drawn first.
    edge_ids = torch.cat([block.edge_ids for block in reversed(batch.blocks)]).long()
    if (edge_ids < 0).any():
        raise InputError(
            "the batch's pairs are not edges of the graph (their edge ids are -1), and PyG's Data tells pairs apart by these: use its blocks"
        )
    edge_index = torch.cat([block.edge_index() for block in reversed(batch.blocks)], dim=1)
    # Where nodes are vertices in trees, an edge of the graph may stand between several pairs of them.
    unique, inverse = torch.unique(edge_ids * len(batch.node_ids) + edge_index[1], return_inverse=True)
    first = torch.full_like(unique, len(edge_ids)).scatter_reduce_(0, inverse, torch.arange(len(edge_ids), device=inverse.device), "amin")
    first = first.sort().values
    return Data(
        x=batch.x,
        y=batch.y,
        edge_index=edge_index[:, first],
        n_id=batch.node_ids.long(),
        e_id=edge_ids[first],
        input_id=batch.seeds.long(),
        batch_size=batch.num_seeds,
        num_nodes=len(batch.node_ids),
    )


def to_dgl(batch: Any) -> tuple[Any, Any, list[Any]]:
    """(input nodes, seeds, blocks) as DGL's ``NeighborSampler`` gives them; blocks carry ``dgl.NID`` and ``dgl.EID``.

    Raises:
        InputError: DGL is not installed.
    """
    from hoptrain.samplers.batch.dgl_compat import import_dgl

    dgl = import_dgl()
    import torch

    batch = batch.to("cpu") if not isinstance(batch.node_ids, torch.Tensor) else batch
    return batch.node_ids, batch.seeds, [_dgl_block(dgl, block, batch) for block in batch.blocks]


def _dgl_block(dgl: Any, block: Any, batch: Any) -> Any:
    csc = (block.indptr.to(block.indices.dtype), block.indices, block.indices.new_empty(0))
    made = dgl.create_block(("csc", csc), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
    made.srcdata[dgl.NID] = batch.node_ids[: block.num_src]
    made.dstdata[dgl.NID] = batch.node_ids[: block.num_dst]
    made.edata[dgl.EID] = block.edge_ids
    if block is batch.blocks[0] and batch.x is not None:
        made.srcdata["x"] = batch.x
    return made
