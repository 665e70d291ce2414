"""A callback that ends a run within seconds after SIGTERM: after the current batch, or in the middle of it if it takes over a second.

Lightning's handler only sets a flag, which its loops check between batches. It interrupts neither a wait for a batch nor a validation, however long they
last. With several ranks the handler also starts a collective, whatever the other ranks are doing.
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

_BATCH_S = 1.0  # seconds for the current batch to finish: only a checkpoint between two batches resumes bit-identically
_STUCK_S = 1.5  # seconds for the main thread to return from compiled code; it never returns from a collective whose other ranks have ended


class InterruptedByTermError(SIGTERMException):
    """An exception for a SIGTERM in the middle of a batch. Other ranks may be at another point, so no collective may be started after it."""


class Termination(Callback):
    """A callback that replaces Lightning's SIGTERM handler. It must be the first callback, and acts only in the main thread.

    Attributes:
        asked: whether SIGTERM has arrived. If so, later failures are consequences of it, for example a collective that fails because other ranks have ended.
    """

    asked: ClassVar[bool] = False

    def __init__(self) -> None:
        """Create the callback; the handler is installed in ``setup``."""
        self._trainer: Trainer | None = None
        self._thread: threading.Thread | None = None
        self._is_asked = self._is_ending = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Install the handler. It stays installed between ``fit`` and the test after it."""
        self._trainer = trainer
        if trainer.world_size > 1:
            trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = self._end_together  # type: ignore[method-assign]
        self._listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Install the handler again, since Lightning has installed its own."""
        self._listen()

    on_validation_start = on_test_start = on_predict_start = on_train_start

    def on_exception(self, *_: Any) -> None:
        """Cancel a pending interruption: the run is ending already, and may be writing a checkpoint."""
        self._is_ending = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
            return
        signal.signal(signal.SIGTERM, self._ask)
        if self._thread is None:
            read, write = os.pipe()
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._end_stuck, args=(read,), name="hoptrain-termination", daemon=True)
            self._thread.start()

    def _end_stuck(self, signals: int) -> None:
        """End the process if the main thread does not react.

        Python's signal handlers wait until compiled code returns; the thread that runs this method sees the signal at once.
        """
        while (came := os.read(signals, 16)) and signal.SIGTERM not in came:
            pass
        if not came:  # the pipe was closed, so there is no signal
            return
        Termination.asked = True
        if self._trainer is not None and self._trainer.strategy.launcher is not None:
            self._trainer.strategy.launcher.kill(signal.SIGTERM)
        time.sleep(_STUCK_S)
        if not self._is_ending:
            say_terminated()
            os._exit(128 + signal.SIGTERM)

    def _ask(self, number: int, frame: Any) -> None:
        """Handle SIGTERM: end the run soon. Rank 0 may send the signal a second time."""
        trainer = self._trainer
        if self._is_asked or trainer is None:
            return
        if self._is_ending:  # after a failure the run is already ending: SIGTERM ends the process at once
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        self._is_asked = True
        trainer._signal_connector.received_sigterm = trainer.world_size == 1
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, _BATCH_S)

    def _end_together(self) -> None:
        """If a rank got SIGTERM, end all ranks before the same batch, so that none is left in a collective. Lightning calls this before each batch."""
        trainer = self._trainer
        if trainer is not None and trainer.strategy.reduce_boolean_decision(self._is_asked, all=False):
            raise SIGTERMException


def _end(number: int, frame: Any) -> None:
    raise InterruptedByTermError


def say_terminated() -> None:
    """On one rank of each machine, print that the run was terminated."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print("hoptrain: terminated (SIGTERM)", file=sys.stderr, flush=True)
