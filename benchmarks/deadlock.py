"""Which loaders hang when something goes wrong around them: torch's, PyG's, DGL's or hoptrain's?

Each case runs in its own processes with a time limit (``limit_s`` in the table), which is the same for all systems. Its outcome is one of:

* completed: all batches arrived, and all processes ended. For hoptrain the batches were also compared with those of an undisturbed run.
* clear error: the program ended by itself, with a message that names the cause.
* error: it ended by itself, but no message names the cause.
* error, then hung: the exception reached the top of the program, which then did not end.
* hung: it did not end within the limit. A program that still computes at the limit may continue until it has used that much CPU time.

The stacks of programs that hung are written to ``DIR/cases``. Cases that fill /dev/shm run in their own mount namespace; where none can be created, they
are skipped. In the cases "stop" and "spin" hoptrain's ``timeout`` is 5 seconds instead of 120, since it would otherwise exceed the limit.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common.harness import HOPTRAIN, Result
from hoptrain.benchmarks.common.trial import DONE, RAISED, Trial, run_trial
from hoptrain.benchmarks.deadlocks.cases import DIFFERENT, EQUAL
from hoptrain.benchmarks.deadlocks.loaders import SEED, make_dataset, parse
from hoptrain.engine import InputError
from hoptrain.kernels.child_process import python

BASELINES = ("torch", "PyG", "DGL")
ALL = (*BASELINES, HOPTRAIN)
_BOTH = ("torch", HOPTRAIN)
_SHM = (*ALL, "hoptrain, buffer_dir=/dev/shm")
_TIMEOUT = (*BASELINES, "torch, timeout=5", HOPTRAIN)
_HANGS = ("hung", "error, then hung")
_LIMIT_S = 20.0
QUICK_S = 10.0
"""Time limit of a case in seconds with ``--quick``."""
_DIED = r"worker.*(killed|exited)"
_FULL = r"No space left|shared memory|Bus error|are free"
_FILES = r"open files"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A kind of failure to provoke.

    Attributes:
        name: key of the function in ``hoptrain.benchmarks.deadlocks.cases``, or in ``ranks`` if several ranks train together.
        what: description for the table.
        cause: regular expression that matches a message which names the cause.
        systems: systems to which it can happen.
        quick: systems that are tested with ``--quick``.
        limit: time limit in seconds.
        full_shm: whether the case fills /dev/shm.
        code: expected exit code of a program that completed.
    """

    name: str
    what: str
    cause: str = "^$"
    systems: tuple[str, ...] = ALL
    quick: tuple[str, ...] = ()
    limit: float = _LIMIT_S
    full_shm: bool = False
    code: int = 0


CASES = (
    Case(name="race", what="4 ranks start workers right after a collective, for 120 s", limit=150),
    Case(name="threads", what="two OpenMP threads in a worker, after two in the trainer", quick=_BOTH),
    Case(name="full-at-start", what="/dev/shm is full before the first batch", cause=_FULL, systems=_SHM, full_shm=True),
    Case(name="full-later", what="/dev/shm fills up during an epoch", cause=_FULL, systems=_SHM, quick=_BOTH, full_shm=True),
    Case(name="files-at-start", what="the limit on open files is reached before the first batch", cause=_FILES),
    Case(name="files-later", what="the limit on open files is reached during an epoch", cause=_FILES),
    Case(name="keep", what="the program keeps all batches, with a limit of 256 open files", cause=_FILES),
    Case(name="stop", what="a worker is stopped (SIGSTOP)", cause="timed out", systems=_TIMEOUT, quick=_BOTH),
    Case(name="spin", what="a worker is stuck in a loop", cause="timed out", limit=45),
    Case(name="kill", what="a worker is killed while it samples", cause=_DIED, quick=(HOPTRAIN,)),
    Case(name="idle", what="a worker is killed between two epochs", cause=_DIED),
    Case(name="waiting", what="a worker is killed while its batches are ready", cause=_DIED),
    Case(
        name="event",
        what="a worker is killed while it holds the lock of workers_done_event",
        cause=_DIED,
        systems=BASELINES,
        quick=("torch",),
    ),
    Case(name="queue", what="a worker is killed while it holds the result queue's lock", cause=_DIED, systems=BASELINES),
    Case(name="writing", what="a worker is killed while it writes to its queue slot", cause=_DIED, systems=(HOPTRAIN,)),
    Case(name="written", what="a worker is killed before it announces its batch", cause=_DIED, systems=(HOPTRAIN,)),
    Case(name="again", what="workers are killed at 30 random moments", cause=_DIED, systems=(HOPTRAIN,), limit=120),
    Case(name="raise", what="the sampler raises in a worker", cause="simulated failure of the sampler"),
    Case(name="rank-raise", what="1 of 2 ranks raises in its step", cause="simulated failure of the model", limit=40),
    Case(name="rank-sampler", what="the sampler raises on 1 of 2 ranks", cause="simulated failure of the sampler", limit=40),
    Case(name="rank-kill", what="1 of 2 ranks is killed", cause=r"code -9|SIGKILL|rank 1 is gone", limit=40),
    Case(name="rank-stop", what="1 of 2 ranks is stopped (SIGSTOP)", cause="rank 1 is gone", limit=40),
    Case(name="rank-uneven", what="the seeds cannot be divided equally between 2 ranks", cause="uneven", limit=40),
    Case(name="leave", what="20 epochs are abandoned after two batches each"),
    Case(name="fork", what="the trainer forks in mid-epoch, and the fork exits"),
    Case(name="exit", what="the program ends in mid-epoch without close()"),
    Case(name="killed", what="the trainer is killed while a worker is stuck", code=-9),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--cases", nargs="+", metavar="CASE", choices=[case.name for case in CASES], help="cases to run (default: all)")
    parser.add_argument("--systems", nargs="+", metavar="SYSTEM", choices=ALL, help="loaders to test (default: all)")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="S",
        help="time limit of each case in seconds (default: 20, longer for cases with several ranks; with --quick 10)",
    )


