"""A classifier of nodes as a program of tensors, by torch.export: numbers of nodes and edges are left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config
from torch.utils._pytree import tree_map

from hoptrain.engine import InputError
from hoptrain.samplers import Block, MiniBatch
from hoptrain.trainers.models.features import to_input
from hoptrain.trainers.tasks.nodes.task import NodeClassifier

_SIZES: Any = _config
Inputs = tuple[Tensor, Tensor, list[dict[str, Tensor]]]
"""What a program takes: x (S, F) features of the input nodes as stored, (S,) float32 in-degrees of these in the whole graph, and of each block the
arrays: ``indptr``, ``indices``, and where there are some ``weights`` and ``edge_attr``."""


class ExportedModel(NamedTuple):
    """``exported``, and the ``fewest`` seeds that it takes: 1, or 2 where a layer's code says something else of one row than of many."""

    exported: ExportedProgram
    fewest: int


class Served(nn.Module):
    """A model with what stands before it, from tensors alone."""

    def __init__(self, task: NodeClassifier) -> None:
        """Take a task's model, and how it is fed.

        Raises:
            InputError: it takes other things than blocks.
        """
        super().__init__()
        if task.forward_inputs == "edge_index" or type(task).inputs is not NodeClassifier.inputs:
            what = "edge_index" if task.forward_inputs == "edge_index" else f"more than features, as {type(task).__name__}'s"
            raise InputError(
                f"export of a model that takes {what}: what is exported takes features and blocks; give a model that takes these"
            )
        self.model, self._takes, self._normalize = task.model, task.forward_inputs, task.normalize_features

    def forward(self, x: Tensor, degrees: Tensor, blocks: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """(B, C) scores of the seeds; see ``Inputs``."""
        made, num_src = [], x.shape[0]
        for arrays in blocks:
            made.append(Block(edge_ids=None, num_src=num_src, **arrays))
            num_src = made[-1].num_dst
        side = (degrees,) if self._takes == "blocks+degrees" else ()
        out: Tensor = self.model(to_input(x, self._normalize), made, *side)
        return out


def inputs_of(batch: MiniBatch, degrees: Tensor) -> Inputs:
    """A mini-batch of tensors as a program takes it; ``degrees`` (V,) are those of the whole graph."""
    return batch.x, degrees[batch.node_ids.long()], [_arrays(block) for block in batch.blocks]


def _arrays(block: Block) -> dict[str, Tensor]:
    arrays = block.arrays() | ({} if block.edge_attr is None else {"edge_attr": block.edge_attr})
    return {name: array for name, array in arrays.items() if name != "edge_ids"}


@torch.no_grad()
def traced(served: Served, inputs: Inputs) -> ExportedModel:
    """The program, from an example of its inputs.

    Raises:
        InputError: a layer does what torch.export cannot follow.
    """
    sizes = tree_map(lambda array: {0: Dim.DYNAMIC}, inputs)
    reason: Exception | None = None
    for fewest in (1, 2):
        try:
            # Else one row is another case than several. Of what it cannot follow torch prints all that it has.
            with _SIZES.patch(backed_size_oblivious=fewest == 1), redirect_stderr(StringIO()):
                return ExportedModel(torch.export.export(served, inputs, dynamic_shapes=sizes, strict=False), fewest)
        except Exception as error:
            reason = error
    name = getattr(served.model, "arch", type(served.model).__name__)
    line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    raise InputError(f"{name} cannot be exported ({line[:150]}): torch.export does not follow its code; take another arch") from reason
