"""An Adam optimiser for parameters with dense gradients and embeddings with sparse ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


class DenseAndSparseAdam(torch.optim.Adam):
    """An optimiser that applies torch's ``Adam`` to dense parameters and ``SparseAdam`` to embeddings.

    The two kinds of parameters are groups of one optimiser, since Lightning's automatic optimisation supports only one optimiser. SparseAdam updates
    only embedding rows that a step has used, and the moments of these rows. It has no weight decay.
    """

    def __init__(self, dense: Iterable[nn.Parameter], sparse: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        """Set up both parameter groups."""
        tables = list(sparse)
        groups: list[dict[str, Any]] = [{"params": list(dense)}, {"params": tables, "weight_decay": 0.0}]
        super().__init__(groups, lr=lr, weight_decay=weight_decay)
        self._of_tables: Any = torch.optim.SparseAdam(tables, lr=lr)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for table in self.param_groups[1]["params"]:  # Adam stores step counts as float32 tensors, in which SparseAdam would round
            if table in self.state:
                self.state[table]["step"] = int(self.state[table]["step"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update both parameter groups, and return the loss of ``closure``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = self.param_groups
        try:
            self.param_groups = groups[:1]
            super().step()
        finally:
            self.param_groups = groups
        # Adam and SparseAdam share one state dictionary, so it is saved and loaded like the state of a single optimiser.
        self._of_tables.state, self._of_tables.param_groups = self.state, groups[1:]
        self._of_tables.step()
        return loss