def run(args: argparse.Namespace) -> Result:
    """Run all cases one after another; with ``--quick`` only a few whose outcome is certain.

    Raises:
        InputError: no case is left to run, or the time limit is not above 0.
    """
    if args.limit is not None and args.limit <= 0:
        raise InputError(f"--limit is {args.limit:g}: it must be above 0; give seconds")
    chosen = [
        (case, system)
        for case in CASES
        for system in (case.quick if args.quick else case.systems)
        if case.name in (args.cases or [case.name]) and parse(system)[0] in (args.systems or ALL)
    ]
    if not chosen:
        raise InputError("no case is left to run: no case matches all of --quick, --cases and --systems; leave one of them out")
    logs = args.out / "cases"
    logs.mkdir(parents=True, exist_ok=True)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        make_dataset(data)
        for case, system in chosen:
            records.append(tried(case, system, data, args.limit or (QUICK_S if args.quick else case.limit), logs))
            print(*(records[-1][name] for name in ("case", "system", "outcome")), sep=" | ", flush=True)
    return Result(records=records, summary=_summarize(records), seeds=[SEED])


def tried(case: Case, system: str, data: Path, limit: float, logs: Path) -> dict[str, Any]:
    """Run one case with one system, and return its record."""
    record = {"case": case.name, "what": case.what, "system": system, "limit_s": limit}
    prefix = _private_shm() if case.full_shm else []
    if prefix is None:
        return record | {"outcome": "skipped (no private mount namespace can be created here)"}
    log = logs / f"{case.name}-{re.sub('[^a-zA-Z0-9=]+', '-', system)}.log"
    with tempfile.TemporaryDirectory() as scratch:
        command = [*prefix, *python("-m", "hoptrain.benchmarks.deadlocks.cases", case.name, system, data, scratch)]
        trial = run_trial(command, limit, log)
    return record | {
        "outcome": outcome(case, trial),
        "seconds": trial.seconds,
        "batches": "equal" if EQUAL in trial.text else "different" if DIFFERENT in trial.text else None,
        "orphans": trial.orphans,
        "shm_files": trial.shm_files,
        "waits": trial.where or None,
    }


def _private_shm() -> list[str] | None:
    """Return a command prefix that mounts a private /dev/shm of 64 MiB, the size in a container, or None if that is not permitted."""
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    for flags in (["--mount"], ["--mount", "--user", "--map-root-user"]):
        try:
            subprocess.run(["unshare", *flags, "sh", "-c", mount], check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            continue
        return ["unshare", *flags, "sh", "-c", f'{mount} && exec "$@"', "sh"]
    return None


def outcome(case: Case, trial: Trial) -> str:
    """Return the outcome of a case as one of the terms that the module's docstring defines."""
    absent = re.search(rf"^{RAISED}InputError: (not installed.*)$", trial.text, re.MULTILINE)
    has = {line: re.search(f"^{line}", trial.text, re.MULTILINE) is not None for line in (DONE, RAISED)}
    if absent:
        return f"skipped ({absent[1]})"
    if not trial.ended:
        return "error, then hung" if has[RAISED] else "hung"
    if trial.code == case.code and has[DONE]:
        return "completed"
    return "clear error" if re.search(case.cause, trial.text) else "error"


def _summarize(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    own, baselines = ([record for record in records if (parse(record["system"])[0] == HOPTRAIN) is mine] for mine in (True, False))
    return {
        "cases": sum(not record["outcome"].startswith("skipped") for record in records),
        "hoptrain_hangs": sum(record["outcome"] in _HANGS for record in own),
        "peer_hangs": sum(record["outcome"] in _HANGS for record in baselines),
        "hoptrain_different": sum(record.get("batches") == "different" for record in own),
        "hoptrain_orphans": sum(record.get("orphans", 0) for record in own),
        "peer_orphans": sum(record.get("orphans", 0) for record in baselines),
    }
