"""Checkpoint files: found by name, written whole or not at all, and read with an answer to what may be wrong with them."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import socket
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.errors import explain_hint

_HOST = socket.gethostname()
_SURE_S = 60.0
"""A writer in another container may have this machine's name and process ids of its own."""
_REMEDY = "give a .ckpt file that a run has written" + explain_hint("checkpoint")


def last_checkpoint(*folders: str, below: str = "") -> str | None:
    """Return the newest ``last.ckpt`` in ``folders``, or in the folders under them that match ``below`` (``**`` stands for any), if there is one.

    Of a link its own time counts, since it may lead nowhere.
    """
    patterns = [os.path.join(glob.escape(folder), below, "last*.ckpt") for folder in folders]
    found = [path for pattern in patterns for path in glob.glob(pattern, recursive=True)]
    return max(found, key=lambda path: os.lstat(path).st_mtime, default=None)


class BestAndLast(ModelCheckpoint):
    """Lightning's, whose ``last.ckpt`` is that of the last time it looked, where Lightning's is that of the last time a score was better."""

    def _save_topk_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        super()._save_topk_checkpoint(trainer, monitor_candidates)
        if self.save_last:
            self._last_global_step_saved = trainer.global_step  # by which it sees whether the last one is due

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Name the best files so far by the folder that the run resumes in, and forget those that are gone.

        Lightning compares the folder's name with that in the checkpoint, and forgets the best so far if the folder was moved, or is named from another one.
        """
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        resumed = os.path.dirname(os.path.abspath(trainer.ckpt_path or ""))
        found = {}
        for callback in trainer.checkpoint_callbacks:
            state = checkpoint["callbacks"].get(callback.state_key)
            if isinstance(callback, ModelCheckpoint) and state is not None:
                is_own = callback.dirpath is not None and os.path.realpath(callback.dirpath) == os.path.realpath(resumed)
                found[callback.state_key] = _with_files_there(state, str(callback.dirpath) if is_own else None)
        # Ranks that differed here would wait for one another at the next checkpoint; only the first rank's machine need have the files.
        checkpoint["callbacks"].update(trainer.strategy.broadcast(found))


def _with_files_there(state: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """Return the state of a ``ModelCheckpoint`` without the files that are gone; those of its ``dirpath`` are looked for in ``folder`` if given."""

    def find(path: str) -> str:
        path = path if folder is None else os.path.join(folder, os.path.basename(path))
        return path if os.path.isfile(path) else ""

    best = find(state["best_model_path"])
    files = {name: find(state[name]) for name in ("kth_best_model_path", "last_model_path")}
    kept = {find(path): score for path, score in state["best_k_models"].items() if find(path)}
    score = state["best_model_score"] if best else None
    dirpath = state["dirpath"] if folder is None else folder
    return {**state, **files, "dirpath": dirpath, "best_model_path": best, "best_model_score": score, "best_k_models": kept}


def resume_in_folders_of(path: str, trainer: Trainer) -> None:
    """Let each ``ModelCheckpoint`` without a folder of its own write into the one that it wrote into before the checkpoint ``path``."""
    states = CheckpointFiles().load_checkpoint(path, weights_only=True).get("callbacks", {})
    for callback in trainer.checkpoint_callbacks:
        folder = states.get(callback.state_key, {}).get("dirpath") or ""
        if isinstance(callback, ModelCheckpoint) and callback.dirpath is None and os.path.isdir(folder):
            callback.dirpath = folder


class CheckpointFiles(TorchCheckpointIO):
    """Lightning's checkpoints, each written beside its place and then moved there: what was there before stays whole until then.

    Lightning writes into the system's temporary folder and moves the file from there. Where that is another disk, the move is a copy: a run
    that is killed in it, or a disk that is full, would leave half a ``last.ckpt`` in place of the old one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write ``path``, atomically.

        Raises:
            InputError: it cannot be written; the file that was there is still whole.
        """
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        content = io.BytesIO()  # torch ends the process where a file that it writes to itself has no room
        torch.save(checkpoint, content)
        write_whole(Path(path), content.getbuffer(), "checkpoint", "checkpoint.dirpath")

    def load_checkpoint(self, path: str | Path, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None) -> Any:
        """Read ``path``.

        Raises:
            InputError: it is damaged, holds code, or is no checkpoint.
        """
        check_whole(path)
        try:
            checkpoint = super().load_checkpoint(path, map_location, weights_only)
        except UnpicklingError as error:
            raise InputError(f"checkpoint {path} is damaged or holds more than weights and plain values: {_REMEDY}") from error
        except (EOFError, KeyError, RuntimeError, OSError, ValueError, zipfile.BadZipFile) as error:  # whatever torch makes of other files
            text = "it is of another format" if isinstance(error, KeyError) else " ".join(str(error).split())[:100] or "it is empty"
            raise InputError(f"checkpoint {path} is damaged ({text}): {_REMEDY}") from error
        if not isinstance(checkpoint, Mapping) or not {"state_dict", "pytorch-lightning_version"} <= checkpoint.keys():
            raise InputError(f"checkpoint {path} is a file of torch, but no checkpoint: {_REMEDY}")
        return checkpoint


def keep_checkpoints_whole(trainer: Any) -> None:
    """Let a trainer write and read its checkpoints by ``CheckpointFiles``, unless the user gave it another way."""
    strategy = getattr(trainer, "strategy", None)
    if strategy is not None and type(strategy.checkpoint_io) is TorchCheckpointIO:
        strategy.checkpoint_io = CheckpointFiles()


def check_whole(path: str | Path) -> None:
    """Compare the checksums in a checkpoint's archive with its contents, at some GB/s. torch does not: a flipped bit would become a weight.

    Files of other formats are left to whoever reads them.

    Raises:
        InputError: a part differs from its checksum, or the path is no regular file.
    """
    if "://" in str(path):
        return
    check_regular(path)
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:  # as a damaged directory has it
        raise InputError(f"checkpoint {path} is damaged ({' '.join(str(error).split())[:100]}): {_REMEDY}") from error
    if damaged is not None:
        raise InputError(f"checkpoint {path} is damaged (the checksum of {damaged} differs): {_REMEDY}")


def check_regular(path: str | Path) -> None:
    """Raise unless the path is a regular file: a FIFO would block.

    Raises:
        InputError: it is something else, or nothing.
    """
    if not os.path.isfile(path):
        what = "is no regular file" if os.path.lexists(path) else "is not there"
        raise InputError(f"checkpoint {path} {what}: give the path of a .ckpt file that a run has written, or last")


def write_whole(place: Path, content: bytes | memoryview, what: str, option: str) -> None:
    """Write a file beside its place and move it there.

    Args:
        place: the file.
        content: what it is to hold.
        what: it is, for people.
        option: that names its place.

    Raises:
        InputError: it cannot be written; what was there is still whole.
    """
    part = place.with_name(f".{place.name}.{_HOST}-{os.getpid()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_parts_of_dead_writers(place)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        kept = "; the one before is whole" if place.is_file() else ""
        raise InputError(f"{what} {place} cannot be written ({reason}){kept}: make room, or name another folder by {option}") from error
    finally:
        part.unlink(missing_ok=True)


def _remove_parts_of_dead_writers(place: Path) -> None:
    """Remove what killed processes of this machine have left of a file: a process writes at least once a minute while it lives."""
    for part in place.parent.glob(f".{glob.escape(place.name)}.{glob.escape(_HOST)}-*.part"):
        number = part.stem.rpartition("-")[2]
        with contextlib.suppress(OSError):  # another process may have been faster
            if number.isdecimal() and not Path(f"/proc/{number}").exists() and time.time() - part.stat().st_mtime > _SURE_S:
                part.unlink()
