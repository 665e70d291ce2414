"""Run one case as a program, ``PART CASE SYSTEM DATA SCRATCH``: PART is the module beside this one that has it, ``cases`` or ``ranks``."""

from __future__ import annotations

import faulthandler
import importlib
import signal
import sys
from pathlib import Path

from hoptrain.benchmarks.common.trial import DONE, RAISED, say


def main() -> None:
    """Run the case in this process."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # forks inherit it
    part, case, system, data, scratch = sys.argv[1:]
    cases = importlib.import_module(f"hoptrain.benchmarks.deadlocks.{part}").CASES  # the one alone: Lightning takes seconds, and memory
    try:
        cases[case](system, Path(data), Path(scratch))
    except Exception as error:
        say(f"{RAISED}{type(error).__name__}: {error}")
        raise
    say(DONE)


if __name__ == "__main__":
    main()
