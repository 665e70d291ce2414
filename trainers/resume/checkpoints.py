"""Checkpoint files: functions that find the last checkpoint, write checkpoints atomically, and report why a checkpoint cannot be read."""

from __future__ import annotations

import contextlib
import errno
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
"""Age in seconds after which a temporary file counts as abandoned. The process id in its name is not enough: the writer may run in another container."""
_REMEDY = "give another .ckpt file" + explain_hint("checkpoint")


def last_checkpoint(*folders: str, below: str = "") -> str | None:
    """Return the newest ``last*.ckpt`` in ``folders``, or in their subfolders that match the pattern ``below``, or None.

    The age of a symbolic link is that of the link itself, since its target may be missing.
    """
    patterns = [os.path.join(glob.escape(folder), below, "last*.ckpt") for folder in folders]
    found = [path for pattern in patterns for path in glob.glob(pattern, recursive=True)]
    return max(found, key=lambda path: os.lstat(path).st_mtime, default=None)


class BestAndLast(ModelCheckpoint):
    """A ``ModelCheckpoint`` whose ``last.ckpt`` is always the latest state. Lightning's class writes this file only when the metric has improved."""

    def set_monitor(self, monitor: str, mode: str) -> None:
        """Set the metric that decides which checkpoint is best, and whether its best value is the min or the max."""
        self.monitor, self.mode = monitor, mode
        self.kth_value = torch.tensor(torch.inf if mode == "min" else -torch.inf)

    def _save_topk_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        super()._save_topk_checkpoint(trainer, monitor_candidates)
        if self.save_last:
            # Lightning compares this step with the current one to decide whether last.ckpt is due
            self._last_global_step_saved = trainer.global_step

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Restore the paths of the best checkpoints in the folder of the resumed run, without files that are missing.

        Lightning compares the folder's name with the name in the checkpoint. So it forgets the best checkpoint if the folder was moved, or if its name is
        relative and the working directory has changed.
        """
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        resumed = os.path.dirname(os.path.abspath(trainer.ckpt_path or ""))
        found = {}
        for callback in trainer.checkpoint_callbacks:
            state = checkpoint["callbacks"].get(callback.state_key)
            if isinstance(callback, ModelCheckpoint) and state is not None:
                is_own = callback.dirpath is not None and os.path.realpath(callback.dirpath) == os.path.realpath(resumed)
                found[callback.state_key] = _with_files_there(state, str(callback.dirpath) if is_own else None)
        # Broadcast the state, since only rank 0 may have the files, and ranks with different states would deadlock at the next checkpoint.
        checkpoint["callbacks"].update(trainer.strategy.broadcast(found))


def _with_files_there(state: dict[str, Any], folder: str | None) -> dict[str, Any]:
    """Return the state of a ``ModelCheckpoint`` without missing files. If ``folder`` is given, look for files in it instead of in ``dirpath``."""

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
    """Make each ``ModelCheckpoint`` without a folder write into the folder that it had when the checkpoint ``path`` was written."""
    states = CheckpointFiles().load_checkpoint(path, weights_only=True).get("callbacks", {})
    for callback in trainer.checkpoint_callbacks:
        folder = states.get(callback.state_key, {}).get("dirpath") or ""
        if isinstance(callback, ModelCheckpoint) and callback.dirpath is None and os.path.isdir(folder):
            callback.dirpath = folder


class CheckpointFiles(TorchCheckpointIO):
    """A ``TorchCheckpointIO`` that writes a temporary file in the checkpoint's folder and renames it, so that the old file stays intact until then.

    Lightning writes to the system's temporary folder and moves the file. If that is another disk, the move is a copy: a killed run or a full disk
    would replace the old ``last.ckpt`` by half a file.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write the checkpoint ``path`` atomically.

        Raises:
            InputError: the file cannot be written. A file that existed before is intact.
        """
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        content = io.BytesIO()  # torch must not write to the file itself: it aborts the process if the disk is full
        torch.save(checkpoint, content)
        write_whole(Path(path), content.getbuffer(), "checkpoint", "checkpoint.dirpath")

    def load_checkpoint(self, path: str | Path, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None) -> Any:
        """Read the checkpoint ``path``.

        Raises:
            InputError: the file is damaged, contains pickled code, or is not a checkpoint.
        """
        check_whole(path)
        try:
            checkpoint = super().load_checkpoint(path, map_location, weights_only)
        except UnpicklingError as error:
            raise InputError(f"checkpoint {path} is damaged, or has objects other than tensors and plain values: {_REMEDY}") from error
        except (
            EOFError,
            KeyError,
            RuntimeError,
            OSError,
            ValueError,
            zipfile.BadZipFile,
        ) as error:  # torch raises exceptions of many classes for files that are not checkpoints
            text = "it has another format" if isinstance(error, KeyError) else _reason(error)
            raise InputError(f"checkpoint {path} is damaged ({text}): {_REMEDY}") from error
        if not isinstance(checkpoint, Mapping) or not {"state_dict", "pytorch-lightning_version"} <= checkpoint.keys():
            raise InputError(f"{path} is a torch file, but no checkpoint of Lightning: {_REMEDY}")
        return checkpoint


def keep_checkpoints_whole(trainer: Any) -> None:
    """Make a trainer write and read checkpoints with ``CheckpointFiles``, unless the user gave it another checkpoint plugin."""
    strategy = getattr(trainer, "strategy", None)
    if strategy is not None and type(strategy.checkpoint_io) is TorchCheckpointIO:
        strategy.checkpoint_io = CheckpointFiles()


def check_whole(path: str | Path) -> None:
    """Verify the checksums in a checkpoint's zip archive, at several GB/s. torch does not, so a flipped bit would silently change the weights.

    Files of other formats are not checked.

    Raises:
        InputError: an entry does not match its checksum, or the path is not a regular file.
    """
    if "://" in str(path):
        return
    check_regular(path)
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
    ) as error:  # zipfile may raise any of these for a damaged directory
        raise InputError(f"checkpoint {path} is damaged ({_reason(error)}): {_REMEDY}") from error
    if damaged is not None:
        raise InputError(f"checkpoint {path} is damaged (the checksum of its entry {damaged} is wrong): {_REMEDY}")


def _reason(error: Exception) -> str:
    """Return why a file cannot be read. For a truncated file zipfile seeks to a negative offset (EINVAL), and torch finds no central directory."""
    text = " ".join(str(error).split())[:100]
    if "central directory" in text or (isinstance(error, OSError) and error.errno == errno.EINVAL):
        return "it is truncated, for example by an incomplete copy or download"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return text or "it is empty"


def check_regular(path: str | Path) -> None:
    """Check that the path is a regular file, since a FIFO would block.

    Raises:
        InputError: the path does not exist, or is not a regular file.
    """
    if not os.path.isfile(path):
        what = "is no regular file" if os.path.lexists(path) else "does not exist"
        raise InputError(f"checkpoint {path} {what}: give the path of a .ckpt file, or last")


def write_whole(path: Path, content: bytes | memoryview, what: str, option: str) -> None:
    """Write a file atomically: write a temporary file in the same folder, and rename it.

    Args:
        path: file to write.
        content: content of the file.
        what: what the file is, for the error message.
        option: option that sets the folder, for the error message.

    Raises:
        InputError: the file cannot be written. A file that existed before is intact.
    """
    part = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_parts_of_dead_writers(path)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        kept = "; the previous one is intact" if path.is_file() else ""
        raise InputError(
            f"{what} {path} cannot be written ({reason}){kept}: free space on the disk, or give another folder by {option}"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _remove_parts_of_dead_writers(path: Path) -> None:
    """Remove temporary files that killed processes of this machine have left. Files of running writers are never older than ``_SURE_S``."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.{glob.escape(_HOST)}-*.part"):
        number = part.stem.rpartition("-")[2]
        with contextlib.suppress(OSError):  # another process may have removed the file
            if number.isdecimal() and not Path(f"/proc/{number}").exists() and time.time() - part.stat().st_mtime > _SURE_S:
                part.unlink()
