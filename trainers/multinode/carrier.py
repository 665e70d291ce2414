"""The carrier: a process of each machine whose only work are the collectives by which machines exchange rows, in a group of its own, never DDP's.

It finds the others by the store of the run (``MASTER_ADDR`` and ``MASTER_PORT``), and ends with the rank that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from datetime import timedelta
from itertools import count

import numpy as np
from torch import distributed
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from hoptrain.engine import InputError
from hoptrain.engine.errors import explain_hint
from hoptrain.engine.partition.carried_exchange import CarriedExchange, carry
from hoptrain.engine.partition.rows import Links, PartitionedFeatures
from hoptrain.engine.queue.message_slot import FAILURE, SharedMessageSlot
from hoptrain.kernels.child_process import import_path, python
from hoptrain.samplers.loader.tier import FETCH_S
from hoptrain.trainers.multinode.gloo import GlooExchange
from hoptrain.trainers.watchdog.member import current
from hoptrain.trainers.watchdog.sight import Sight

_GONE_LOOKS, _STOPPED_LOOKS = 3, 10
"""Looks, one a second, at a process that has ended or is stopped, after which its rank ends: whoever waits for it hears of it sooner, if he can."""
_numbers = count()
"""Of this process's carriers: machines start theirs in the same order."""


def links() -> Links:
    """What connects the processes of a run."""
    return Links(machines=_start, ranks=lambda: GlooExchange(distributed.new_group(backend="gloo", timeout=timedelta(seconds=FETCH_S))))


def _start(rows: PartitionedFeatures) -> CarriedExchange:
    """A carrier that ends with what is returned.

    Raises:
        InputError: this process's run has no store, or the system starts no process.
    """
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise InputError(
            "MASTER_ADDR and MASTER_PORT are not set: machines find one another by them; start the ranks by torchrun, or set both"
        )
    name = f"hoptrain carrier {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{next(_numbers)}"
    letters, answers = SharedMessageSlot.make(), SharedMessageSlot.make()
    program = "from hoptrain.trainers.multinode.carrier import main; main()"
    try:
        process = subprocess.Popen(
            python("-c", program, letters.path, answers.path, rows.machine, len(rows.ranks), name),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | import_path() | {"OMP_NUM_THREADS": "1"},
            process_group=0,
        )
    except OSError as error:
        raise InputError(f"the process that exchanges rows with other machines cannot be started ({error.strerror})") from error
    exchange = CarriedExchange(rows.machine, len(rows.ranks), letters, answers, process.pid, 2 * FETCH_S)
    is_over = threading.Event()
    threading.Thread(target=_guard, args=(letters.path, process.pid, is_over), name="hoptrain-guard", daemon=True).start()
    weakref.finalize(exchange, _end, process, is_over)
    return exchange


def _guard(letters: str, carrier: int, is_over: threading.Event) -> None:
    """End this rank where the carrier, or the process that fetches rows, has ended or stands: it may be in a collective whose others wait for these rows."""
    box, sights, looks = SharedMessageSlot(letters), dict[int, Sight](), dict[int, int]()
    while not is_over.wait(1.0):
        for pid, what in ((carrier, "exchanges rows with"), (box.writer, "fetches rows of")):
            if not pid:
                continue
            sight = sights.setdefault(pid, Sight(pid))
            sight.look()
            looks[pid] = looks.get(pid, 0) + 1 if sight.is_gone or sight.is_stopped else 0
            if looks[pid] >= (_GONE_LOOKS if sight.is_gone else _STOPPED_LOOKS):
                how = sight.how_it_ended() if sight.is_gone else f"was stopped (SIGSTOP) for {_STOPPED_LOOKS} s"
                _fail(InputError(f"the process that {what} other machines {how}" + explain_hint("rows")))


def _fail(error: InputError) -> None:
    """End this process, whatever its main thread waits for."""
    if (member := current()) is not None:
        member.fail(error)
    else:
        os.write(2, f"hoptrain: {error}\n".encode())
    os._exit(1)


def _end(process: subprocess.Popen[bytes], is_over: threading.Event) -> None:
    is_over.set()
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def main() -> None:
    """Entry of the process: ``argv`` has both message slots, the machine's number, how many there are, and the group's name."""
    letters, answers = SharedMessageSlot(sys.argv[1]), SharedMessageSlot(sys.argv[2])
    rank, size, name = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    timeout = timedelta(seconds=FETCH_S)
    try:
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timeout)
        distributed.init_process_group("gloo", store=PrefixStore(name, store), rank=rank, world_size=size, timeout=timeout)
        carry(letters, answers, GlooExchange())
    except Exception as error:
        text = f"machines do not find one another to exchange rows (gloo: {' '.join(str(error).split())})"
        answers.put(1, [np.frombuffer(text.encode(), np.uint8)], FAILURE)
    threading.Event().wait()  # others learn of a failure by their own rounds; this one goes when it is ended


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
