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
from hoptrain.engine.partition.mailbox import FAILURE, CarriedExchange, Mailbox, carry
from hoptrain.engine.partition.rows import Links, PartedRows
from hoptrain.samplers.feed.tier import FETCH_S
from hoptrain.trainers.parts.gloo import GlooExchange

_numbers = count()
"""Of this process's carriers: machines start theirs in the same order."""


def links() -> Links:
    """What connects the processes of a run."""
    return Links(machines=_start, ranks=lambda: GlooExchange(distributed.new_group(backend="gloo", timeout=timedelta(seconds=FETCH_S))))


def _start(rows: PartedRows) -> CarriedExchange:
    """A carrier that ends with what is returned.

    Raises:
        InputError: this process's run has no store, or the system starts no process.
    """
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise InputError(
            "MASTER_ADDR and MASTER_PORT are not set: machines find one another by them; start the ranks by torchrun, or set both"
        )
    name = f"hoptrain carrier {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{next(_numbers)}"
    letters, answers = Mailbox.make(), Mailbox.make()
    program = "from hoptrain.trainers.parts.carrier import main; main()"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program, letters.path, answers.path, str(rows.machine), str(len(rows.ranks)), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path), "OMP_NUM_THREADS": "1"},
            process_group=0,
        )
    except OSError as error:
        raise InputError(f"the process that exchanges rows with other machines cannot be started ({error.strerror})") from error
    exchange = CarriedExchange(rows.machine, len(rows.ranks), letters, answers, process.pid, 2 * FETCH_S)
    weakref.finalize(exchange, _end, process)
    return exchange


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def main() -> None:
    """Entry of the process: ``argv`` has both mailboxes, the machine's number, how many there are, and the group's name."""
    letters, answers = Mailbox(sys.argv[1]), Mailbox(sys.argv[2])
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
