"""Limits of options that Lightning takes without a look, or answers by its own stack: checked before a run begins."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer

from hoptrain.engine import InputError
from hoptrain.engine.machine import usable_cores

MOST_RANKS_A_CORE = 8
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
"""Of ``trainer.precision``; the others convert what a batch holds, its nodes too."""
_LEAST = {"accumulate_grad_batches": 1, "gradient_clip_val": 0, "check_val_every_n_epoch": 1, "num_nodes": 1, "log_every_n_steps": 0}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def check_seed(seed: Any) -> None:
    """Whether Lightning can seed torch, NumPy and Python by it.

    Raises:
        InputError: it cannot.
    """
    if not isinstance(seed, bool) and seed is not None and not 0 <= seed < 2**32:
        raise InputError(f"seed_everything is {seed}: a seed is from 0 to 2**32 - 1; give for instance 1")


def check_training(**options: Any) -> None:
    """Arguments that models share: ``lr`` and ``weight_decay`` are at least 0, shares that are dropped from 0 to below 1; others are not looked at.

    Raises:
        InputError: one is not.
    """
    for name, value in options.items():
        is_share = name.endswith("dropout")
        if (is_share and not 0 <= value < 1) or (name in ("lr", "weight_decay") and not value >= 0):
            rule = "the share that is dropped is at least 0 and below 1" if is_share else "it is at least 0"
            raise InputError(f"{name} is {value}: {rule}; give for instance {0.5 if is_share else 0.001}")


def check_trainer_options(options: Any) -> None:
    """``trainer`` of a configuration, before the trainer is made.

    Raises:
        InputError: a number that has no meaning, a folder that cannot be written.
    """
    for name, least in _LEAST.items():
        value = options.get(name)
        if value is not None and value < least:
            raise InputError(f"trainer.{name} is {value:g}: it is at least {least}; correct it or leave it out")
    if options.get("accelerator") in ("gpu", "cuda") and not torch.cuda.is_available():
        raise InputError(
            f"trainer.accelerator is {options.accelerator}: no GPU can be used here ('hoptrain doctor' tells why); leave it out"
        )
    if options.get("barebones"):
        raise InputError(
            "trainer.barebones is on: it forbids the logs, checkpoints and callbacks of this command; leave it out, or train in Python"
        )
    has_gpu = torch.cuda.is_available() and options.get("accelerator") != "cpu"
    if options.get("precision") in (16, "16", "16-mixed") and not has_gpu:
        raise InputError(
            f"trainer.precision is {options.precision}: torch has it on GPUs alone, and none can be used here; take bf16-mixed"
        )
    interval = options.get("val_check_interval")
    if isinstance(interval, int | float) and interval <= 0:
        raise InputError(f"trainer.val_check_interval is {interval}: it is a share of an epoch or a number of batches; give more than 0")
    check_folder("trainer.default_root_dir", options.default_root_dir)


def check_share(option: str, share: float, num_batches: int, stage: str) -> None:
    """Raise if a share of a stage's batches is not even one batch.

    Args:
        option: of the trainer, by which the line names it.
        share: its value; an integer is a number of batches.
        num_batches: batches of the stage.
        stage: validation, for instance.

    Raises:
        InputError: the share is above 0 and below one batch.
    """
    if isinstance(share, float) and num_batches and int(num_batches * share) == 0 < share:
        raise InputError(
            f"trainer.{option} is {share}: the share is less than one batch, since {stage} has {num_batches}; give a number of batches, such as 1"
        )


def check_folder(option: str, folder: str | None) -> None:
    """Look whether files can be written in ``folder``, or where it would be made; addresses of other kinds of storage are left to Lightning.

    Raises:
        InputError: they cannot.
    """
    if folder is None or "://" in str(folder):
        return
    path = Path(folder).absolute()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InputError(f"{option} is {folder}: its name is no UTF-8, which TensorBoard writes; name another folder") from None
    try:
        with tempfile.TemporaryFile(dir=next(part for part in (path, *path.parents) if part.exists())):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(f"{option} {folder} cannot be written ({reason}): name a folder of your own") from None


def check_trainer(trainer: Trainer) -> None:
    """Whether the precision is one that mini-batches can have, and whether the machine's cores can bear as many ranks.

    Raises:
        InputError: one is not so.
    """
    if trainer.precision not in PRECISIONS:
        raise InputError(f"trainer.precision is {trainer.precision}: a run has {', '.join(PRECISIONS)}; choose one of them")
    cores = usable_cores()
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > MOST_RANKS_A_CORE * cores:
        raise InputError(
            f"trainer.devices is {trainer.num_devices}: each rank is a process that computes, and this machine has {cores} cores; "
            f"give at most {MOST_RANKS_A_CORE} ranks a core, best one"
        )


def no_room(error: OSError) -> InputError | None:
    """What to tell of a file that a run could not write; None where the error is another one."""
    if error.errno not in _NO_ROOM:
        return None
    place = error.filename or "a file of the run"
    return InputError(f"{place} cannot be written ({os.strerror(error.errno)}): make room, and go on with --ckpt_path last")
