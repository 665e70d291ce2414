"""A training step on each mini-batch, to compare sources of features by the speed of a training and not of the loader alone."""

from __future__ import annotations

from typing import Any

from hoptrain.benchmarks.common.options import SEED
from hoptrain.engine import Dataset


class Steps:
    """A training of GraphSAGE with Adam, with the same initial weights for all systems; a call takes one step."""

    def __init__(self, data: Dataset, num_hops: int, width: int) -> None:
        """Build the model with ``width`` hidden channels."""
        import torch  # imported here, so that parts that only count do not load torch

        from hoptrain.trainers.models import GNN

        torch.manual_seed(SEED)
        self._model = GNN("sage", data.num_features, width, data.num_classes, num_hops).train()
        self._degrees = torch.empty(0)  # GraphSAGE does not use degrees
        self._optimizer = torch.optim.Adam(self._model.parameters())

    def __call__(self, made: Any) -> None:
        """Train on a mini-batch."""
        import torch
        import torch.nn.functional as F

        batch = made.to("cpu")
        loss = F.cross_entropy(self._model(batch.x.float(), batch.blocks, self._degrees), batch.y.long())
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()
