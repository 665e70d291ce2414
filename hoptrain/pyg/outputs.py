"""Conversion of a sampled mini-batch to PyG's ``SamplerOutput`` or ``HeteroSamplerOutput``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from hoptrain.engine.arrays import Array
from hoptrain.samplers import HeteroMiniBatch
from hoptrain.samplers.batch.minibatch import Block, SampledBatch, dotted
from hoptrain.trainers.models.sums.edge_index import Hop, SampledEdges


def as_output(batch: SampledBatch, *, with_trees: bool, with_hop_counts: bool) -> Any:
    """Return a ``SamplerOutput``, or a ``HeteroSamplerOutput`` for a ``HeteroMiniBatch``, with copies of the batch's arrays as int64 tensors.

    Edges are in the order of hops, and within a hop in the order of destinations. Edge ids are CSC positions.

    Args:
        batch: Mini-batch with nested blocks, so that the outermost block has all edges.
        with_trees: Whether to set ``batch``, the index of the seed to whose tree a node belongs. It is read from the extra arrays ``trees``, for
            heterogeneous graphs ``trees.TYPE``.
        with_hop_counts: Whether to set ``num_sampled_nodes`` and ``num_sampled_edges``, the counts of each hop.
    """
    outermost = batch.hops[0]
    fields: dict[str, dict[Any, Any]] = {
        "node": {kind: _copy_int64(ids) for kind, ids in batch.nodes.items()},
        "row": {relation: _copy_int64(block.indices) for relation, block in outermost.items()},
        "col": {relation: _destinations(block) for relation, block in outermost.items()},
        "edge": {relation: _copy_int64(block.edge_ids) for relation, block in outermost.items()},
    }
    if with_trees:
        fields["batch"] = {kind: _copy_int64(batch.extra[dotted("trees", kind)]) for kind in batch.nodes}
    if with_hop_counts:
        counts, hops = batch.node_counts, batch.hops[::-1]
        fields["num_sampled_nodes"] = {kind: _differences([count[kind] for count in counts]) for kind in batch.nodes}
        fields["num_sampled_edges"] = {relation: _differences([hop[relation].num_edges for hop in hops]) for relation in outermost}
    output = HeteroSamplerOutput if isinstance(batch, HeteroMiniBatch) else SamplerOutput
    made = output(**{name: batch.joined(by_key) for name, by_key in fields.items()})
    if isinstance(made, SamplerOutput):
        made.blocks = KnownBlocks.of(batch, made)
    return made


class KnownBlocks(NamedTuple):
    """The blocks of a ``SamplerOutput``, in the form that ``SampledEdges`` takes.

    Attributes:
        row: sources of the output that has these blocks.
        indptr: offsets of the outermost block.
        hops: sizes of the blocks, outermost first.
    """

    row: Tensor
    indptr: Tensor
    hops: list[Hop]

    @classmethod
    def of(cls, batch: SampledBatch, output: SamplerOutput) -> KnownBlocks:
        """Return the blocks of a batch, from which ``output`` was made."""
        hops = [Hop(block.num_src, block.num_dst, block.num_edges) for block in batch.blocks]
        return cls(output.row, _copy_int64(batch.blocks[0].indptr), hops)


def put_blocks(made: Any, output: Any) -> None:
    """Replace ``edge_index`` of a batch by ``SampledEdges``, unless PyG has changed the sampled edges."""
    known = getattr(output, "blocks", None)
    if known is not None and known.row is output.row and "edge_index" in made:
        made.edge_index = SampledEdges(made.edge_index, known.indptr, known.hops)


def _destinations(block: Block) -> Tensor:
    """Return the destination of each edge, (M,)."""
    if isinstance(block.indptr, Tensor):
        return block.destinations()
    return torch.from_numpy(np.repeat(np.arange(block.num_dst), np.diff(block.indptr)))


def _differences(totals: list[int]) -> list[int]:
    """Return the difference between each total and the previous total; the first total is compared with 0."""
    return [after - before for before, after in pairwise([0, *totals])]


def _copy_int64(ids: Array | Tensor) -> Tensor:
    """Return ids as an int64 tensor with memory of its own.

    NumPy makes the copy: for arrays of this size torch's threads are no faster, and they wait for each other. A GPU tensor already belongs to the
    batch and is returned as it is if it is int64.
    """
    if isinstance(ids, Tensor):
        return ids.long()
    return torch.from_numpy(ids.astype(np.int64))
