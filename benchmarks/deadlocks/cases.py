"""Cases of ``hoptrain bench deadlock`` in which a loader fails, one function for each case.

Every case runs in its own process, since it may hang: start this module as a program with the arguments ``CASE SYSTEM DATA SCRATCH``.
Cases with several ranks are in ``hoptrain.benchmarks.deadlocks.ranks``.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.common.trial import BEGIN, DONE, RAISED, say
from hoptrain.benchmarks.deadlocks.faults import ACTIONS, Numbers, die, two_threads
from hoptrain.benchmarks.deadlocks.loaders import BATCHES, SEED, features, open_loader, parse
from hoptrain.engine.queue.options import WorkerOptions
from hoptrain.engine.queue.pool import WorkerPool

EQUAL, DIFFERENT = "batches equal", "batches different"
"""Lines that a case prints if its batches are equal to those of a run without a fault, or different from them."""
_SHORT_STALL_S = 5.0  # timeout of workers; with hoptrain's default of two minutes a case would take as long
_OPEN_FILES = 256
_PLENTY = 1000


def _consume(batches: Iterable[Any]) -> list[bytes]:
    """Return a digest of each batch. Each batch is freed before the next one is requested."""
    return [_digest(batch) for batch in batches]


def _digest(batch: Any) -> bytes:
    digest = hashlib.blake2b(features(batch).numpy().tobytes())
    for array in batch.arrays().values() if hasattr(batch, "blocks") else ():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def _compare(system: str, data: Path, found: list[bytes]) -> None:
    """Print whether ``found``, the digests of whole epochs, equals those of a run without a fault.

    Only hoptrain promises equal batches. For other systems, only the number of batches is checked.
    """
    if parse(system)[0] == HOPTRAIN:
        loader = open_loader(HOPTRAIN, data, num_workers=0)
        expected = [digest for _ in range(len(found) // BATCHES) for digest in _consume(loader)]
        say(EQUAL if found == expected else DIFFERENT)
    elif len(found) % BATCHES:
        raise RuntimeError(f"{len(found)} batches arrived: not a multiple of the {BATCHES} batches of an epoch")


def _strike(action: str, system: str, data: Path, scratch: Path) -> None:
    """Run an epoch in which the fault ``action`` occurs in a worker."""
    options: dict[str, Any] = {}
    if system == HOPTRAIN and action in (
        "stop",
        "spin",
    ):  # more restarts, since on a busy machine the start of a worker may exceed the short timeout
        options = {"worker_options": WorkerOptions(timeout=_SHORT_STALL_S, max_restarts=10)}
    loader = open_loader(system, data, (action, str(scratch)), **options)
    say(BEGIN)
    _compare(system, data, _consume(loader))


def _threads(system: str, data: Path, scratch: Path) -> None:
    """Run a parallel region of OpenMP in the trainer, then one in a worker that uses two threads."""
    options: dict[str, Any] = {} if system == HOPTRAIN else {"worker_init_fn": _two_threads_in_worker}
    loader = open_loader(system, data, ("threads", str(scratch)), **options)
    say(BEGIN)
    two_threads()
    _compare(system, data, _consume(loader))


def _two_threads_in_worker(worker: int) -> None:
    import torch  # imported here to keep --help fast

    torch.set_num_threads(2)


def _idle(system: str, data: Path, scratch: Path) -> None:
    """Kill a worker between two epochs."""
    options: dict[str, Any] = {} if parse(system)[0] == HOPTRAIN else {"persistent_workers": True}
    loader = open_loader(system, data, **options)
    say(BEGIN)
    found = _consume(loader)
    os.kill(_children()[0], signal.SIGKILL)
    time.sleep(1)
    _compare(system, data, found + _consume(loader))


def _meanwhile(act: Callable[[], None], after: int, system: str, data: Path, scratch: Path) -> None:
    """Call ``act`` once ``after`` batches of an epoch have arrived, then take the remaining batches."""
    loader = open_loader(system, data)
    say(BEGIN)
    batches = iter(loader)
    found = _consume(islice(batches, after))
    act()
    _compare(system, data, found + _consume(batches))


def _kill_waiting() -> None:
    """Wait until the workers have filled the queue, then kill one of them."""
    time.sleep(2)
    os.kill(_children()[0], signal.SIGKILL)


def _again(system: str, data: Path, scratch: Path) -> None:
    """Kill workers at random moments, thirty times over six epochs."""
    loader = open_loader(system, data, worker_options=WorkerOptions(max_restarts=_PLENTY))
    rng = random.Random(SEED)
    say(BEGIN)
    found = []
    for epoch in range(6):
        for step, batch in enumerate(loader):
            found.append(_digest(batch))
            del batch
            if step % 8 == 7:
                time.sleep(rng.uniform(0, 0.02))
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(_children()), signal.SIGKILL)
        print("epoch", epoch, flush=True)
    _compare(system, data, found)


def _in_pool(state: str, system: str, data: Path, scratch: Path) -> None:
    """Kill a worker while it writes a batch into its slot, or after it has written the batch and before the trainer learns of it."""
    pool = WorkerPool(Numbers(state, scratch), 2)
    say(BEGIN)
    found = [int(arrays["values"].sum()) for arrays, _ in pool.run(0, range(BATCHES))]
    say(EQUAL if found == [1000 * step for step in range(BATCHES)] else DIFFERENT)


def _fill_shm() -> None:
    """Fill /dev/shm, as another program could."""
    with suppress(OSError), open("/dev/shm/ballast", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


def _keep(system: str, data: Path, scratch: Path) -> None:
    """Keep all batches of an epoch in a trainer that may have at most ``_OPEN_FILES`` files open."""
    loader = open_loader(system, data)
    _allow_files(_OPEN_FILES)
    say(BEGIN)
    _compare(system, data, _consume(list(loader)))


def _few_files(spare: int, fill_after: int, system: str, data: Path, scratch: Path) -> None:
    """Limit the trainer's open files to ``spare`` more than it has after ``fill_after`` batches, and take the remaining batches."""
    batches: Iterable[Any] = open_loader(system, data)
    say(BEGIN)
    found: list[bytes] = []
    if fill_after:
        batches = iter(batches)
        found = _consume(islice(batches, fill_after))
    _allow_files(len(os.listdir("/proc/self/fd")) + spare)
    _compare(system, data, found + _consume(batches))


