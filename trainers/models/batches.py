"""A mini-batch as a model takes it: by its blocks, or as one graph of all hops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block, HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.batch.union import union_of
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.layered import Chunk, address_seed

ForwardInputs = Literal["blocks", "blocks+degrees", "edge_index"]
"""What a model's ``forward`` takes beside the features x (S, F) of the input nodes:

* ``blocks``: the batch's blocks, one a layer, the outermost first; it returns a row for each seed.
* ``blocks+degrees``: these, and (S,) in-degrees of the input nodes in the whole graph, float.
* ``edge_index``: (2, M) int64 edges between the input nodes, all hops together, as PyG's models do; of its rows those of the seeds count.
"""
HeteroForwardInputs = Literal["blocks", "edge_index"]
"""What the ``forward`` of a model of heterogeneous graphs takes:

* ``blocks``: features {type: (S_t, F_t)} of the types that have some, ids {type: (S_t,)} of the input nodes, and the batch's blocks, a dictionary a layer, the
  outermost first; it returns {type: (at least B, C)} or (B, C), a row for each seed, the seeds first.
* ``edge_index``: ``x_dict`` and ``edge_index_dict`` as PyG's models do, ``to_hetero(...)`` among them, of all hops together; it returns {type: (S_t, C)} or
  (S_t, C) of the seeds' type, of whose rows those of the seeds count.
"""


def apply_model(model: nn.Module, forward_inputs: ForwardInputs, x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
    """Return what ``model`` gives for the seeds of a batch of torch tensors: (B, C).

    Args:
        model: the model.
        forward_inputs: what it takes beside x.
        x: (S, F) float features of the input nodes.
        batch: the mini-batch.
        degrees: (S,) in-degrees of the input nodes in the whole graph, float.

    Raises:
        InputError: the model returns something else.
    """
    inputs = (
        (edge_index_of(batch),)
        if forward_inputs == "edge_index"
        else (batch.blocks,)
        if forward_inputs == "blocks"
        else (batch.blocks, degrees)
    )
    return _seed_rows(model, model(x, *inputs), batch.num_seeds, is_longer=forward_inputs == "edge_index")


def apply_hetero_model(model: nn.Module, forward_inputs: HeteroForwardInputs, x: Mapping[str, Tensor], batch: HeteroMiniBatch) -> Tensor:
    """Return what ``model`` gives for the seeds of a batch of torch tensors: (B, C). ``x`` holds the float features of the input nodes.

    Raises:
        InputError: the model returns something else.
    """
    if forward_inputs == "blocks":
        out = model(x, batch.node_ids, batch.blocks)
    else:
        graph = replace(batch, x=dict(x)).to_pyg()
        out = model(graph.x_dict, graph.edge_index_dict)
    by_type = isinstance(out, dict)
    of_seeds = out.get(batch.seed_type) if by_type else out
    return _seed_rows(
        model, of_seeds, batch.num_seeds, is_longer=by_type or forward_inputs == "edge_index", kind=f" of type {batch.seed_type}"
    )


def _seed_rows(model: nn.Module, out: object, num_seeds: int, is_longer: bool, kind: str = "") -> Tensor:
    """Return the rows of the seeds, where others may follow."""
    if not isinstance(out, Tensor):
        raise InputError(
            f"{type(model).__name__} returned a {type(out).__name__}: a model gives a tensor of scores, a row for each seed{kind}"
        )
    return out[:num_seeds] if is_longer else out


def edge_index_of(batch: MiniBatch) -> Tensor:
    """(2, M) int64, the edges of ``to_pyg()``: sources above destinations, local ids."""
    return batch.blocks[0].edge_index() if batch.nested else union_of(batch, ONLY).edge_index


def side_inputs(forward_inputs: ForwardInputs, block: Block, degrees: Tensor) -> tuple[Any, ...]:
    """Return what a layer takes beside the activations (num_src, C): the block and, where the model takes them, ``degrees`` (num_src,)."""
    return (block,) if forward_inputs == "blocks" else (block, degrees)


def chunk_of(batch: MiniBatch, number: int, degrees: Tensor, *, normalize: bool, forward_inputs: ForwardInputs = "blocks+degrees") -> Chunk:
    """Return what a pipeline moves for a chunk: its blocks and, where they were gathered, features and labels.

    The target is (labels, weights of the seeds or None, seeds of the step over all copies).

    Args:
        batch: the chunk's mini-batch, as tensors.
        number: of the chunk within the batch.
        degrees: (V,) in-degrees in the whole graph, float.
        normalize: divide each node's features by their sum.
        forward_inputs: what the model takes, its blocks among it.
    """
    degrees = degrees[batch.node_ids.long()]
    return Chunk(
        rows=[*(block.num_src for block in batch.blocks), batch.num_seeds],
        inputs=[side_inputs(forward_inputs, block, degrees[: block.num_src]) for block in batch.blocks],
        x=None if batch.x is None else to_input(batch.x, normalize),
        target=(batch.y, batch.seed_weights, batch.num_step_seeds),
        seed=address_seed(batch.seed, batch.epoch, batch.batch, number),
    )
