"""Does a training whose workers and ranks are killed and stopped at random end with bit-identical weights to an undisturbed one?

``hoptrain fit`` runs for ``--minutes`` with two ranks and one worker each. Every few seconds, after a new checkpoint, the benchmark kills (SIGKILL or
SIGSEGV) or stops (SIGSTOP) a worker, a rank, or all processes at once. A worker must be replaced. A failed rank must end the training, with an error that
names it and without leaving a process; the benchmark then restarts the training from its newest checkpoint.

Afterwards the same number of steps is trained without faults and without workers, and the weights are compared. The benchmark fails if they differ, or if
a training hangs or ends in another way. The seed determines the sequence of faults, but not the step at which each one happens.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from hoptrain.benchmarks.common.harness import Result
from hoptrain.engine import InputError
from hoptrain.kernels.child_process import import_path, python

SEED = 1
_STEPS = 10  # steps between two checkpoints
PAUSE_S = (0.5, 3.0)
"""Shortest and longest pause in seconds between a checkpoint and the next fault."""
ACTIONS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)
"""Signals from which the signal of each fault is chosen at random."""
TARGETS = ("worker",) * 5 + ("rank 0", "rank 1", "all")
"""Processes from which the target of each fault is chosen at random; "worker" is repeated so that it is chosen more often."""
_HANG_S = 300.0  # seconds without a checkpoint that count as a hang; on a busy machine two ranks take a minute to start
_END_S = 60.0  # seconds allowed for the other ranks to end after one has failed; they usually take about 15 s
_OPTIONS = (
    "--data.dataset=digits-knn --data.sampler=NeighborSampler --data.sampler.fanouts=[10,10] --data.batch_size=16 --model.arch=sage "
    "--model.hidden_channels=64 --trainer.devices=2 --trainer.accelerator=cpu --trainer.max_epochs=-1 --trainer.limit_val_batches=0 "
    "--trainer.enable_progress_bar=false --trainer.enable_model_summary=false --checkpoint.monitor=null "
    f"--checkpoint.every_n_train_steps={_STEPS} --ckpt_path=last"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes of training with faults (default 30; with --quick 1)")


def run(args: argparse.Namespace) -> Result:
    """Train with faults, train the same number of steps without, and compare the weights."""
    if args.minutes <= 0:
        raise InputError(f"minutes is {args.minutes}: it must be above 0; give a longer time")
    seconds = 60 * (1.0 if args.quick else args.minutes)
    with tempfile.TemporaryDirectory() as folder:
        disturbed, undisturbed = (Training(Path(folder) / name) for name in ("disturbed", "undisturbed"))
        begin = time.monotonic()
        disturb(disturbed, seconds)
        minutes = (time.monotonic() - begin) / 60
        steps = int(disturbed.checkpoint()["global_step"]) + _STEPS
        disturbed.finish(steps, workers=1, patience=_HANG_S)
        undisturbed.finish(steps, workers=0, patience=10 * seconds + _HANG_S)
        weights, expected = (training.checkpoint()["state_dict"] for training in (disturbed, undisturbed))
    different = [name for name, value in expected.items() if not (value == weights[name]).all()]
    if different:
        raise RuntimeError(
            f"after {steps} steps, these weights of the training with faults differ from those of the training without: {', '.join(different)}"
        )
    counts = {f"num_{name}": float(count) for name, count in sorted(disturbed.sent.items())}
    summary = {"minutes": minutes, "steps": steps, "starts": disturbed.starts, **counts, "equal_weights": len(expected)}
    return Result(records=[summary], summary=summary, seeds=[SEED])


def disturb(training: Training, seconds: float) -> None:
    """Train for the given number of seconds, with faults."""
    draw = random.Random(SEED)
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if training.process is None:
                training.start(workers=1)
            training.wait_for_checkpoint()
            time.sleep(draw.uniform(*PAUSE_S))
            target, number = draw.choice(TARGETS), draw.choice(ACTIONS)
            if target == "all":
                training.kill()
            elif training.send(target, number, draw) and target != "worker":
                training.wait_for_end(f"{target} was ")
    finally:
        training.kill()


class Training:
    """A training with ``hoptrain fit`` that is restarted repeatedly in the same folder.

    Attributes:
        process: process of rank 0 while the training runs, otherwise None.
        starts: number of starts.
        sent: number of signals sent, by target and signal.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.sent: Counter[str] = Counter()
        self._folder, self._errors = folder, folder / "errors"
        self._seen = 0  # modification time in ns of the newest checkpoint at the start or at the last check

    def start(self, workers: int, *options: str) -> subprocess.Popen[bytes]:
        """Start from the newest checkpoint, or from the beginning if there is none. Returns the process of rank 0."""
        self._seen = self._written()
        queue = ["--data.worker_options.timeout=8", "--data.worker_options.max_restarts=1000000000"] if workers else []
        command = python(
            "-m",
            "hoptrain.trainers.cli",
            "fit",
            *_OPTIONS.split(),
            f"--data.num_workers={workers}",
            *queue,
            *options,
        )
        with open(self._errors, "wb") as errors:
            environment = os.environ | import_path() | {"OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=errors, env=environment, start_new_session=True
            )
        self.process, self.starts = process, self.starts + 1
        return process

    def _last(self) -> Path | None:
        return max(self._folder.glob("**/last.ckpt"), key=os.path.getmtime, default=None)

    def _written(self) -> int:
        path = self._last()
        return 0 if path is None else path.stat().st_mtime_ns

    def checkpoint(self) -> dict[str, Any]:
        """Return the newest checkpoint."""
        import torch  # imported here, since torch would slow down --help

        path = self._last()
        if path is None:
            raise RuntimeError(f"the training has written no checkpoint: {self._text()}")
        checkpoint: dict[str, Any] = torch.load(path, weights_only=True)
        return checkpoint

    def _text(self) -> str:
        return self._errors.read_text(errors="replace")[-4000:]

    def wait_for_checkpoint(self) -> None:
        """Wait until a new checkpoint is written. Otherwise faults that come faster than processes start would prevent any progress."""
        deadline = time.monotonic() + _HANG_S
        while (written := self._written()) == self._seen:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"the training ended although no signal was sent to it: {self._text()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the training has not written a checkpoint for {_HANG_S:.0f} s: {self._text()}")
            time.sleep(0.05)
        self._seen = written

    def send(self, target: str, number: signal.Signals, draw: random.Random) -> bool:
        """Send a signal to a random process of the kind ``target``, a worker or a rank; return False if no such process exists."""
        found = sorted(pid for pid, name in self._processes().items() if name == target)
        with suppress(ProcessLookupError):
            if found:
                os.kill(draw.choice(found), number)
                self.sent[f"{target.replace(' ', '_')}_{number.name}"] += 1
                return True
        return False

    def wait_for_end(self, cause: str) -> None:
        """Wait until no process of the training is left. The last line of its output must contain ``cause``."""
        deadline = time.monotonic() + _END_S
        while left := self._processes():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{', '.join(left.values())} still running {_END_S:.0f} s after a rank failed: {self._text()}")
            time.sleep(0.1)
        if self.process is not None:
            self.process.wait()
            self.process = None
        if cause not in self._text().strip().rpartition("\n")[2]:
            raise RuntimeError(f"the last line of the training's output does not contain '{cause}': {self._text()}")

    def kill(self) -> None:
        """Kill all processes at once, as if the machine failed."""
        if self.process is not None:
            self.sent["all_SIGKILL"] += 1
            for pid in self._processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def finish(self, steps: int, workers: int, patience: float, *options: str) -> None:
        """Train without faults until step ``steps``."""
        process = self.start(workers, f"--trainer.max_steps={steps}", *options)
        try:
            if process.wait(patience):
                raise RuntimeError(f"the training failed:\n{self._text()}")
            self.process = None
        finally:
            self.kill()

    def _processes(self) -> dict[int, str]:
        """Return the training's processes by id, each as "rank 0", "rank 1", "worker" or "watch" (a watchdog)."""
        found = {}
        first = self.process.pid if self.process else None
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.getsid(process.pid) != first or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                command = " ".join(process.cmdline())
                is_rank = "hoptrain.trainers.cli" in command and process.ppid() == first
                # another child with this command line is about to exec another program
                is_rank_1 = is_rank and process.environ().get("LOCAL_RANK") == "1"
                kind = "worker" if "hoptrain.engine.queue.worker" in command else "rank 1" if is_rank_1 else "watch"
                found[process.pid] = "rank 0" if process.pid == first else kind
        return found
