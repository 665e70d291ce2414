"""SIGTERM ends a run within seconds: after the batch that is under way, or at once where that one takes long.

Lightning's handler notes the signal, and its loops look at the note between batches: a batch that is waited for, or a validation, goes on for as
long as it takes. With several ranks the handler also starts a collective, in whatever the others are in the middle of.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.exceptions import SIGTERMException

_BATCH_S = 1.0  # how long the batch that is under way may take; a checkpoint that is written between batches resumes to the bit


class InterruptedByTermError(SIGTERMException):
    """Raised wherever this rank was; with several ranks the others are elsewhere, and no collective is to be begun."""


class Termination(Callback):
    """Takes the place of Lightning's handler of SIGTERM, in the process's main thread. It is the first of the callbacks."""

    def __init__(self) -> None:
        """Nothing was asked for yet."""
        self._trainer: Trainer | None = None
        self._is_asked = self._is_ending = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Wait for the signal; between fit and its test, too."""
        self._trainer = trainer
        if trainer.world_size > 1:
            trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = self._end_together  # type: ignore[method-assign]
        self._listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning has set its own handler since."""
        self._listen()

    on_validation_start = on_test_start = on_predict_start = on_train_start

    def on_exception(self, *_: Any) -> None:
        """The run ends already, perhaps with a checkpoint: nothing is to disturb that."""
        self._is_ending = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():  # no other may
            signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, frame: Any) -> None:
        """End the run soon, with the ranks that were started from this one; a rank may be asked by rank 0 again."""
        trainer = self._trainer
        if self._is_asked or trainer is None:
            return
        if self._is_ending:  # by a failure
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self._is_asked = True
        if trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(signal.SIGTERM)
        trainer._signal_connector.received_sigterm = trainer.world_size == 1
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, _BATCH_S)

    def _end_together(self) -> None:
        """Called by Lightning before each batch of several ranks: all end there once one was asked to, and none is left in a collective."""
        trainer = self._trainer
        if trainer is not None and trainer.strategy.reduce_boolean_decision(self._is_asked, all=False):
            raise SIGTERMException


def _end(number: int, frame: Any) -> None:
    raise InterruptedByTermError
