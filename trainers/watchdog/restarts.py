"""Rendezvous of ranks that ``torchrun --max-restarts`` has restarted."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from pytorch_lightning import Trainer  # only for type checkers: this module runs before Lightning is imported

_RENDEZVOUS_S = 120.0


def rejoin_process_group(trainer: Trainer) -> None:
    """If torchrun has restarted the job, create its process group under new store keys; otherwise do nothing.

    With its default (static) rendezvous, torchrun keeps one store for all attempts. The store still has the addresses of earlier ranks, and a rank that
    reads them would wait for processes that have ended. Lightning reuses a process group that exists already.
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
    """Broadcast the coordinator's address from rank 0 to all ranks, through the store of torchrun's agent, which starts before them.

    Args:
        address: address of the coordinator on rank 0; empty on other ranks.

    Returns:
        The address of the coordinator.

    Raises:
        RuntimeError: rank 0 did not store its address in time.
    """
    store = _agent_store(timedelta(seconds=_RENDEZVOUS_S))
    if address:
        store.set("hoptrain watch", address)
        return address
    try:
        return store.get("hoptrain watch").decode()
    except RuntimeError as error:
        raise RuntimeError(f"rank 0 has not arrived: no message came from it for {_RENDEZVOUS_S:.0f} s") from error


def _agent_store(timeout: timedelta = timedelta(minutes=5)) -> Store:
    """Return the store of torchrun's agent, with keys that belong to this attempt alone."""
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timeout)
    return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
