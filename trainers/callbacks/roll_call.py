"""Ranks that nobody watches yet, since they were started one by one, meet within minutes, or each says who has not come.

Left to itself torch waits for half an hour, and says where in its sources it did.
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
from hoptrain.trainers.watchdog.member import current
from hoptrain.trainers.watchdog.server import listen

MEETING_S = 300.0
"""How long a rank waits for the others: people start them in one terminal after another, and one may have more to read before."""
_LOOK_S, _HEARD_S = 0.1, 2.0
_ABSENT = "hoptrain absent"
_served: WeakValueDictionary[tuple[str, int], Store] = WeakValueDictionary()
"""Rank 0's stores that are still kept: a launcher and a data module may both prepare the same run."""


def meet(trainer: Trainer, *, calls_roll: bool = True) -> Store | None:
    """Wait for all ranks of a run, where they are not watched yet; those of torchrun, and of Lightning's launcher on one machine, are from their first second.

    In a script of one's own torchrun's are not watched, but have met: it starts none before all of its machines are there, and ends all with one.

    Args:
        trainer: Lightning's.
        calls_roll: wait for all ranks; else only prepare what those of one machine meet by.

    Returns:
        The store by which they met, to be kept until the process group is there, which finds it again; None where they have met before.

    Raises:
        InputError: as ``roll_call`` and ``prepare_network``.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    have_met = distributed.is_initialized() or current() is not None or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if trainer.world_size == 1 or environment is None or have_met or not isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher):
        return None
    if is_one_machine(trainer):
        prepare_network(trainer)
    if not calls_roll:
        is_server = is_one_machine(trainer) and trainer.global_rank == 0
        return serve(environment.main_address, environment.main_port, trainer.world_size) if is_server else None
    return roll_call(environment.main_address, environment.main_port, trainer.global_rank, trainer.world_size, MEETING_S)


def roll_call(host: str, port: int, rank: int, world_size: int, patience_s: float) -> Store:
    """Wait until all ranks are there.

    Args:
        host: where rank 0 is.
        port: where it listens.
        rank: this one.
        world_size: how many there are.
        patience_s: seconds to wait.

    Raises:
        InputError: a rank has not come in time; all that are there hear it of the first one whose time is over.
    """
    try:
        store = (
            serve(host, port, world_size, patience_s)
            if rank == 0
            else TCPStore(host, port, world_size, False, timedelta(seconds=patience_s))
        )
    except RuntimeError as error:
        raise InputError(_absent([0], world_size, patience_s, f"at {host}:{port} (MASTER_ADDR and MASTER_PORT)")) from error
    store.set(_name(rank), "")
    patience, missing = Deadline(patience_s), set(range(world_size))
    try:
        while missing := {other for other in missing if not store.check([_name(other)])}:
            if store.check([_ABSENT]):
                raise InputError(store.get(_ABSENT).decode())
            if patience.is_over():
                text = _absent(sorted(missing), world_size, patience_s, "to meet the others")
                store.set(_ABSENT, text)
                time.sleep(_HEARD_S)  # rank 0's store goes with it: the others read it first
                raise InputError(text)
            time.sleep(_LOOK_S)
    except RuntimeError as error:
        raise InputError(f"rank 0 has ended before rank {min(missing)} came: its messages tell why ({_line(error)})") from error
    return store


def serve(host: str, port: int, world_size: int, patience_s: float = MEETING_S) -> Store:
    """Return the store of rank 0, which listens on the network of ``host`` alone: torch's own listens on all networks, and asks nobody for a key.

    ``init_process_group`` finds it by its port while it is kept.

    Args:
        host: where this process is to be found.
        port: where it listens.
        world_size: number of ranks.
        patience_s: seconds that ranks wait for a value.

    Raises:
        InputError: the port is in use, or reserved.
    """
    if (kept := _served.get((host, port))) is not None:
        return kept
    try:
        listening = listen(host, port)
    except OSError as error:
        raise InputError(
            f"rank 0 cannot listen at port {port} ({os.strerror(error.errno or 0)}): give another MASTER_PORT to all ranks"
        ) from error
    timeout = timedelta(seconds=patience_s)
    store = TCPStore(host, port, world_size, True, timeout, wait_for_workers=False, multi_tenant=True, master_listen_fd=listening.detach())
    _served[host, port] = store
    return store


def _name(rank: int) -> str:
    return f"hoptrain came {rank}.{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _absent(ranks: list[int], world_size: int, patience_s: float, where: str) -> str:
    named = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return (
        f"rank {named} of {world_size} has not come {where} within {patience_s:g} s: it was not started, or ended before and said why; "
        "mend that, and start all ranks again"
    )


def _line(error: RuntimeError) -> str:
    return " ".join(str(error).split())[:200]
