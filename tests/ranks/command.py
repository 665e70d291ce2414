"""The command line, run in this process, where slow imports are done, in forked ranks, or as the installed command."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from hoptrain.trainers.cli import main
from ranks import outputs_of
from ranks.forked import Forked
from ranks.on_machines import MAIN, START_S, launched

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


def in_ranks(*arguments, number=2, cwd=None):
    """Run the command in forked ranks, as a launcher starts them on one machine; return the output of rank 0, and stderr of all ranks."""
    shared = launched(number)
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(number)]
    ranks = [Forked(MAIN, *arguments, cwd=cwd, env=os.environ | shared | variables) for variables in own]
    outputs = outputs_of(ranks, START_S)
    return SimpleNamespace(out=outputs[0][0], err="".join(errors for _, errors in outputs))
