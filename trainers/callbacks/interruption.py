"""A Ctrl-C ends a run also where Python cannot raise it.

Python raises KeyboardInterrupt in whatever the main thread is in. In a ``__del__`` or in a callback of the garbage collector, of which torch and
Lightning have many, it is printed as ignored, and the run goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

_AGAIN_S = 0.05  # by then the main thread has left what could not raise it; if not, it comes here again


def raise_lost_interrupts() -> None:
    """Send this process the signal again whenever the exception was ignored."""
    sys.unraisablehook = _on_unraisable


def _on_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)
