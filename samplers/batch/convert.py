"""Conversion of a mini-batch into the objects of PyG and DGL, for code that was written for their loaders.

``SampledBatch`` calls these functions, so this module does not import it.
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
"""Names of batch attributes in PyG's loaders, by the name of the array in ``extra``."""


def to_pyg(batch: Any) -> Any:
    """Return a ``torch_geometric.data.Data`` like those of PyG's ``NeighborLoader``, on the batch's device; a ``HeteroMiniBatch`` gives a ``HeteroData``.

    With S nodes, B seeds, M edges and L hops it has

    * ``n_id`` (S,) int64 global ids; the first ``batch_size`` nodes are the seeds. PyG's ``input_id``, the positions of the seeds in the
      loader's input, is missing.
    * ``x`` (S, F) and ``y`` (B,) or (B, C), if they were gathered; ``y`` has only the labels of the seeds. ``x`` has the data set's dtype, as PyG
      keeps that of ``Data``; only ``int8`` and ``int4`` codes become float32. For PyG's layers use ``x.float()`` with uint8 or float16.
    * ``edge_index`` (2, M) int64 in local ids, and ``e_id`` (M,) int64, the ids of ``Graph.edge_ids``: these edges are ``data.edge_index[:, e_id]``
      of the ``Data`` from which the graph was built. If edge ids differ from CSC positions, they are looked up on the host.
    * ``edge_weight`` (M,) float32, if the blocks have weights (``Block.weights``). If several hops expanded a destination, the weights of each hop
      are divided by the number of these hops: the weighted sum over its edges is the mean of the hops' estimates.
    * ``edge_attr`` (M, D) edge features, if they were gathered.
    * ``num_sampled_nodes``, L + 1 numbers, and ``num_sampled_edges``, L numbers, from the seeds outward. PyG's ``trim_to_layer`` uses them, so that
      the last layer gets only the edges of the first hop.
    * ``seed_weights`` (B,), the weights of the seeds in the loss, if the batch has them.
    * the sampler's ``extra``, by its names; ``pairs`` and ``labels`` of links also as ``edge_label_index`` and ``edge_label``,
      ``trees`` and ``seed_times`` also as ``batch`` and ``seed_time``. If each seed has a subgraph of its own, ``batch`` (S,) is the index of
      the seed to whose subgraph each node belongs.

    A ``HeteroData`` has these for each type and relation. Only types with seeds have a ``batch_size``, and only ``seed_type`` has labels. An extra whose
    name ends in a type (``trees.paper``) belongs to that type, ``edge_label_index`` and ``edge_label`` belong to ``seed_relation``, and all others to
    the whole object. Extras have only PyG's names.

    An edge that a hop drew several times, with replacement, is repeated. An edge that several hops drew is repeated as often as in the hop
    that drew it most often; if hops draw with replacement, every draw of every hop is an edge. A model that applies all edges in
    every layer sees the union of the hops; if it needs the sample of each hop, use the blocks.

    Raises:
        InputError: neighbours are not connected by edges of the graph, as with PinSAGE, only some of the blocks have weights, or an extra has the
            name of another attribute.
    """
    from torch_geometric.data import Data, HeteroData

    batch = _as_tensors(batch)
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
            raise InputError(f"extra[{name!r}]: PyG's Data already has an attribute of this name; rename it in the sampler")
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
    """Return the node type of the seeds, or None if they may be of several types."""
    return "" if "" in batch.nodes else batch.seed_type


def _subgraphs(batch: Any) -> Any:
    """Return (S,) int64, the index of the seed to whose subgraph each node belongs; None if seeds have no subgraphs of their own."""
    if batch.subgraph_sizes is None:
        return None
    seeds = np.arange(batch.num_seeds)
    return as_tensor(np.concatenate([seeds, np.repeat(seeds, batch.subgraph_sizes)])).to(batch.node_ids.device)


def to_dgl(batch: Any) -> tuple[Any, Any, list[Any]]:
    """Return (input nodes, seeds, blocks) as DGL's ``NeighborSampler`` does; for a ``HeteroMiniBatch`` nodes and seeds are dictionaries by type.

    Blocks have ``dgl.NID``; ``dgl.EID``, the ids of ``Graph.edge_ids``; ``edata["edge_weights"]``, the name of DGL's ``LaborSampler``, if they have
    weights; and ``edata["edge_attr"]``, if edges have features. The first block has the features of the nodes, ``srcdata["x"]``. The last block has
    the labels of the seeds, ``dstdata["y"]``, and their weights in the loss, ``dstdata["seed_weights"]``. ``extra`` is not converted.

    Raises:
        InputError: DGL is not installed.
    """
    dgl, batch = import_dgl(), _as_tensors(batch)
    sizes = reversed(list(pairwise(batch.node_counts)))
    blocks = [_dgl_block(dgl, hop, batch, before, after) for hop, (before, after) in zip(batch.hops, sizes, strict=True)]
    kind = _seed_type(batch)
    for name, rows in batch.features.items() if blocks else ():
        blocks[0].srcnodes[name or "_N"].data["x"] = rows
    for name in batch.of_seeds if blocks else ():
        if getattr(batch, name) is not None:
            blocks[-1].dstnodes[kind or "_N"].data[name] = getattr(batch, name)
    return batch.node_ids, {kind: batch.seeds} if kind else batch.seeds, blocks


def _numbers_of_edges(block: Any, dtype: Any) -> Any:
    """Return the edge numbers 0, 1, 2, ... (M,) of a block. DGL assumes these if none are given, but its libxsmm kernels on a CPU read the array."""
    import torch

    return torch.arange(len(block.indices), dtype=dtype, device=block.indices.device)


def _dgl_block(dgl: Any, hop: dict[Any, Any], batch: Any, before: dict[str, int], after: dict[str, int]) -> Any:
    """Return the blocks of a hop as one DGL block. ``before`` has the number of destinations of each node type, ``after`` the number of sources."""
    dtype = max((block.indices.dtype for block in hop.values()), key=lambda dtype: dtype.itemsize)
    names = {relation: relation if any(relation) else ("_N", "_E", "_N") for relation in hop}  # DGL's names for a single type
    columns = {
        names[relation]: ("csc", (block.indptr.to(dtype), block.indices.to(dtype), _numbers_of_edges(block, dtype)))
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


def _as_tensors(batch: Any) -> Any:
    """Return the batch with its arrays as torch tensors, or the batch itself if they already are."""
    import torch

    return batch if all(isinstance(ids, torch.Tensor) for ids in batch.nodes.values()) else batch.to("cpu")
