"""A callback that warns of a training loss that is NaN or infinite."""

from __future__ import annotations

import logging
import math
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

_log = logging.getLogger(__name__)


class NonFiniteLossMonitor(Callback):
    """A callback that logs a warning once when the training loss is NaN or infinite. It checks at logged steps and at the end of epochs."""

    def setup(self, trainer: Trainer, module: LightningModule, stage: str) -> None:
        """Reset the callback, so that it may log one warning in this run."""
        self._has_said = False

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Check the loss of the step, if Lightning logs this step."""
        every = getattr(trainer, "log_every_n_steps", 0)  # getattr, since the type stubs of Trainer lack this attribute
        if every and trainer.global_step % every == 0:
            self._look(trainer, "train_loss_step")

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Check the loss of the previous epoch."""
        self._look(trainer, "train_loss")

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Check the loss of the last epoch."""
        self._look(trainer, "train_loss")

    def _look(self, trainer: Trainer, name: str) -> None:
        loss = None if self._has_said else trainer.callback_metrics.get(name)
        if loss is not None and not math.isfinite(loss):
            self._has_said = True
            _log.warning(
                f"the loss is NaN or infinite at step {trainer.global_step}, so the weights are unusable: lower model.lr, set "
                "trainer.gradient_clip_val, or normalise very large features and targets"
            )
