"""SIGTERM ends a run within seconds: after the batch that is under way, or at once where that one takes long.

Lightning's handler notes the signal, and its loops look at the note between batches: a batch that is waited for, or a validation, goes on for as
long as it takes. With several ranks the handler also starts a collective, in whatever the others are in the middle of.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, ClassVar

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.exceptions import SIGTERMException

_BATCH_S = 1.0  # how long the batch that is under way may take; a checkpoint that is written between batches resumes bit for bit
_STUCK_S = 1.5  # how long the main thread may take to leave what it is in; in a collective whose other ranks have gone it never does


class InterruptedByTermError(SIGTERMException):
    """Raised wherever this rank was; with several ranks the others are elsewhere, and no collective is to be begun."""


class Termination(Callback):
    """ForwardInputs the place of Lightning's handler of SIGTERM, in the process's main thread. It is the first of the callbacks.

    Attributes:
        asked: whether the signal has come. What fails afterwards, as a collective does whose other ranks have ended, fails because of it.
    """

    asked: ClassVar[bool] = False

    def __init__(self) -> None:
        """Nothing was asked for yet."""
        self._trainer: Trainer | None = None
        self._thread: threading.Thread | None = None
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
        if threading.current_thread() is not threading.main_thread():  # no other may
            return
        signal.signal(signal.SIGTERM, self._ask)
        if self._thread is None:
            read, write = os.pipe()
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._end_stuck, args=(read,), name="hoptrain-termination", daemon=True)
            self._thread.start()

    def _end_stuck(self, signals: int) -> None:
        """Python's handler waits until the main thread is back from compiled code; this thread sees the signal at once."""
        while (came := os.read(signals, 16)) and signal.SIGTERM not in came:
            pass
        if not came:  # nobody can write any more
            return
        Termination.asked = True
        if self._trainer is not None and self._trainer.strategy.launcher is not None:
            self._trainer.strategy.launcher.kill(signal.SIGTERM)
        time.sleep(_STUCK_S)
        if not self._is_ending:
            say_terminated()
            os._exit(128 + signal.SIGTERM)

    def _ask(self, number: int, frame: Any) -> None:
        """End the run soon; a rank may be asked again, by rank 0."""
        trainer = self._trainer
        if self._is_asked or trainer is None:
            return
        if self._is_ending:  # by a failure
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self._is_asked = True
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


def say_terminated() -> None:
    """One line for all ranks."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print("hoptrain: terminated (SIGTERM)", file=sys.stderr, flush=True)
