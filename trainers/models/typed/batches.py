"""A mini-batch of a typed graph as a model takes it: by its blocks, or as PyG's dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from torch import Tensor, nn

from hoptrain.engine import InputError
from hoptrain.samplers import HeteroMiniBatch

TypedTakes = Literal["blocks", "edge_index"]
"""What the ``forward`` of a model of typed graphs takes:

* ``blocks``: features {type: (S_t, F_t)} of the types that have some, ids {type: (S_t,)} of the input nodes, and the batch's blocks, a dictionary a layer, the
  outermost first; it returns {type: (at least B, C)} or (B, C), a row for each seed, the seeds first.
* ``edge_index``: ``x_dict`` and ``edge_index_dict`` as PyG's models do, ``to_hetero(...)`` among them, of all hops together; it returns {type: (S_t, C)} or
  (S_t, C) of the seeds' type, of whose rows those of the seeds count.
"""


def apply_typed_model(model: nn.Module, takes: TypedTakes, x: Mapping[str, Tensor], batch: HeteroMiniBatch) -> Tensor:
    """What ``model`` returns for the seeds of a batch of torch tensors: (B, C). ``x`` holds the float features of the input nodes.

    Raises:
        InputError: the model returns something else.
    """
    if takes == "blocks":
        out = model(x, batch.node_ids, batch.blocks)
    else:
        graph = replace(batch, x=dict(x)).to_pyg()
        out = model(graph.x_dict, graph.edge_index_dict)
    is_longer = takes == "edge_index" or isinstance(out, dict)
    out = out.get(batch.seed_type) if isinstance(out, dict) else out
    if not isinstance(out, Tensor):
        raise InputError(
            f"{type(model).__name__} returned {type(out).__name__} for type {batch.seed_type}: a model gives a tensor of scores, a row for each seed"
        )
    return out[: batch.num_seeds] if is_longer else out
