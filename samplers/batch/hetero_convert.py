"""A mini-batch of a typed graph as the objects of PyG and DGL, for code that was written for their loaders.

A batch is a ``HeteroMiniBatch`` here, which is not imported: its methods call these functions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hoptrain.samplers.batch.convert import NAMES_IN_PYG
from hoptrain.samplers.batch.dgl_compat import import_dgl
from hoptrain.samplers.batch.union import union_of_blocks


def to_pyg(batch: Any) -> Any:
    """A ``torch_geometric.data.HeteroData`` like those of PyG's ``NeighborLoader``, on the batch's device.

    * Each type has ``n_id`` (S,) int64 global ids, ``x`` where it was gathered, ``num_nodes``, and ``num_sampled_nodes``, L + 1 numbers for L hops,
      from the seeds outward. One with seeds has their number as ``batch_size``; that of ``seed_type`` has their labels ``y``.
    * Each relation has ``edge_index`` (2, M) int64 in local ids, ``e_id`` (M,) int64, the ids of ``RelationColumns.edge_ids``, ``edge_weight`` (M,) where
      the blocks have weights, ``edge_attr`` (M, D) where features were gathered, and ``num_sampled_edges``, L numbers.
    * What the sampler tells in ``extra``: where its name ends in a type (``trees.paper``), with that type, else with the whole; of links,
      ``edge_label_index`` and ``edge_label`` with ``seed_relation``, of several relations with the whole; trees are ``batch``, ``seed_times`` ``seed_time``.

    Of edges that several hops drew the law is that of ``hoptrain.samplers.batch.convert.to_pyg``, relation by relation.

    Raises:
        InputError: blocks of a relation of which some have weights and some have none.
    """
    from torch_geometric.data import HeteroData

    batch = _of_tensors(batch)
    data, counts = HeteroData(), batch.node_counts
    for kind, ids in batch.node_ids.items():
        numbers = [of_hop[kind] for of_hop in counts]
        data[kind].n_id, data[kind].num_nodes = ids.long(), len(ids)
        data[kind].num_sampled_nodes = [numbers[0], *(after - before for before, after in pairwise(numbers))]
        if kind in batch.x:
            data[kind].x = batch.x[kind]
        if numbers[0]:
            data[kind].batch_size = numbers[0]
    if batch.y is not None:
        data[batch.seed_type].y = batch.y
    for relation in batch.blocks[0]:
        blocks = [hop[relation] for hop in batch.blocks]
        edges = union_of_blocks(blocks, batch.node_ids[relation[2]], batch.nested, batch.repeats_edges)
        data[relation].edge_index, data[relation].e_id = edges.edge_index, batch.ids_of(relation, edges.places)
        data[relation].num_sampled_edges = edges.counts
        if edges.weights is not None:
            data[relation].edge_weight = edges.weights
        if edges.edge_attr is not None:
            data[relation].edge_attr = edges.edge_attr
    for name, value in batch.extra.items():
        what, _, kind = name.partition(".")
        place = data[kind] if kind else data[batch.seed_relation] if what in ("pairs", "labels") and batch.seed_relation else data
        place[NAMES_IN_PYG.get(what, what)] = value if value.is_floating_point() else value.long()
    return data


def to_dgl(batch: Any) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """(input nodes, seeds, blocks) as DGL's ``NeighborSampler`` gives them for a graph with types: dictionaries by type, and a list of blocks.

    Blocks carry ``dgl.NID`` by type, ``dgl.EID`` by relation, the ids of ``RelationColumns.edge_ids``, ``edata["edge_weights"]`` where they have
    weights, and ``edata["edge_attr"]`` where edges have features. The first has features as ``srcdata["x"]``; the last has as ``dstdata["y"]``
    the labels of the seeds.

    Raises:
        InputError: DGL is not installed.
    """
    dgl = import_dgl()
    batch = _of_tensors(batch)
    counts = batch.node_counts
    sizes = reversed(list(pairwise(counts)))
    blocks = [_dgl_block(dgl, hop, batch, before, after) for hop, (before, after) in zip(batch.blocks, sizes, strict=True)]
    for kind, rows in batch.x.items():
        blocks[0].srcnodes[kind].data["x"] = rows
    if batch.y is not None:
        blocks[-1].dstnodes[batch.seed_type].data["y"] = batch.y
    seeds = batch.seeds if batch.seed_type is None else {batch.seed_type: batch.seeds}
    return batch.node_ids, seeds, blocks


def _dgl_block(dgl: Any, hop: dict[Any, Any], batch: Any, before: dict[str, int], after: dict[str, int]) -> Any:
    """The blocks of a hop as one, from the nodes after it to those before it."""
    dtype = max((block.indices.dtype for block in hop.values()), key=lambda dtype: dtype.itemsize)
    columns = {
        relation: ("csc", (block.indptr.to(dtype), block.indices.to(dtype), block.indices.new_empty(0, dtype=dtype)))
        for relation, block in hop.items()
    }
    made = dgl.create_block(columns, num_src_nodes=after, num_dst_nodes=before)
    for kind, ids in batch.node_ids.items():
        if kind in made.srctypes:
            made.srcnodes[kind].data[dgl.NID] = ids[: after[kind]]
        if kind in made.dsttypes:
            made.dstnodes[kind].data[dgl.NID] = ids[: before[kind]]
    for relation, block in hop.items():
        made.edges[relation].data[dgl.EID] = batch.ids_of(relation, block.edge_ids)
        if block.weights is not None:
            made.edges[relation].data["edge_weights"] = block.weights
        if block.edge_attr is not None:
            made.edges[relation].data["edge_attr"] = block.edge_attr
    return made


def _of_tensors(batch: Any) -> Any:
    """The batch itself, or its arrays as tensors."""
    import torch

    return batch if all(isinstance(ids, torch.Tensor) for ids in batch.node_ids.values()) else batch.to("cpu")
