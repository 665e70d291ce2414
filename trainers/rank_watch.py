"""The first failure ends all ranks, with its cause.

A rank that fails leaves the others in a collective that cannot finish. Depending on the backend they learn of it late or never, and then by a
broken connection, not by the cause. Here every rank writes a heartbeat into a store that all ranks share, and the text of its failure if it
fails; a thread of each looks at what the others wrote.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from pytorch_lightning import Callback, LightningModule, Trainer
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from hoptrain.engine.patience import Patience

_BEAT_S = 1.0
SILENCE_S = 10.0
"""A rank whose heartbeat stands still for so long is taken for dead."""
_GRACE_S = 3.0
"""How long a rank may take to end by itself once another has failed, and how long rank 0 stays for the others to read why."""
PATIENCE_S = SILENCE_S + 4 * _BEAT_S + 2 * _GRACE_S
"""How long a rank that has lost another waits to be told why: the watch ends it meanwhile, with the cause."""
_FAILED = "failed"
_DONE = "done"
_STORES: list[Store] = []
"""Kept until the process ends: the other ranks may look once more after this one has finished."""


class RankWatch(Callback):
    """Watches the other ranks of a run with several; does nothing with one."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._watch: _Watch | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin to watch, once."""
        if trainer.world_size > 1 and self._watch is None:
            started = _take_over(trainer)
            strategy = trainer.strategy  # a pipeline's knows where in it this rank works
            place = partial(getattr, strategy, "place", "")
            self._watch = _Watch(open_store(trainer), trainer.global_rank, trainer.world_size, started, place)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Tell the others why this rank ends."""
        if self._watch is not None:
            self._watch.fail(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


def _take_over(trainer: Trainer) -> Sequence[subprocess.Popen[bytes]]:
    """The ranks that Lightning started from this one (none under torchrun).

    Lightning's own observer kills all ranks when one has died, before anybody can say what it worked on; it gives up without processes.
    """
    observed: list[subprocess.Popen[bytes]] = getattr(trainer.strategy.launcher, "procs", [])
    started = list(observed)
    if started and trainer.strategy.launcher is not None:
        trainer.strategy.launcher.procs = started  # type: ignore[attr-defined]  # for Lightning to kill after a Ctrl-C
        observed.clear()
    return started


def open_store(trainer: Trainer) -> Store:
    """A store of its own on rank 0: the process group's is private, and busy during collectives."""
    is_host = trainer.global_rank == 0
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    server = TCPStore(host, 0, None, True, wait_for_workers=False) if is_host else None
    port = trainer.strategy.broadcast(server.port if server else 0)
    _STORES.append(server or TCPStore(host, port, None, False, timedelta(seconds=30), wait_for_workers=False))
    return _STORES[-1]


class _Watch:
    """One rank's heartbeat, which also tells what it works on (its ``place``), and its look at the others'."""

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        started: Sequence[subprocess.Popen[bytes]] = (),
        place: Callable[[], str] = str,
    ) -> None:
        self._store, self._rank, self._started, self._place = store, rank, started, place
        self._others = [r for r in range(world_size) if r != rank]
        self._lock = threading.Lock()  # a store's connection serves one request at a time
        self._done: set[int] = set()  # ranks that ended their work in order
        self._last: dict[int, str] = {}  # what the others worked on
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hoptrain-rank-watch", daemon=True)
        self._thread.start()

    def fail(self, exception: BaseException) -> None:
        """Write the cause, unless another rank was first, whose cause is then told here; this rank ends by itself."""
        self._stopped.set()
        is_asked_to_end = isinstance(exception, KeyboardInterrupt | SystemExit)
        what = "was asked to end" if is_asked_to_end else f"failed: {type(exception).__name__}: {exception}"
        with self._lock, suppress(RuntimeError):  # the store may have gone with rank 0
            cause = self._store.compare_set(_FAILED, "", f"rank {self._rank} {what}").decode()
            if not is_asked_to_end:
                is_ours = cause == f"rank {self._rank} {what}"
                self._say(f"rank {self._rank} fails, its error follows" if is_ours else f"rank {self._rank} ends, because {cause}")
            self._let_others_know()

    @staticmethod
    def _say(text: str) -> None:
        print(f"hoptrain: {text}", file=sys.stderr, flush=True)

    def _let_others_know(self) -> None:
        """Write that this rank knows the cause; the rank that has the store stays until all others do."""
        self._store.set(f"told {self._rank}", "")
        deadline = time.monotonic() + _GRACE_S
        others = [f"told {rank}" for rank in self._others if rank not in self._done]
        while self._rank == 0 and others and not self._store.check(others):
            if time.monotonic() > deadline:
                self._kill_started()
                break
            time.sleep(0.05)

    def _kill_started(self) -> None:
        """A rank that was stopped would stay, with its workers, for ever."""
        for process in self._started:
            process.kill()

    def stop(self) -> None:
        """This rank's work is done."""
        self._stopped.set()
        self._thread.join(2 * _BEAT_S)
        with self._lock, suppress(RuntimeError):
            self._store.set(f"alive {self._rank}", _DONE)

    def _run(self) -> None:
        seen: dict[int, tuple[str, Patience]] = {}
        beats = 0
        while not self._stopped.wait(_BEAT_S):
            beats += 1
            try:
                with self._lock:
                    cause = self._look(beats, seen)
            except RuntimeError:
                if 0 in self._done:
                    return
                cause = f"rank 0 is gone{self._last.get(0, '')}"
            if cause:
                self._end(cause)

    def _look(self, beats: int, seen: dict[int, tuple[str, Patience]]) -> str:
        """Write a heartbeat and read the others'; returns what is wrong, if anything."""
        self._store.set(f"alive {self._rank}", f"{beats} {self._place()}")
        if self._store.check([_FAILED]):
            return self._store.get(_FAILED).decode()
        for rank, process in enumerate(self._started, self._rank + 1):
            if process.poll():
                return f"rank {rank} is gone: it ended with code {process.returncode}{self._place_of(rank)}"
        for rank in self._others:
            if not self._store.check([f"alive {rank}"]):
                continue
            beat = self._store.get(f"alive {rank}").decode()
            if beat == _DONE:
                self._done.add(rank)
            elif rank not in seen or seen[rank][0] != beat:
                seen[rank] = beat, Patience(SILENCE_S)
                self._place_of(rank)
            elif seen[rank][1].is_over():
                return f"rank {rank} is gone: its heartbeat stopped {SILENCE_S:.0f} s ago{self._place_of(rank)}"
        return ""

    def _place_of(self, rank: int) -> str:
        """What another rank worked on at its last heartbeat, for a message."""
        if self._store.check([f"alive {rank}"]):
            place = self._store.get(f"alive {rank}").decode().partition(" ")[2]
            self._last[rank] = f" (last seen at {place})" if place else ""
        return self._last.get(rank, "")

    def _end(self, cause: str) -> None:
        """End this process: at once if it does not by itself. A thread cannot raise in a collective that waits for ever."""
        with self._lock, suppress(RuntimeError):
            self._store.compare_set(_FAILED, "", cause)
            self._let_others_know()
        if self._stopped.wait(_GRACE_S):
            return
        self._say(f"rank {self._rank} ends, because {cause}")
        os._exit(1)
