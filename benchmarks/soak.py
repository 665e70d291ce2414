"""Does a training whose workers are killed and stopped at random all the time end with the weights of an undisturbed one, to the bit?

Training runs with two workers for ``--minutes``; every few seconds, once a step has been made since the last time, one of them is killed
(SIGKILL or SIGSEGV) or stopped (SIGSTOP). Then the same number of steps is made without workers and without faults, and the weights are compared.
If they differ, or if the training hangs or ends with an error, so does the benchmark. The faults are drawn by a seed, but they meet the training
wherever it happens to be.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import random
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.harness import Result
from hoptrain.engine import InputError

SEED = 1
_STALL_S = 8.0  # a replacement takes a second to start, on a busy machine several
_PAUSE_S = (1.0, 5.0)
_ACTIONS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)
_WORKERS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to train with faults (default 30; with --quick 0.5)")


def run(args: argparse.Namespace) -> Result:
    """Train with faults, then as many steps without, and compare."""
    if args.minutes <= 0:
        raise InputError(f"minutes is {args.minutes}: training takes time; give a number above 0")
    minutes = 0.5 if args.quick else args.minutes
    replaced = _Replacements()
    pool_log = logging.getLogger("hoptrain.engine.pool")
    pool_log.addHandler(replaced)
    pool_log.propagate = False  # a line for each of hundreds would drown the result
    try:
        with _Faults() as faults:
            weights, steps, seconds = _train(_WORKERS, faults.allow, seconds=60 * minutes)
    finally:
        pool_log.removeHandler(replaced)
        pool_log.propagate = True
    expected, _, _ = _train(0, lambda: None, steps=steps)
    different = [name for name, value in expected.items() if not (value == weights[name]).all()]
    if different:
        raise RuntimeError(f"after {steps} steps with faults these weights differ from those without: {', '.join(different)}")
    counts = {f"num_{number.name}": float(faults.sent.count(number)) for number in _ACTIONS}
    summary = {
        "minutes": seconds / 60,
        "steps": steps,
        **counts,
        "replaced": replaced.count,
        "equal_weights": len(expected),
    }
    return Result(records=[summary], summary=summary, seeds=[SEED])


def _train(
    num_workers: int, after_step: Callable[[], None], *, seconds: float = math.inf, steps: int = -1
) -> tuple[dict[str, Any], int, float]:
    """Train for so many seconds or steps; returns weights, steps and seconds."""
    import torch
    from pytorch_lightning import Callback, Trainer

    from hoptrain.samplers import NeighborSampler
    from hoptrain.trainers import GraphDataModule, NodeClassifier

    class Watch(Callback):
        begin = math.inf  # when the first step was done: before that workers start and nothing is disturbed

        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            after_step()
            self.begin = min(self.begin, time.monotonic())
            trainer.should_stop = time.monotonic() - self.begin > seconds

    torch.manual_seed(SEED)
    # Restarts in a row are unlimited: a fault may well meet the same worker again before it has made a batch.
    queue = {"stall_timeout": _STALL_S, "max_restarts": 1 << 30} if num_workers else {}
    feed = {"batch_size": 16, "num_workers": num_workers, "seed": SEED} | queue
    module = GraphDataModule("digits-knn", NeighborSampler([10, 10]), **feed)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch="sage", hidden_channels=64)
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on validation and logging, which are left out here
        trainer = Trainer(
            max_epochs=-1,
            max_steps=steps,
            accelerator="cpu",
            devices=1,
            callbacks=[watch],
            use_distributed_sampler=False,
            limit_val_batches=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
            default_root_dir=folder,
        )
        trainer.fit(model, module)
    return model.state_dict(), trainer.global_step, time.monotonic() - watch.begin


class _Replacements(logging.Handler):
    """Counts the workers that were replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "it is replaced" in record.getMessage()


class _Faults:
    """Sends a signal to one of this process's workers now and then, from a thread, while the context lasts."""

    def __init__(self) -> None:
        self.sent: list[signal.Signals] = []
        self._ended = threading.Event()
        self._allowed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hoptrain-soak", daemon=True)

    def allow(self) -> None:
        """A step was made: without any in between, faults that come faster than workers start would keep them from working."""
        self._allowed.set()

    def __enter__(self) -> _Faults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        draw = random.Random(SEED)
        while not self._ended.wait(draw.uniform(*_PAUSE_S)):
            number = draw.choice(_ACTIONS)
            workers = _workers() if self._allowed.is_set() else []
            self._allowed.clear()
            if workers and _signal_worker(draw.choice(workers), number):
                self.sent.append(number)


def _workers() -> list[int]:
    """Process ids of this process's workers."""
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended meanwhile
            children |= set(map(int, (thread / "children").read_text().split()))
    return sorted(pid for pid in children if _is_worker(pid))


def _is_worker(pid: int) -> bool:
    try:
        return b"hoptrain.engine.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _signal_worker(pid: int, number: signal.Signals) -> bool:
    """Send a signal if the process is a worker still: its number may belong to another by now."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _is_worker(pid):
            signal.pidfd_send_signal(process, number)
            return True
        return False
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
