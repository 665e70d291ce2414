"""Where Lightning's runs begin to be watched: the first failure of a rank ends all ranks, with its cause (``hoptrain.trainers.watchdog``)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from hoptrain.trainers.callbacks.network import is_one_machine, prepare_network
from hoptrain.trainers.callbacks.roll_call import meet, serve
from hoptrain.trainers.callbacks.stop_iteration import raise_stop_iterations
from hoptrain.trainers.watchdog.launcher import end_with_launcher
from hoptrain.trainers.watchdog.member import ADDRESS, Member, current


class RankWatch(Callback):
    """Watches a run with several ranks. One rank alone ends with torchrun, too, and loses no StopIteration of a hook (``stop_iteration.py``).

    In a script of one's own the watch begins when the ranks have met, and ends with ``fit``; ``hoptrain fit`` has it from a rank's first second.
    A rank that fails has 12 s to tell its error, and is killed then.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._own: Member | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin to watch, if nobody has."""
        end_with_launcher()
        raise_stop_iterations(trainer)
        member = current()
        if member is None and trainer.world_size > 1:
            host = "127.0.0.1" if is_one_machine(trainer) else os.environ.get("MASTER_ADDR", "127.0.0.1")
            self._own = member = Member(trainer.global_rank, trainer.world_size, host)
            member.join(trainer.strategy.broadcast(member.address))
            member.arrive()
        if member is not None:
            member.works_at(partial(_place, trainer))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Tell the others why this rank ends; it ends here if that is another's doing."""
        if (member := current()) is not None:
            member.fail(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Stop to watch, if this callback began it."""
        if self._own is not None:
            self._own.close()
            self._own = None


def _place(trainer: Trainer) -> str:
    """What a rank works on; a pipeline's strategy knows better where in it."""
    return getattr(trainer.strategy, "place", "") or f"epoch {trainer.current_epoch}, step {trainer.global_step}"


def watch_launch(trainer: Trainer) -> None:
    """Let the ranks that this trainer launches on this machine, if it does, be watched from their first second; others hear who does not come."""
    launcher = trainer.strategy.launcher
    if isinstance(launcher, _SubprocessScriptLauncher) and trainer.world_size > 1:
        prepare_network(trainer)
        kind = _WatchedLauncher if trainer.num_nodes == 1 else _MeetingLauncher
        trainer.strategy._launcher = kind(launcher.cluster_environment, launcher.num_processes, launcher.num_nodes)


class _MeetingLauncher(_SubprocessScriptLauncher):
    """Lightning's launcher, whose ranks do not wait for one that does not come."""

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Trainer | None = None, **kwargs: Any) -> Any:
        def met(*args: Any, **kwargs: Any) -> Any:
            kept = None if trainer is None else meet(trainer)  # noqa: F841 - rank 0's store, until the process group has it
            return function(*args, **kwargs)

        return super().launch(met, *args, trainer=trainer, **kwargs)


class _WatchedLauncher(_MeetingLauncher):
    """Without Lightning's observer, which kills all ranks when one has died, before anybody can say of what."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._launched: list[subprocess.Popen[bytes]] = []

    def launch(self, function: Callable[..., Any], *args: Any, trainer: Trainer | None = None, **kwargs: Any) -> Any:
        kept = None
        if not self.cluster_environment.creates_processes_externally:
            kept = serve(self.cluster_environment.main_address, self.cluster_environment.main_port, self.num_processes)  # noqa: F841 - see above
            if current() is None:
                Member(0, self.num_processes)
        if (member := current()) is not None:
            member.arrive()
        return super().launch(function, *args, trainer=trainer, **kwargs)

    def _call_children_scripts(self) -> None:
        if (member := current()) is None:
            raise RuntimeError("ranks are launched before their watch: call launch, which begins it")
        member.join(member.address)
        os.environ[ADDRESS] = member.address
        try:
            super()._call_children_scripts()
        finally:
            del os.environ[ADDRESS]
        member.launched({rank: process.pid for rank, process in enumerate(self.procs, 1)})
        self._launched, self.procs = self.procs, []  # the observer gets the empty list, and is content

    def kill(self, signum: int) -> None:
        """As Lightning does it, after a Ctrl-C or a SIGTERM."""
        for process in self._launched:
            process.send_signal(signum)
