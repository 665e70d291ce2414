"""The command line, run in this process, where slow imports are done, or as the installed command with two ranks."""

import subprocess
import sys
from pathlib import Path

from hoptrain.trainers.cli import main
from ranks.on_machines import START_S

TWO_RANKS = ("--trainer.accelerator=cpu", "--trainer.devices=2")


def here(capsys, *arguments):
    """Run the command in this process; return its output and stderr."""
    code = main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert not code, printed.err
    return printed


def hoptrain(*arguments, cwd=None):
    """Run the installed command, and return its output."""
    command = [Path(sys.executable).with_name("hoptrain"), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
