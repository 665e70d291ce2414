"""A run that ``torchrun --max-restarts`` starts again meets with all its ranks."""

from __future__ import annotations

import os

import torch
from pytorch_lightning import Trainer
from torch import distributed
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]


def meet_again(trainer: Trainer) -> None:
    """Let the ranks of a restarted job meet under names of their own.

    torchrun may keep one store for all attempts (it does with its default, static rendezvous), where the addresses of the ranks before still
    stand; whoever reads these waits for processes that are gone. Lightning takes a process group that is there already.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or trainer.world_size == 1:
        return
    device = trainer.strategy.root_device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore(f"attempt {attempt}", store),
        rank=trainer.global_rank,
        world_size=trainer.world_size,
    )