def _allow_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def _leave(system: str, data: Path, scratch: Path) -> None:
    """Abandon twenty epochs after two batches each, then run an epoch to its end."""
    loader = open_loader(system, data)
    say(BEGIN)
    for _ in range(20):
        for step, _batch in enumerate(loader):
            if step == 1:
                break
    if (found := len(_consume(loader))) != BATCHES:
        raise RuntimeError(f"the epoch after the interrupted ones has {found} batches instead of {BATCHES}")


def _fork() -> None:
    """Fork the trainer, and let the child process exit normally."""
    child = os.fork()
    if child == 0:
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    print(f"the forked process ended with exit code {os.waitstatus_to_exitcode(status)}", flush=True)


def _exit(system: str, data: Path, scratch: Path) -> None:
    """Exit in the middle of an epoch without closing the loader."""
    global _left
    _left = iter(open_loader(system, data))
    say(BEGIN)
    next(_left)


_left: Iterator[Any]


def _killed(system: str, data: Path, scratch: Path) -> None:
    """Kill the trainer in the middle of an epoch, while one of its workers is in an endless loop."""
    batches = iter(open_loader(system, data, ("spin", str(scratch))))
    say(BEGIN)
    next(batches)
    time.sleep(2)
    say(DONE)
    die()


def _children() -> list[int]:
    """Return the process ids of this process's children."""
    found = [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return sorted(found)


CASES: Mapping[str, Callable[[str, Path, Path], None]] = {
    **{action: partial(_strike, action) for action in ACTIONS if action != "threads"},
    "threads": _threads,
    "idle": _idle,
    "waiting": partial(_meanwhile, _kill_waiting, 1),
    "again": _again,
    "writing": partial(_in_pool, "writing"),
    "written": partial(_in_pool, "written"),
    "full-at-start": partial(_meanwhile, _fill_shm, 0),
    "full-later": partial(_meanwhile, _fill_shm, 3),
    "keep": _keep,
    "files-at-start": partial(_few_files, 4, 0),
    "files-later": partial(_few_files, 1, 10),
    "leave": _leave,
    "fork": partial(_meanwhile, _fork, 3),
    "exit": _exit,
    "killed": _killed,
}


def main(case: str, system: str, data: str, scratch: str) -> None:
    """Run a case in this process."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # forked processes inherit the handler
    # The module of ranks is imported only for its cases: it imports Lightning, which takes seconds and memory.
    meet = CASES[case] if case in CASES else importlib.import_module("hoptrain.benchmarks.deadlocks.ranks").CASES[case]
    try:
        meet(system, Path(data), Path(scratch))
    except Exception as error:
        say(f"{RAISED}{type(error).__name__}: {error}")
        raise
    say(DONE)


if __name__ == "__main__":
    main(*sys.argv[1:])
