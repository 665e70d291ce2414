"""A run that ``torchrun --max-restarts`` starts again meets with all its ranks."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from pytorch_lightning import Trainer  # a rank's watch needs this module before Lightning is imported

_MEETING_S = 120.0


def rejoin_process_group(trainer: Trainer) -> None:
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
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=_agent_store(),
        rank=trainer.global_rank,
        world_size=trainer.world_size,
    )


def exchange(address: str) -> str:
    """Rank 0's ``address`` for all ranks of torchrun, by the store of its agent, which is there before them.

    Args:
        address: rank 0's; nothing on the others.

    Raises:
        RuntimeError: rank 0 was not heard of in time.
    """
    store = _agent_store(timedelta(seconds=_MEETING_S))
    if address:
        store.set("hoptrain watch", address)
        return address
    try:
        return store.get("hoptrain watch").decode()
    except RuntimeError as error:
        raise RuntimeError(f"rank 0 has not arrived: nothing was heard of it for {_MEETING_S:.0f} s") from error


def _agent_store(timeout: timedelta = timedelta(minutes=5)) -> Store:
    """The store of torchrun's agent, under names of this attempt's own."""
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timeout)
    return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
