"""Makes Ctrl-C end a run even where Python cannot raise KeyboardInterrupt.

Python raises it in whatever code the main thread runs. In a ``__del__`` or a callback of the garbage collector, of which torch and Lightning have
many, Python prints it as ignored, and the run continues.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

_AGAIN_S = 0.05  # by then the main thread has usually left that code; if not, the signal is ignored and sent again


def raise_lost_interrupts() -> None:
    """Send SIGINT to this process again whenever a KeyboardInterrupt was ignored."""
    sys.unraisablehook = _on_unraisable


def _on_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)
