"""A mini-batch as a model takes it: by its blocks, or as one graph."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import Block, MiniBatch
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.batch.union import union_of
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.layered import Chunk, address_seed

Takes = Literal["blocks", "blocks+degrees", "edge_index"]
"""What a model's ``forward`` takes beside the features x (S, F) of the input nodes:

* ``blocks``: the batch's blocks, one a layer, the outermost first; it returns a row for each seed.
* ``blocks+degrees``: these, and (S,) in-degrees of the input nodes in the whole graph, float.
* ``edge_index``: (2, M) int64 edges between the input nodes, all hops together, as PyG's models do; of its rows those of the seeds count.
"""


def apply_model(model: nn.Module, takes: Takes, x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
    """What ``model`` returns for the seeds of a batch of torch tensors: (B, C).

    Args:
        model: the model.
        takes: what it takes beside x.
        x: (S, F) float features of the input nodes.
        batch: the mini-batch.
        degrees: (S,) in-degrees of the input nodes in the whole graph, float.
    """
    inputs = (edge_index_of(batch),) if takes == "edge_index" else (batch.blocks,) if takes == "blocks" else (batch.blocks, degrees)
    out = model(x, *inputs)
    if not isinstance(out, Tensor):
        raise InputError(f"{type(model).__name__} returned a {type(out).__name__}: a model gives a tensor of scores, a row for each seed")
    return out[: batch.num_seeds] if takes == "edge_index" else out


def edge_index_of(batch: MiniBatch) -> Tensor:
    """(2, M) int64, the edges of ``to_pyg()``: sources above destinations, local ids."""
    return batch.blocks[0].edge_index() if batch.nested else union_of(batch, ONLY).edge_index


def side_inputs(takes: Takes, block: Block, degrees: Tensor) -> tuple[Any, ...]:
    """What a layer takes beside the activations (num_src, C): the block and, where the model takes them, ``degrees`` (num_src,)."""
    return (block,) if takes == "blocks" else (block, degrees)


def chunk_of(batch: MiniBatch, number: int, degrees: Tensor, *, normalize: bool, takes: Takes = "blocks+degrees") -> Chunk:
    """What a pipeline moves for a chunk: its blocks and, where they were gathered, features and labels.

    The target is (labels, weights of the seeds or None, seeds of the step over all copies).

    Args:
        batch: the chunk's mini-batch, as tensors.
        number: of the chunk within the batch.
        degrees: (V,) in-degrees in the whole graph, float.
        normalize: divide each vertex's features by their sum.
        takes: what the model takes, its blocks among it.
    """
    degrees = degrees[batch.node_ids.long()]
    return Chunk(
        rows=[*(block.num_src for block in batch.blocks), batch.num_seeds],
        inputs=[side_inputs(takes, block, degrees[: block.num_src]) for block in batch.blocks],
        x=None if batch.x is None else to_input(batch.x, normalize),
        target=(batch.y, batch.seed_weights, batch.num_step_seeds),
        seed=address_seed(batch.seed, batch.epoch, batch.batch, number),
    )
