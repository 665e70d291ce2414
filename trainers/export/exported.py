"""Tracing of node classifiers with torch.export, for dynamic numbers of nodes and edges."""

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
"""Inputs of an exported program: features x (S, F) of the input nodes as stored, their in-degrees (S,) float32 in the whole graph, and a dict for each block.

A dict holds the block's ``indptr``, ``indices`` and, if there are any, ``weights`` and ``edge_attr``.
"""


class ExportedModel(NamedTuple):
    """An exported program.

    Attributes:
        exported: the program of torch.export.
        fewest: smallest number of seeds that it accepts: 1, or 2 if the code of a layer treats one row as a special case.
    """

    exported: ExportedProgram
    fewest: int


class Served(nn.Module):
    """A module that computes a model's logits from plain tensors: it builds the blocks and prepares the features."""

    def __init__(self, task: NodeClassifier) -> None:
        """Wrap the model of a task.

        Raises:
            InputError: the model takes other inputs than features and blocks.
        """
        super().__init__()
        if task.forward_inputs == "edge_index" or type(task).inputs is not NodeClassifier.inputs:
            what = "edge_index" if task.forward_inputs == "edge_index" else f"further inputs ({type(task).__name__})"
            raise InputError(
                f"export of a model that takes {what}: it must take features and blocks alone; train a model with --model.forward_inputs blocks"
            )
        self.model, self._takes, self._normalize = task.model, task.forward_inputs, task.normalize_features

    def forward(self, x: Tensor, degrees: Tensor, blocks: Sequence[Mapping[str, Tensor]]) -> Tensor:
        """Return the (B, C) logits of the seeds. The arguments are those of ``Inputs``."""
        made, num_src = [], x.shape[0]
        for arrays in blocks:
            made.append(Block(edge_ids=None, num_src=num_src, **arrays))
            num_src = made[-1].num_dst
        side = (degrees,) if self._takes == "blocks+degrees" else ()
        out: Tensor = self.model(to_input(x, self._normalize), made, *side)
        return out


def inputs_of(batch: MiniBatch, degrees: Tensor) -> Inputs:
    """Return a mini-batch of tensors as ``Inputs`` of a program; ``degrees`` (V,) are the in-degrees in the whole graph."""
    return batch.x, degrees[batch.node_ids.long()], [_arrays(block) for block in batch.blocks]


def _arrays(block: Block) -> dict[str, Tensor]:
    arrays = block.arrays() | ({} if block.edge_attr is None else {"edge_attr": block.edge_attr})
    return {name: array for name, array in arrays.items() if name != "edge_ids"}


@torch.no_grad()
def traced(served: Served, inputs: Inputs) -> ExportedModel:
    """Trace a model with example inputs, and return the program.

    Raises:
        InputError: torch.export cannot trace a layer.
    """
    sizes = tree_map(lambda array: {0: Dim.DYNAMIC}, inputs)
    reason: Exception | None = None
    for fewest in (1, 2):
        try:
            # The patch keeps torch from specialising on inputs with one row. Stderr is captured, since torch prints pages to it if tracing fails.
            with _SIZES.patch(backed_size_oblivious=fewest == 1), redirect_stderr(StringIO()):
                return ExportedModel(torch.export.export(served, inputs, dynamic_shapes=sizes, strict=False), fewest)
        except Exception as error:
            reason = error
    name = getattr(served.model, "arch", type(served.model).__name__)
    line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    raise InputError(
        f"{name} cannot be exported ({line[:150]}): torch.export cannot trace its code; choose another --model.arch"
    ) from reason
