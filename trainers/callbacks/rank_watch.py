"""A callback and launchers that start the failure detection of ``hoptrain.trainers.watchdog`` for the ranks of a Lightning run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from hoptrain.trainers.callbacks.network import is_one_machine, prepare_network
from hoptrain.trainers.callbacks.rendezvous import rendezvous, serve
from hoptrain.trainers.callbacks.stop_iteration import raise_stop_iterations
from hoptrain.trainers.watchdog.launcher import end_with_launcher
from hoptrain.trainers.watchdog.rank_agent import ADDRESS, RankAgent, current


class RankWatch(Callback):
    """A callback that ends all ranks when the first rank fails, and reports the cause on each rank. The failed rank has 12 s to print its error.

    In your own script, failure detection starts after the rendezvous of the ranks and ends with ``fit``; with ``hoptrain fit`` it starts as soon as a
    rank does. The callback also ends a rank when its torchrun ends, and turns a StopIteration of a hook into an error. It does both even with a single rank.
    """

    def __init__(self) -> None:
        """Create the callback; detection starts in ``setup``."""
        self._own: RankAgent | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Start the watchdog of this rank, unless the rank already has one."""
        end_with_launcher()
        raise_stop_iterations(trainer)
        agent = current()
        if agent is None and trainer.world_size > 1:
            host = "127.0.0.1" if is_one_machine(trainer) else os.environ.get("MASTER_ADDR", "127.0.0.1")
            self._own = agent = RankAgent(trainer.global_rank, trainer.world_size, host)
            agent.join(trainer.strategy.broadcast(agent.address))
            agent.arrive()
        if agent is not None:
            agent.works_at(partial(_position, trainer))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Report to the other ranks why this rank ends. If another rank's failure is the cause, the process ends here."""
        if (agent := current()) is not None:
            agent.fail(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """End the watchdog, if this callback started it."""
        if self._own is not None:
            self._own.close()
            self._own = None


def _position(trainer: Trainer) -> str:
    """Return what the rank is doing, for messages: epoch and step, or the strategy's ``place`` in a pipeline."""
    return getattr(trainer.strategy, "place", "") or f"epoch {trainer.current_epoch}, step {trainer.global_step}"


def watch_launch(trainer: Trainer) -> None:
    """Replace Lightning's launcher. Ranks that Lightning launches then have a watchdog from the start; other ranks have a rendezvous with a deadline."""
    launcher = trainer.strategy.launcher
    if isinstance(launcher, _SubprocessScriptLauncher) and trainer.world_size > 1:
        prepare_network(trainer)
        kind = _WatchedLauncher if trainer.num_nodes == 1 else _RendezvousLauncher
        trainer.strategy._launcher = kind(launcher.cluster_environment, launcher.num_processes, launcher.num_nodes)


class _RendezvousLauncher(_SubprocessScriptLauncher):
    """A launcher whose ranks wait for one another for a limited time (see ``rendezvous``)."""

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Trainer | None = None, **kwargs: Any) -> Any:
        def after_rendezvous(*args: Any, **kwargs: Any) -> Any:
            kept = None if trainer is None else rendezvous(trainer)  # noqa: F841 - keeps the store of rank 0 alive until the process group exists
            return function(*args, **kwargs)

        return super().launch(after_rendezvous, *args, trainer=trainer, **kwargs)


class _WatchedLauncher(_RendezvousLauncher):
    """A launcher that disables Lightning's observer, which would kill all ranks as soon as one dies, before its cause is reported."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._launched: list[subprocess.Popen[bytes]] = []

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Trainer | None = None, **kwargs: Any) -> Any:
        kept = None
        if not self.cluster_environment.creates_processes_externally:
            kept = serve(self.cluster_environment.main_address, self.cluster_environment.main_port, self.num_processes)  # noqa: F841 - see above
            if current() is None:
                RankAgent(0, self.num_processes)
        if (agent := current()) is not None:
            agent.arrive()
        return super().launch(function, *args, trainer=trainer, **kwargs)

    def _call_children_scripts(self) -> None:
        if (agent := current()) is None:
            raise RuntimeError("ranks cannot be launched without a watchdog: call launch, which starts it")
        agent.join(agent.address)
        os.environ[ADDRESS] = agent.address
        try:
            super()._call_children_scripts()
        finally:
            del os.environ[ADDRESS]
        agent.launched({rank: process.pid for rank, process in enumerate(self.procs, 1)})
        self._launched, self.procs = self.procs, []  # Lightning's observer gets an empty list of processes, so it kills nothing

    def kill(self, signum: int) -> None:
        """Send a signal to the launched ranks. Lightning calls this after a Ctrl-C or a SIGTERM."""
        for process in self._launched:
            process.send_signal(signum)
