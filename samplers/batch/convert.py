"""A mini-batch as the objects of PyG and DGL, for code that was written for their loaders.

A batch is a ``SampledBatch`` here, which is not imported: its methods call these functions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from hoptrain.engine import InputError
from hoptrain.samplers.batch.dgl_compat import import_dgl
from hoptrain.samplers.batch.transfer import as_tensor
from hoptrain.samplers.batch.union import union_of

NAMES_IN_PYG = {"pairs": "edge_label_index", "labels": "edge_label", "trees": "batch", "seed_times": "seed_time"}
"""Names of extras in the batches of PyG's loaders."""


def to_pyg(batch: Any) -> Any:
    """Return a ``torch_geometric.data.Data`` like those of PyG's ``NeighborLoader``, on the batch's device; a ``HeteroMiniBatch`` gives a ``HeteroData``.

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
    * the sampler's ``extra``, by its names; ``pairs`` and ``labels`` of links also as ``edge_label_index`` and ``edge_label``,
      ``trees`` and ``seed_times`` also as ``batch`` and ``seed_time``. Where each seed has a subgraph of its own, ``batch`` (S,) is the number of
      the seed whose subgraph a node is in.

    A ``HeteroData`` has these for each type and relation; only types with seeds have a ``batch_size``, only ``seed_type`` has labels. An extra whose
    name ends in a type (``trees.paper``) belongs to that type, ``edge_label_index`` and ``edge_label`` belong to ``seed_relation``, all others to the whole;
    they have PyG's names alone.

    An edge that a hop drew several times, with replacement, stands there as often. One that several hops drew stands there as often as the hop
    that drew it most often had it; where hops draw with replacement, every draw of every hop is an edge. A model that applies all edges in
    every layer sees the union of the hops; one that has to see each hop's own sample takes the blocks.

    Raises:
        InputError: neighbours that are not joined by edges of the graph, as PinSAGE's; blocks of which some have weights and some have none;
            an extra with the name of something else.
    """
    from torch_geometric.data import Data, HeteroData

    batch = _of_tensors(batch)
    is_hetero = "" not in batch.nodes
    data, counts = HeteroData() if is_hetero else Data(), batch.node_counts
    for kind, ids in batch.nodes.items():
        numbers = [of_hop[kind] for of_hop in counts]
        own = data[kind] if is_hetero else data
        _put(own, x=batch.features.get(kind), y=batch.y if kind == _seed_type(batch) else None, n_id=ids.long(), num_nodes=len(ids))
        own.num_sampled_nodes = [numbers[0], *(after - before for before, after in pairwise(numbers))]
        _put(own, batch_size=numbers[0] or None)
    for relation in batch.relations:
        edges, own = union_of(batch, relation), data[relation] if is_hetero else data
        _put(own, edge_index=edges.edge_index, e_id=batch.ids_along(relation, edges.places), num_sampled_edges=edges.counts)
        _put(own, edge_weight=edges.weights, edge_attr=edges.edge_attr)
    if is_hetero:
        _put_typed_extras(data, batch)
        return data
    _put(data, seed_weights=batch.seed_weights, batch=_subgraphs(batch))
    for name, value in batch.extra.items():
        if name in data:
            raise InputError(f"extra[{name!r}] has the name of something else in PyG's Data: rename it in the sampler")
        data[name] = data[NAMES_IN_PYG.get(name, name)] = _as_wide(value)
    return data


def _put(store: Any, **values: Any) -> None:
    for name, value in values.items():
        if value is not None:
            store[name] = value


def _put_typed_extras(data: Any, batch: Any) -> None:
    for name, value in batch.extra.items():
        what, _, kind = name.partition(".")
        own = data[kind] if kind else data[batch.seed_relation] if what in ("pairs", "labels") and batch.seed_relation else data
        own[NAMES_IN_PYG.get(what, what)] = _as_wide(value)


def _as_wide(value: Any) -> Any:
    return value if value.is_floating_point() else value.long()


def _seed_type(batch: Any) -> str | None:
    """Return the node type of the seeds; None of several."""
    return "" if "" in batch.nodes else batch.seed_type


def _subgraphs(batch: Any) -> Any:
    """Return (S,) int64, the seed whose subgraph each node is in; None where a batch is one graph."""
    if batch.subgraph_sizes is None:
        return None
    seeds = np.arange(batch.num_seeds)
    return as_tensor(np.concatenate([seeds, np.repeat(seeds, batch.subgraph_sizes)])).to(batch.node_ids.device)


def to_dgl(batch: Any) -> tuple[Any, Any, list[Any]]:
    """Return (input nodes, seeds, blocks) as DGL's ``NeighborSampler`` does; of a ``HeteroMiniBatch`` nodes and seeds are dictionaries by type.

    Blocks carry ``dgl.NID``, ``dgl.EID``, the ids of ``Graph.edge_ids``, ``edata["edge_weights"]`` where they have weights, under the name that DGL's
    ``LaborSampler`` gives them, and ``edata["edge_attr"]`` where edges have features. The first has the nodes' features as ``srcdata["x"]``; the
    last has as ``dstdata`` the labels of the seeds, ``y``, and their weights in the loss, ``seed_weights``. The sampler's ``extra`` stays in the batch.

    Raises:
        InputError: DGL is not installed.
    """
    dgl, batch = import_dgl(), _of_tensors(batch)
    sizes = reversed(list(pairwise(batch.node_counts)))
    blocks = [_dgl_block(dgl, hop, batch, before, after) for hop, (before, after) in zip(batch.hops, sizes, strict=True)]
    kind = _seed_type(batch)
    for name, rows in batch.features.items() if blocks else ():
        blocks[0].srcnodes[name or "_N"].data["x"] = rows
    for name in batch.of_seeds if blocks else ():
        if getattr(batch, name) is not None:
            blocks[-1].dstnodes[kind or "_N"].data[name] = getattr(batch, name)
    return batch.node_ids, {kind: batch.seeds} if kind else batch.seeds, blocks


def _dgl_block(dgl: Any, hop: dict[Any, Any], batch: Any, before: dict[str, int], after: dict[str, int]) -> Any:
    """Return the blocks of a hop as one, from the nodes after it to those before it."""
    dtype = max((block.indices.dtype for block in hop.values()), key=lambda dtype: dtype.itemsize)
    names = {relation: relation if any(relation) else ("_N", "_E", "_N") for relation in hop}  # DGL's where there is one type
    columns = {
        names[relation]: ("csc", (block.indptr.to(dtype), block.indices.to(dtype), block.indices.new_empty(0, dtype=dtype)))
        for relation, block in hop.items()
    }
    num_src, num_dst = ({kind or "_N": number for kind, number in counts.items()} for counts in (after, before))
    made = dgl.create_block(columns, num_src_nodes=num_src, num_dst_nodes=num_dst)
    for kind, ids in batch.nodes.items():
        if (name := kind or "_N") in made.srctypes:
            made.srcnodes[name].data[dgl.NID] = ids[: after[kind]]
        if name in made.dsttypes:
            made.dstnodes[name].data[dgl.NID] = ids[: before[kind]]
    for relation, block in hop.items():
        edges = made.edges[names[relation]].data
        edges[dgl.EID] = batch.ids_along(relation, block.edge_ids)
        for name, rows in (("edge_weights", block.weights), ("edge_attr", block.edge_attr)):
            if rows is not None:
                edges[name] = rows
    return made


def _of_tensors(batch: Any) -> Any:
    """Return the batch itself, or with its arrays as tensors."""
    import torch

    return batch if all(isinstance(ids, torch.Tensor) for ids in batch.nodes.values()) else batch.to("cpu")
