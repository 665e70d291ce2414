"""A Ctrl-C that arrives where Python cannot raise KeyboardInterrupt is raised later."""

import subprocess
import sys

SCRIPT = """
import time
from hoptrain.trainers.callbacks.interruption import raise_lost_interrupts

class Deaf:
    def __del__(self):
        raise KeyboardInterrupt

class Broken:
    def __del__(self):
        raise ValueError("of another kind")

raise_lost_interrupts()
del [Broken(), Deaf()][:]
time.sleep(60)
"""


def test_an_ignored_interrupt_is_raised_after_all():
    """A KeyboardInterrupt that Python had to ignore is raised later; other exceptions that cannot be raised are printed as before."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=110)
    assert "KeyboardInterrupt" in ended.stderr.splitlines()[-1]
    assert "of another kind" in ended.stderr
    assert "Deaf" not in ended.stderr
