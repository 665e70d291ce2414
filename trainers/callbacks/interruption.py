"""Make Ctrl-C end a run even if Python ignores the KeyboardInterrupt.

Python raises KeyboardInterrupt in whatever code the main thread is in. In a ``__del__`` method or a callback of the garbage collector (torch and
Lightning have many), Python prints the exception as ignored, and the run continues.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

_AGAIN_S = 0.05  # seconds before the signal is sent again: by then the main thread has usually left such code; if not, this repeats


def raise_lost_interrupts() -> None:
    """Install a hook that sends SIGINT to this process again whenever Python has ignored a KeyboardInterrupt."""
    sys.unraisablehook = _on_unraisable


def _on_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)
