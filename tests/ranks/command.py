"""The command line: in this process, which has imported what takes seconds, or installed, in processes of its own, for two ranks."""

import subprocess
import sys
from pathlib import Path

from hoptrain.trainers.cli import main
from ranks.on_machines import START_S

TWO_RANKS = ("--trainer.accelerator=cpu", "--trainer.devices=2")


def here(capsys, *arguments):
    """What the command printed, and said."""
    code = main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert not code, printed.err
    return printed


def hoptrain(*arguments, cwd=None):
    """What the installed command printed."""
    command = [Path(sys.executable).with_name("hoptrain"), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
