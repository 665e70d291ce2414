"""Rendezvous of ranks that were started one by one and have no watchdog yet. If ranks are missing after minutes, the others report them and end.

Without this module, torch would wait for half an hour and then report only a location in its source code.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from weakref import WeakValueDictionary

from pytorch_lightning import Trainer
from pytorch_lightning.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from torch import distributed
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from hoptrain.engine import InputError
from hoptrain.engine.deadline import Deadline
from hoptrain.trainers.callbacks.network import is_one_machine, prepare_network
from hoptrain.trainers.watchdog.rank_agent import current
from hoptrain.trainers.watchdog.server import listen

RENDEZVOUS_S = 300.0
"""Seconds that a rank waits for the other ranks. Users may start ranks by hand in several terminals, and some ranks load more data than others."""
_LOOK_S, _HEARD_S = 0.1, 2.0
_ABSENT = "hoptrain absent"
_served: WeakValueDictionary[tuple[str, int], Store] = WeakValueDictionary()
"""Stores of rank 0 that are still in use, by host and port. A launcher and a data module of the same run share a store."""


def rendezvous(trainer: Trainer, *, waits_for_all: bool = True) -> Store | None:
    """Wait for all ranks of a run, unless they have a watchdog or torchrun started them.

    Ranks of torchrun need no rendezvous: torchrun starts ranks only after all machines have joined, and ends all ranks when one fails.

    Args:
        trainer: Lightning's trainer.
        waits_for_all: wait until all ranks have arrived. If False, only check the network settings and, on one machine, create the store.

    Returns:
        The store of the rendezvous, or None if no rendezvous was needed. Keep a reference until the process group has been created, which reuses the store.

    Raises:
        InputError: a rank did not arrive in time, or an environment variable of the network is wrong.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    is_done = distributed.is_initialized() or current() is not None or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if trainer.world_size == 1 or environment is None or is_done or not isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher):
        return None
    if is_one_machine(trainer):
        prepare_network(trainer)
    if not waits_for_all:
        is_server = is_one_machine(trainer) and trainer.global_rank == 0
        return serve(environment.main_address, environment.main_port, trainer.world_size) if is_server else None
    return wait_for_ranks(environment.main_address, environment.main_port, trainer.global_rank, trainer.world_size, RENDEZVOUS_S)


def wait_for_ranks(host: str, port: int, rank: int, world_size: int, patience_s: float) -> Store:
    """Wait until all ranks have connected to the store of rank 0, and return this store.

    Args:
        host: name or address of rank 0.
        port: port at which rank 0 listens.
        rank: rank of this process.
        world_size: number of ranks.
        patience_s: seconds to wait.

    Raises:
        InputError: a rank did not arrive in time. All ranks that did arrive raise it, with the message of the first one that timed out.
    """
    try:
        store = (
            serve(host, port, world_size, patience_s)
            if rank == 0
            else TCPStore(host, port, world_size, False, timedelta(seconds=patience_s))
        )
    except RuntimeError as error:
        raise InputError(_absent([0], world_size, patience_s, f"at {host}:{port} (MASTER_ADDR and MASTER_PORT)")) from error
    store.set(_key(rank), "")
    patience, missing = Deadline(patience_s), set(range(world_size))
    try:
        while missing := {other for other in missing if not store.check([_key(other)])}:
            if store.check([_ABSENT]):
                raise InputError(store.get(_ABSENT).decode())
            if patience.is_over():
                text = _absent(sorted(missing), world_size, patience_s, "at the rendezvous")
                store.set(_ABSENT, text)
                time.sleep(_HEARD_S)  # the store ends with rank 0, so give the others time to read the message
                raise InputError(text)
            time.sleep(_LOOK_S)
    except RuntimeError as error:
        raise InputError(f"rank 0 ended before rank {min(missing)} arrived: see the messages of rank 0 ({_line(error)})") from error
    return store


def serve(host: str, port: int, world_size: int, patience_s: float = RENDEZVOUS_S) -> Store:
    """Return the store of rank 0, which listens only on the address of ``host``. A store created by torch listens on all interfaces, without authentication.

    While this store exists, ``init_process_group`` reuses it for the same port.

    Args:
        host: name or address of this process.
        port: port to listen at.
        world_size: number of ranks.
        patience_s: seconds that a rank waits for a key of the store.

    Raises:
        InputError: the port is in use, or reserved.
    """
    if (kept := _served.get((host, port))) is not None:
        return kept
    try:
        listening = listen(host, port)
    except OSError as error:
        raise InputError(
            f"rank 0 cannot listen at port {port} ({os.strerror(error.errno or 0)}): set MASTER_PORT to another port on all ranks"
        ) from error
    timeout = timedelta(seconds=patience_s)
    store = TCPStore(host, port, world_size, True, timeout, wait_for_workers=False, multi_tenant=True, master_listen_fd=listening.detach())
    _served[host, port] = store
    return store


def _key(rank: int) -> str:
    return f"hoptrain arrived {rank}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _absent(ranks: list[int], world_size: int, patience_s: float, where: str) -> str:
    named = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return (
        f"rank {named} of {world_size} has not arrived {where} within {patience_s:g} s: it was not started, or it has failed; "
        "fix its error if it printed one, and restart all ranks"
    )


def _line(error: RuntimeError) -> str:
    return " ".join(str(error).split())[:200]
