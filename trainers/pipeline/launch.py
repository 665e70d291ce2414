"""Processes for a plan on this machine, without Lightning: for studies and tests."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hoptrain.engine import InputError
from hoptrain.kernels.child_process import python

_PROGRAM = """
import pickle, sys
with open(sys.argv[1] + "/job", "rb") as file:
    sys.path[:] = pickle.load(file)
    run, *job = pickle.load(file)
run(*sys.argv[1:], *job)
"""


class RankError(RuntimeError):
    """A process failed, was killed or did not end in time; the message has its rank and what it wrote last."""


def run_ranks(function: Callable[..., Any], world_size: int, *arguments: Any, threads: int = 1, deadline_s: float = 600.0) -> list[Any]:
    """Call ``function(*arguments)`` in ``world_size`` new processes that are joined by torch.distributed (gloo).

    Args:
        function: importable by name, not from the main script.
        world_size: number of processes.
        arguments: for the function, picklable.
        threads: torch's threads in each.
        deadline_s: seconds after which the processes are ended.

    Returns:
        What the function returned, by rank; it is pickled.

    Raises:
        InputError: no process, or a function that no other process can import.
        RankError: one failed or was killed, or they did not end in time; all have been ended.
    """
    if world_size < 1 or function.__module__ == "__main__":
        raise InputError(
            f"{world_size} processes for {function.__module__}.{function.__name__}: give one at least, and a module's function"
        )
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").write_bytes(pickle.dumps(sys.path) + pickle.dumps((_rank, world_size, threads, deadline_s, function, arguments)))
        processes = [_start(folder, rank) for rank in range(world_size)]
        try:
            _wait(processes, folder, time.monotonic() + deadline_s)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [pickle.loads((folder / f"result{rank}").read_bytes()) for rank in range(world_size)]


def _start(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    with open(folder / f"errors{rank}", "wb") as errors:
        return subprocess.Popen(python("-c", _PROGRAM, folder, rank), stderr=errors)


def _wait(processes: Sequence[subprocess.Popen[bytes]], folder: Path, deadline: float) -> None:
    """Until all have ended well.

    Raises:
        RankError: the first that did not, or the first that is late.
    """
    while any(codes := [process.poll() for process in processes]) or None in codes:
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None:
            text = (folder / f"errors{failed}").read_text(errors="replace").strip()
            raise RankError(f"rank {failed} ended with code {codes[failed]}:\n{text}")
        if time.monotonic() > deadline:
            raise RankError(
                f"rank {codes.index(None)} did not end in time: give more than it needs as deadline_s, or see what it waits for"
            )
        time.sleep(0.02)


def _rank(
    name: str, rank: str, world_size: int, threads: int, deadline_s: float, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """What a process does."""
    torch.set_num_threads(threads)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{name}/meeting", rank=int(rank), world_size=world_size, timeout=timedelta(seconds=deadline_s)
    )
    (Path(name) / f"result{rank}").write_bytes(pickle.dumps(function(*arguments)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
