"""Conversion of mini-batches to model inputs: blocks, or one graph of all hops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, Literal, get_args

from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.engine.errors import check_choice
from hoptrain.samplers import Block, HeteroMiniBatch, MiniBatch
from hoptrain.samplers.batch.minibatch import ONLY
from hoptrain.samplers.batch.union import union_of
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.models.layered import Chunk, address_seed
from hoptrain.trainers.models.sums.edge_index import SampledEdges

ForwardInputs = Literal["blocks", "blocks+degrees", "edge_index"]
"""Inputs of a model's ``forward`` in addition to the features x (S, F) of the input nodes:

* ``blocks``: the batch's blocks, one per layer, outermost first. The model returns one row per seed.
* ``blocks+degrees``: the blocks, and the in-degrees (S,) of the input nodes in the whole graph, as float.
* ``edge_index``: edges (2, M) int64 of all hops between the input nodes, as for PyG's models. Only the seeds' rows of the output are used.
"""
HeteroForwardInputs = Literal["blocks", "edge_index"]
"""Inputs of the ``forward`` of a model of heterogeneous graphs:

* ``blocks``: features {type: (S_t, F_t)} of the types with features, ids {type: (S_t,)} of the input nodes, and the batch's blocks, a dictionary
  per layer, outermost first. The model returns {type: (at least B, C)} or (B, C), with the seeds first.
* ``edge_index``: ``x_dict`` and ``edge_index_dict`` with the edges of all hops, as for PyG's models and those of ``to_hetero(...)``. The model
  returns {type: (S_t, C)}, or (S_t, C) of the seed type. Only the seeds' rows are used.
"""


def choose_inputs(model: Any, given: str | None, choices: Any) -> Any:
    """Return which inputs a model's ``forward`` takes: ``given``, or if that is None, the inputs that the names of its parameters suggest.

    Args:
        model: a custom model; None for a built-in one.
        given: one of the values of ``choices``, or None to choose by the parameter names.
        choices: ``ForwardInputs`` or ``HeteroForwardInputs``.

    Raises:
        InputError: ``given`` is unknown, or is given for a built-in model.
    """
    if given is not None:
        check_choice("forward_inputs", given, get_args(choices))
    if model is None and given not in (None, "blocks"):
        raise InputError(f"forward_inputs is {given} without model: it describes the inputs of your own model; give model, or leave it out")
    if model is None or given is not None:
        return given or "blocks"
    try:
        names = signature(model.forward).parameters
    except (AttributeError, TypeError, ValueError):  # the model has no ``forward``, or its signature is unknown
        return "blocks"
    return "edge_index" if any(name.startswith(("edge_index", "adj")) for name in names) else "blocks"


def apply_model(model: nn.Module, forward_inputs: ForwardInputs, x: Tensor, batch: MiniBatch, degrees: Tensor) -> Tensor:
    """Return the outputs (B, C) of ``model`` for the seeds of a batch of torch tensors.

    Args:
        model: the model.
        forward_inputs: inputs of the model in addition to x.
        x: float features (S, F) of the input nodes.
        batch: the mini-batch.
        degrees: in-degrees (S,) of the input nodes in the whole graph, as float.

    Raises:
        InputError: the model does not return a tensor.
    """
    inputs = (
        (edge_index_of(batch),)
        if forward_inputs == "edge_index"
        else (batch.blocks,)
        if forward_inputs == "blocks"
        else (batch.blocks, degrees)
    )
    try:
        out = model(x, *inputs)
    except Exception as error:
        if forward_inputs == "blocks":
            _note_blocks(model, error)
        raise
    return _seed_rows(model, out, batch.num_seeds, is_longer=forward_inputs == "edge_index")


def _note_blocks(model: nn.Module, error: Exception) -> None:
    """Add a hint to an error of a model that gets blocks, unless the name of its parameter shows that it expects them."""
    name = next((name for name in list(signature(model.forward).parameters)[1:2] if not name.startswith("block")), None)
    if name is not None:
        error.add_note(f"hoptrain passed the batch's blocks as {name!r}: if the model takes edge_index, give forward_inputs='edge_index'")


def apply_hetero_model(model: nn.Module, forward_inputs: HeteroForwardInputs, x: Mapping[str, Tensor], batch: HeteroMiniBatch) -> Tensor:
    """Return the outputs (B, C) of ``model`` for the seeds of a heterogeneous batch; ``x`` holds the input nodes' float features by type.

    Raises:
        InputError: the model does not return a tensor for the seed type.
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
    """Check that a model's output is a tensor, and return it; with ``is_longer`` only the first ``num_seeds`` rows."""
    if not isinstance(out, Tensor):
        raise InputError(
            f"{type(model).__name__} returned a {type(out).__name__}: it must return a tensor of logits, a row for each seed{kind}"
        )
    return out[:num_seeds] if is_longer else out


def edge_index_of(batch: MiniBatch) -> Tensor:
    """Return the edges (2, M) int64 of ``to_pyg()``: sources above destinations, as local ids. Layers of ``hoptrain.pyg.nn`` also get the blocks from it."""
    return SampledEdges.of(batch.blocks) if batch.nested else union_of(batch, ONLY).edge_index


def side_inputs(forward_inputs: ForwardInputs, block: Block, degrees: Tensor) -> tuple[Any, ...]:
    """Return a layer's inputs in addition to the activations (num_src, C): the block and, if the model takes them, ``degrees`` (num_src,)."""
    return (block,) if forward_inputs == "blocks" else (block, degrees)


def chunk_of(batch: MiniBatch, number: int, degrees: Tensor, *, normalize: bool, forward_inputs: ForwardInputs = "blocks+degrees") -> Chunk:
    """Convert a mini-batch to a pipeline's chunk, with its blocks and, if the batch has them, features and labels.

    The chunk's target is (labels, weights of the seeds or None, number of seeds of the step over all model replicas).

    Args:
        batch: the chunk's mini-batch, as torch tensors.
        number: number of the chunk within the batch.
        degrees: in-degrees (V,) in the whole graph, as float.
        normalize: divide each node's features by their sum.
        forward_inputs: inputs of the model in addition to the features; they must include blocks.
    """
    degrees = degrees[batch.node_ids.long()]
    return Chunk(
        rows=[*(block.num_src for block in batch.blocks), batch.num_seeds],
        inputs=[side_inputs(forward_inputs, block, degrees[: block.num_src]) for block in batch.blocks],
        x=None if batch.x is None else to_input(batch.x, normalize),
        target=(batch.y, batch.seed_weights, batch.num_step_seeds),
        seed=address_seed(batch.seed, batch.epoch, batch.batch, number),
    )
