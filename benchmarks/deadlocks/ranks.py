"""Faults of ranks that train on CPUs with Lightning's ``ddp``, and a race between collectives and the fork of workers.

hoptrain's ranks run ``hoptrain fit``; with the other loaders, ranks train a linear model. Lightning starts every rank as a process.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.common.trial import BEGIN, say
from hoptrain.benchmarks.deadlocks.faults import FANOUTS, die, stop
from hoptrain.benchmarks.deadlocks.loaders import BATCH_SIZE, features, open_loader, parse
from hoptrain.engine import Dataset
from hoptrain.trainers.cli import main

RANKS = 2
_VICTIM, _STEP = 1, 5
_UNEVEN = 1 - RANKS * BATCH_SIZE
"""End of the slice of seeds in the case "uneven". It leaves one seed for the last step, so one rank has 20 batches and the other 19."""
_RACERS = 4
_RACE_S = 120.0
_ROUND_COLLECTIVES = 4
_RACE_BATCHES, _RACE_BATCH = 4, 8  # few and small batches, since the race occurs at the start of an epoch


def _raise() -> None:
    raise RuntimeError("simulated failure of the model")


_ACTIONS: Mapping[str, Callable[[], None]] = {"raise": _raise, "kill": die, "stop": stop, "nothing": lambda: None}


class Strike(Callback):
    """A callback that makes one rank raise, die or stop in the middle of an epoch, while the others continue to the step's all-reduce."""

    def __init__(self, action: str) -> None:
        """Choose what the rank does: a key of ``_ACTIONS``."""
        self.action = action

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print that the case begins: all ranks have joined and imported their modules."""
        if trainer.is_global_zero:
            say(BEGIN)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Run the action at the chosen step of the chosen rank."""
        if trainer.global_rank == _VICTIM and batch_idx == _STEP:
            _ACTIONS[self.action]()


class _Model(LightningModule):
    """A linear model that needs an all-reduce of gradients in every step."""

    def __init__(self, open_rank: Callable[[int, int], Iterable[Any]], num_features: int) -> None:
        super().__init__()
        self._open_rank = open_rank
        self.layer = torch.nn.Linear(num_features, 4)

    def train_dataloader(self) -> Any:
        return self._open_rank(self.trainer.global_rank, self.trainer.world_size)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss: Tensor = self.layer(features(batch)).square().mean()
        return loss

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch

    def on_train_epoch_end(self) -> None:
        dist.all_reduce(torch.ones(2))  # an all-reduce such as a metric makes that is synchronised across ranks

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def _train(case: str, system: str, data: Path, scratch: Path) -> None:
    """Train on two ranks. One rank has a fault in its training step or in a sampler process, or gets one batch more than the other rank."""
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    action = case if case in _ACTIONS else "nothing"
    if parse(system)[0] == HOPTRAIN:
        _fit_hoptrain(case, action, data, scratch)
        return
    trainer = Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy="ddp",
        max_epochs=2,
        use_distributed_sampler=False,
        callbacks=[Strike(action)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(_Model(partial(_open_rank, case, system, data, scratch), Dataset.open(data, verify=False).num_features))


def _open_rank(case: str, system: str, data: Path, scratch: Path, rank: int, world_size: int) -> Iterable[Any]:
    train = Dataset.open(data, verify=False).split("train")
    if case == "uneven":
        train = train[:_UNEVEN]
    if parse(system)[0] == "DGL":
        return open_loader(system, data, ("raise", str(scratch)) if case == "sampler" else None, seeds=train, use_ddp=True)
    fault = ("raise", str(scratch)) if case == "sampler" and rank == _VICTIM else None
    return open_loader(system, data, fault, seeds=np.array_split(train, world_size)[rank])


def _fit_hoptrain(case: str, action: str, data: Path, scratch: Path) -> None:
    sampler = {"class_path": "hoptrain.samplers.NeighborSampler", "init_args": {"fanouts": FANOUTS}}
    if case == "sampler":
        sampler = {
            "class_path": "hoptrain.benchmarks.deadlocks.faults.FaultySampler",
            "init_args": {"action": "raise", "folder": str(scratch)},
        }
    options: dict[str, Any] = {
        "data.dataset": _uneven_dataset(data, scratch / "uneven") if case == "uneven" else data,
        "data.batch_size": BATCH_SIZE,
        "data.sampler": str(sampler).replace("'", '"'),
        "model.hidden_channels": 16,
        "trainer.accelerator": "cpu",
        "trainer.devices": RANKS,
        "trainer.max_epochs": 2,
        "trainer.default_root_dir": scratch,
        "trainer.enable_progress_bar": "false",
        "trainer.enable_model_summary": "false",
        "trainer.logger": "false",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    arguments += ["--trainer.callbacks+=hoptrain.benchmarks.deadlocks.ranks.Strike", f"--trainer.callbacks.action={action}"]
    code = main(["fit", *arguments])
    if code:
        raise SystemExit(code)


def _uneven_dataset(data: Path, folder: Path) -> Path:
    if not folder.exists():  # rank 0 writes it before it starts the other ranks
        whole = Dataset.open(data, verify=False)
        splits = {**whole.splits, "train": whole.split("train")[:_UNEVEN]}
        replace(whole, name="uneven", splits=splits, validate=False).save(folder)
    return folder


def _race(system: str, data: Path, scratch: Path) -> None:
    """Start epochs on four ranks in a loop: each round runs collectives and right after them starts an iterator with its workers."""
    spawn(_race_rank, args=(system, data, scratch), nprocs=_RACERS)  # type: ignore[no-untyped-call]


def _race_rank(rank: int, system: str, data: Path, scratch: Path) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    torch.set_num_threads(1)
    torch.multiprocessing.set_start_method("fork", force=True)  # the start method in ranks that Lightning or torchrun has started
    dist.init_process_group("gloo", f"file://{scratch}/ranks", rank=rank, world_size=_RACERS)
    own: dict[str, Any] = {"rank": 0, "world_size": 1} if parse(system)[0] == HOPTRAIN else {}
    loader = open_loader(system, data, seeds=np.arange(_RACE_BATCHES * _RACE_BATCH), batch_size=_RACE_BATCH, **own)
    dist.barrier()
    if rank == 0:
        say(BEGIN)
    started, rounds = time.monotonic(), 0
    elapsed = torch.zeros(1)
    while float(elapsed) < _RACE_S:
        elapsed = torch.tensor([time.monotonic() - started])
        dist.all_reduce(elapsed, dist.ReduceOp.MAX)
        for _ in range(_ROUND_COLLECTIVES):
            dist.all_reduce(torch.ones(64))
        dist.barrier()
        if (found := sum(1 for _ in loader)) != _RACE_BATCHES:
            raise RuntimeError(f"the epoch had {found} batches instead of {_RACE_BATCHES}")
        rounds += 1
        if rank == 0:
            print("rounds", rounds, flush=True)
    dist.barrier()
    os._exit(0)  # skips the shutdown of the process group, which this case does not test


CASES: Mapping[str, Callable[[str, Path, Path], None]] = {
    **{f"rank-{name}": partial(_train, name) for name in ("raise", "kill", "stop", "sampler", "uneven")},
    "race": _race,
}
