"""A callback that prints where a run writes its files, what it has written, and how to resume it after an interruption."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException

from hoptrain.engine.errors import printable


class RunReport(Callback):
    """A callback that prints the folder of a training run when the run starts. If Ctrl-C or SIGTERM ends the run, it prints how to resume."""

    _folder = Path()

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Print the folder."""
        self._folder = Path(trainer.log_dir or trainer.default_root_dir)  # a collective: every rank must read it
        if _writes(trainer):
            print(printable(f"run folder: {_short(self._folder)}"), flush=True)

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        """Print how to resume."""
        if isinstance(exception, KeyboardInterrupt | SIGTERMException) and trainer.state.fn == "fit" and trainer.is_global_zero:
            print(printable(f"hoptrain: {_how_to_resume(trainer)}"), file=sys.stderr, flush=True)

    def print_files(self, trainer: Trainer) -> None:
        """Print which files the run has written, and where they are."""
        if not _writes(trainer):
            return
        found = [path for name in ("config.yaml", "metrics.csv", "events.out.tfevents.*") for path in sorted(self._folder.glob(name))[:1]]
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                found += [Path(path) for path in (callback.best_model_path, callback.last_model_path) if os.path.exists(path)]
        folder = self._folder.absolute()
        names = [str(path.absolute().relative_to(folder)) if path.absolute().is_relative_to(folder) else _short(path) for path in found]
        print(printable(f"written to {_short(self._folder)}: {', '.join(dict.fromkeys(names))}"), flush=True)


def _writes(trainer: Trainer) -> bool:
    return trainer.is_global_zero and not trainer.fast_dev_run  # type: ignore[attr-defined]


def _how_to_resume(trainer: Trainer) -> str:
    if any(isinstance(callback, OnExceptionCheckpoint) for callback in trainer.callbacks):  # type: ignore[attr-defined]
        return "to resume, run the same command again"
    paths = [callback.last_model_path for callback in trainer.checkpoint_callbacks if isinstance(callback, ModelCheckpoint)]
    if path := next((path for path in paths if os.path.exists(path)), ""):
        return f"to resume, run the same command with --ckpt_path last ({_short(Path(path))})"
    return "no checkpoint was written yet, so the run cannot be resumed; the first is written after the first validation"


def _short(path: Path) -> str:
    """Return a path, relative to the working directory if the path is below it."""
    return os.path.relpath(path) if path.absolute().is_relative_to(Path.cwd()) else str(path)
