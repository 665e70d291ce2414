"""Launch of a pipeline's processes on this machine without Lightning, for benchmarks and tests."""

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
    """An error for a process that failed, was killed or did not end in time. The message has the rank of the process and its last output."""


def run_ranks(function: Callable[..., Any], world_size: int, *arguments: Any, threads: int = 1, deadline_s: float = 600.0) -> list[Any]:
    """Call ``function(*arguments)`` in ``world_size`` new processes that are connected by torch.distributed (gloo).

    Args:
        function: function that other processes can import, so not one of the main script.
        world_size: number of processes.
        arguments: arguments of the function, which must be picklable.
        threads: torch threads per process.
        deadline_s: seconds after which the processes are killed.

    Returns:
        The function's return values by rank; they must be picklable.

    Raises:
        InputError: ``world_size`` is below 1, or the function belongs to the main script.
        RankError: a process failed, was killed, or did not end in time; all processes have been killed.
    """
    if world_size < 1:
        raise InputError(f"world_size is {world_size}: it must be at least 1; give the number of processes")
    if function.__module__ == "__main__":
        raise InputError(f"function is {function.__name__} of the main script: new processes cannot import it; define it in a module")
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
    """Wait until all processes have ended with code 0.

    Raises:
        RankError: a process failed, or the deadline has passed.
    """
    while any(codes := [process.poll() for process in processes]) or None in codes:
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None:
            text = (folder / f"errors{failed}").read_text(errors="replace")
            raise RankError(f"rank {failed} ended with code {codes[failed]}\n{text}".strip())
        if time.monotonic() > deadline:
            raise RankError(f"rank {codes.index(None)} did not end in time: raise deadline_s, or find out what the rank waits for")
        time.sleep(0.02)


def _rank(
    name: str, rank: str, world_size: int, threads: int, deadline_s: float, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    """Run the function in this new process, connected to the other ranks, and store its result."""
    torch.set_num_threads(threads)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{name}/meeting", rank=int(rank), world_size=world_size, timeout=timedelta(seconds=deadline_s)
    )
    (Path(name) / f"result{rank}").write_bytes(pickle.dumps(function(*arguments)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
