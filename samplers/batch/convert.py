"""A mini-batch as the objects of PyG and DGL, for code that was written for their loaders.

A batch is a ``MiniBatch`` here, which is not imported: its methods call these functions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from hoptrain.engine import InputError
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.samplers.batch.union import union_of_hops

NAMES_IN_PYG = {"pairs": "edge_label_index", "labels": "edge_label", "trees": "batch", "seed_times": "seed_time"}
"""What extras are called in the batches of PyG's loaders."""


def to_pyg(batch: Any) -> Any:
    """A ``torch_geometric.data.Data`` like those of PyG's ``NeighborLoader``, on the batch's device.

    With S nodes, B seeds, M edges and L hops it has

    * ``n_id`` (S,) int64 global ids; the first ``batch_size`` nodes are the seeds. PyG's ``input_id``, where each seed stands in the list that a
      loader was given, a batch does not know.
    * ``x`` (S, F) and ``y`` (B,) or (B, C), where they were gathered: labels are those of the seeds. ``x`` has the data set's dtype, as in PyG that of
      ``Data``; only codes of ``int8`` and ``int4`` become float32. PyG's layers take uint8 or float16 as ``x.float()``.
    * ``edge_index`` (2, M) int64 in local ids, and ``e_id`` (M,) int64, the ids of ``Graph.edge_ids``: ``data.edge_index[:, e_id]`` of the
      ``Data`` that the graph was made from are these edges. With ids of its own a graph has them on the host, where they are looked up.
    * ``edge_weight`` (M,) float32, where the blocks have weights (``Block.weights``). Of a destination that several hops expanded each hop's
      weights are divided by the number of these hops: the weighted sum over its edges is the mean of the hops' estimates.
    * ``edge_attr`` (M, D) features of the edges, where they were gathered.
    * ``num_sampled_nodes``, L + 1 numbers, and ``num_sampled_edges``, L numbers, from the seeds outward: by them PyG's ``trim_to_layer`` leaves
      to the last layer the first hop's edges.
    * ``seed_weights`` (B,), the weights of the seeds in the loss, where there are some.
    * what the sampler tells in ``extra``, by its names; ``pairs`` and ``labels`` of links also as ``edge_label_index`` and ``edge_label``,
      ``trees`` and ``seed_times`` also as ``batch`` and ``seed_time``. Where each seed has a subgraph of its own, ``batch`` (S,) is the number of
      the seed whose subgraph a node is in.

    An edge that a hop drew several times, with replacement, stands there as often. One that several hops drew stands there as often as the hop
    that drew it most often had it; where hops draw with replacement, every draw of every hop is an edge. A model that applies all edges in
    every layer sees the union of the hops; one that has to see each hop's own sample takes the blocks.

    Raises:
        InputError: neighbours that are not joined by edges of the graph, as PinSAGE's; blocks of which some have weights and some have none;
            an extra with the name of something else.
    """
    import torch
    from torch_geometric.data import Data

    batch = batch.to("cpu") if not isinstance(batch.node_ids, torch.Tensor) else batch
    edges = union_of_hops(batch)
    num_nodes = [batch.num_seeds, *(block.num_src for block in reversed(batch.blocks))]
    data = Data(
        x=batch.x,
        y=batch.y,
        edge_index=edges.edge_index,
        n_id=batch.node_ids.long(),
        e_id=batch.ids_of(edges.places),
        batch_size=batch.num_seeds,
        num_nodes=len(batch.node_ids),
        num_sampled_nodes=[num_nodes[0], *(after - before for before, after in pairwise(num_nodes))],
        num_sampled_edges=edges.counts,
    )
    further = {"edge_weight": edges.weights, "edge_attr": edges.edge_attr, "seed_weights": batch.seed_weights, "batch": _subgraphs(batch)}
    for name, value in further.items():
        if value is not None:
            data[name] = value
    for name, value in batch.extra.items():
        if name in data:
            raise InputError(f"extra[{name!r}] has the name of something else in PyG's Data: rename it in the sampler")
        data[name] = data[NAMES_IN_PYG.get(name, name)] = value if value.is_floating_point() else value.long()
    return data


def _subgraphs(batch: Any) -> Any:
    """(S,) int64, the seed whose subgraph each node is in; None where a batch is one graph."""
    if batch.subgraph_sizes is None:
        return None
    seeds = np.arange(batch.num_seeds)
    return as_tensor(np.concatenate([seeds, np.repeat(seeds, batch.subgraph_sizes)])).to(batch.node_ids.device)


def to_dgl(batch: Any) -> tuple[Any, Any, list[Any]]:
    """(input nodes, seeds, blocks) as DGL's ``NeighborSampler`` gives them.

    Blocks carry ``dgl.NID``, ``dgl.EID``, the ids of ``Graph.edge_ids``, ``edata["edge_weights"]`` where they have weights, under the name that DGL's
    ``LaborSampler`` gives them, and ``edata["edge_attr"]`` where edges have features. The first has the vertices' features as ``srcdata["x"]``; the
    last has as ``dstdata`` the labels of the seeds, ``y``, and their weights in the loss, ``seed_weights``. What the sampler tells besides stays in
    the batch's ``extra``.

    Raises:
        InputError: DGL is not installed.
    """
    from hoptrain.samplers.batch.dgl_compat import import_dgl

    dgl = import_dgl()
    import torch

    batch = batch.to("cpu") if not isinstance(batch.node_ids, torch.Tensor) else batch
    blocks = [_dgl_block(dgl, block, batch) for block in batch.blocks]
    if blocks and batch.x is not None:
        blocks[0].srcdata["x"] = batch.x
    for name in ("y", "seed_weights"):
        if blocks and getattr(batch, name) is not None:
            blocks[-1].dstdata[name] = getattr(batch, name)
    return batch.node_ids, batch.seeds, blocks


def _dgl_block(dgl: Any, block: Any, batch: Any) -> Any:
    csc = (block.indptr.to(block.indices.dtype), block.indices, block.indices.new_empty(0))
    made = dgl.create_block(("csc", csc), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst)
    made.srcdata[dgl.NID] = batch.node_ids[: block.num_src]
    made.dstdata[dgl.NID] = batch.node_ids[: block.num_dst]
    made.edata[dgl.EID] = batch.ids_of(block.edge_ids)
    if block.weights is not None:
        made.edata["edge_weights"] = block.weights
    if block.edge_attr is not None:
        made.edata["edge_attr"] = block.edge_attr
    return made
