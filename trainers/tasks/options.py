"""Checks of options before a run begins, for values that Lightning does not check or for which it fails with a stack trace."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import Trainer

from hoptrain.engine import Dataset, HeteroDataset, InputError
from hoptrain.engine.machine import usable_cores
from hoptrain.samplers import Sampler

_log = logging.getLogger(__name__)
MOST_RANKS_A_CORE = 8
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
"""Allowed values of ``trainer.precision``. Other values would convert all tensors of a batch, including its node ids."""
_LEAST = {"accumulate_grad_batches": 1, "gradient_clip_val": 0, "check_val_every_n_epoch": 1, "num_nodes": 1, "log_every_n_steps": 0}
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def check_seed(seed: Any) -> None:
    """Raise InputError if Lightning cannot seed torch, NumPy and Python with ``seed``.

    Raises:
        InputError: the seed is outside [0, 2**32).
    """
    if not isinstance(seed, bool) and seed is not None and not 0 <= seed < 2**32:
        raise InputError(f"seed_everything is {seed}: it must be in [0, 2**32); give for instance 1")


def check_training(**options: Any) -> None:
    """Raise InputError if an option that models share is out of range: ``lr`` and ``weight_decay`` must be 0 or more, dropout in [0, 1).

    Raises:
        InputError: one of these options is out of range. Other options are not checked.
    """
    for name, value in options.items():
        is_share = name.endswith("dropout")
        if (is_share and not 0 <= value < 1) or (name in ("lr", "weight_decay") and not value >= 0):
            rule = "the share to drop must be in [0, 1)" if is_share else "it must be at least 0"
            raise InputError(f"{name} is {value}: {rule}; give for instance {0.5 if is_share else 0.001}")


def check_trainer_options(options: Any) -> None:
    """Check the ``trainer`` section of a configuration before the trainer is made.

    Raises:
        InputError: a number is out of range, a device is missing, or a folder cannot be written.
    """
    for name, least in _LEAST.items():
        value = options.get(name)
        if value is not None and value < least:
            raise InputError(f"trainer.{name} is {value:g}: it must be at least {least}; give {least} or more, or leave it out")
    if options.get("accelerator") in ("gpu", "cuda") and not torch.cuda.is_available():
        raise InputError(
            f"trainer.accelerator is {options.accelerator}: no GPU can be used here; run 'hoptrain doctor' for the reason, or leave it out"
        )
    if options.get("barebones"):
        raise InputError(
            "trainer.barebones is on: it disables the logs, checkpoints and callbacks that this command needs; leave it out, or train in Python"
        )
    has_gpu = torch.cuda.is_available() and options.get("accelerator") != "cpu"
    if options.get("precision") in (16, "16", "16-mixed") and not has_gpu:
        raise InputError(
            f"trainer.precision is {options.precision}: torch supports it only on GPUs, and none can be used here; give bf16-mixed"
        )
    interval = options.get("val_check_interval")
    if isinstance(interval, int | float) and interval <= 0:
        raise InputError(
            f"trainer.val_check_interval is {interval}: it must be a share of an epoch or a number of batches; give more than 0"
        )
    check_folder("trainer.default_root_dir", options.default_root_dir)


def check_share(option: str, share: float, num_batches: int, stage: str) -> None:
    """Raise InputError if ``share``, a fraction of a stage's batches, is less than one batch.

    Args:
        option: name of the trainer's option, for the message.
        share: value of the option; an integer is a number of batches.
        num_batches: number of batches of the stage.
        stage: name of the stage, such as validation.

    Raises:
        InputError: the share is above 0 and gives less than one batch.
    """
    if isinstance(share, float) and num_batches and int(num_batches * share) == 0 < share:
        raise InputError(
            f"trainer.{option} is {share}: the share is less than one batch, since {stage} has {num_batches}; give a number of batches, such as 1"
        )


def check_folder(option: str, folder: str | None) -> None:
    """Raise InputError if files cannot be written in ``folder`` or the nearest existing parent. Lightning checks remote addresses (``scheme://``).

    Raises:
        InputError: the folder cannot be written, or its name is not UTF-8.
    """
    if folder is None or "://" in str(folder):
        return
    path = Path(folder).absolute()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InputError(f"{option} is {folder}: its name must be UTF-8, since TensorBoard writes it; name another folder") from None
    try:
        with tempfile.TemporaryFile(dir=next(part for part in (path, *path.parents) if part.exists())):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"{option} {folder} cannot be written ({reason}): name a folder that you may write to") from None


def check_precision(trainer: Any) -> None:
    """Raise InputError if the trainer's precision does not suit mini-batches.

    Raises:
        InputError: the precision is not one of ``PRECISIONS``.
    """
    if trainer.precision not in PRECISIONS:
        raise InputError(f"trainer.precision is {trainer.precision}: it must be one of {', '.join(PRECISIONS)}; choose one")


def check_trainer(trainer: Trainer) -> None:
    """Raise InputError if the trainer's precision does not suit mini-batches, or it has too many ranks for the CPU's cores.

    Raises:
        InputError: the precision is not one of ``PRECISIONS``, or there are more than ``MOST_RANKS_A_CORE`` ranks per core.
    """
    check_precision(trainer)
    cores = usable_cores()
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > MOST_RANKS_A_CORE * cores:
        raise InputError(
            f"trainer.devices is {trainer.num_devices}: each rank is a process that computes, and this machine has {cores} cores; "
            f"give at most {MOST_RANKS_A_CORE} ranks a core; one a core is fastest"
        )


@rank_zero_only
def warn_of_unread(
    data: Dataset | HeteroDataset, sampler: Sampler[Any, Any], model: str, edge_reader: str | None, *, of_nodes: bool
) -> None:
    """Log a warning that names the features, times and weights of edges that a training does not use, and what would use them.

    Args:
        data: the data set.
        sampler: the sampler of the training.
        model: name of the model.
        edge_reader: what reads edge features; None if the model does.
        of_nodes: whether the examples are nodes; links may be split by their times.
    """
    columns = [data.graph] if isinstance(data, Dataset) else list(data.graph.relations.values())
    hops, name = sampler.hop_sampler, type(sampler.hop_sampler).__name__
    kind = "HeteroTemporalSampler" if isinstance(data, HeteroDataset) else "TemporalSampler"
    unread = {}
    if edge_reader is not None and any(store.partition(".")[0] == "edge_attr" for store in data.stores()):
        unread[f"edge features ({edge_reader} does)"] = model
    if of_nodes and getattr(hops, "is_timed", None) is False and any(own.times is not None for own in columns):
        unread[f"edge times ({kind} does)"] = name
    if getattr(hops, "weighted", None) is False and any("weights" in own.arrays() for own in columns):
        unread[f"edge weights ({name} with weighted: true does)"] = name
    if unread:
        readers = " and ".join(dict.fromkeys(unread.values()))
        verb = "does" if len(set(unread.values())) == 1 else "do"
        _log.warning(
            f"{data.name}: {readers} {verb} not use the {', the '.join(unread)}: choose these, or leave the columns out of the edges"
        )


def unwritable(error: OSError) -> InputError | None:
    """Return the message for a file that a run could not write because its device is full or read-only; None for other errors."""
    if error.errno not in _UNWRITABLE:
        return None
    place = error.filename or "a file of the run"
    return InputError(f"{place} cannot be written ({os.strerror(error.errno)}): free space on the device, and resume with --ckpt_path last")
