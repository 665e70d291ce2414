"""The communication process: one process per machine that runs the collectives by which machines exchange feature rows.

These processes have their own process group, separate from DDP's. They find each other through the store of the run (``MASTER_ADDR`` and
``MASTER_PORT``), and end with the rank that started them.
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
from hoptrain.engine.partition.comm_process_exchange import CommProcessExchange, carry
from hoptrain.engine.partition.rows import CommGroups, PartitionedFeatures
from hoptrain.engine.queue.message_slot import FAILURE, SharedMessageSlot
from hoptrain.kernels.child_process import import_path, python
from hoptrain.samplers.loader.feature_cache import FETCH_S
from hoptrain.trainers.multinode.gloo import GlooExchange
from hoptrain.trainers.watchdog.process_probe import ProcessProbe
from hoptrain.trainers.watchdog.rank_agent import current

_GONE_CHECKS, _STOPPED_CHECKS = 3, 10
"""Number of consecutive checks, one per second, that must find the observed process ended, or stopped, before its rank ends.

Other errors may end the rank earlier.
"""
_numbers = count()
"""Counter that numbers the communication processes of this rank. The numbers match across machines, which start these processes in the same order."""


def links() -> CommGroups:
    """Return the connections between machines and between ranks of a run."""
    return CommGroups(
        machines=_start, ranks=lambda: GlooExchange(distributed.new_group(backend="gloo", timeout=timedelta(seconds=FETCH_S)))
    )


def _start(rows: PartitionedFeatures) -> CommProcessExchange:
    """Start a communication process, and return its exchange. The process ends when the exchange is garbage-collected.

    Raises:
        InputError: the run has no store, or the process cannot be started.
    """
    if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
        raise InputError(
            "MASTER_ADDR and MASTER_PORT are not set: machines find one another by them; start the ranks with torchrun, or set both"
        )
    name = f"hoptrain communication {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{next(_numbers)}"
    requests, answers = SharedMessageSlot.make(), SharedMessageSlot.make()
    program = "from hoptrain.trainers.multinode.comm_process import main; main()"
    try:
        process = subprocess.Popen(
            python("-c", program, requests.path, answers.path, rows.machine, len(rows.ranks), name),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | import_path() | {"OMP_NUM_THREADS": "1"},
            process_group=0,
        )
    except OSError as error:
        raise InputError(
            f"the process that exchanges rows with other machines cannot be started ({error.strerror}): check the limits with ulimit -a"
        ) from error
    exchange = CommProcessExchange(rows.machine, len(rows.ranks), requests, answers, process.pid, 2 * FETCH_S)
    is_over = threading.Event()
    threading.Thread(target=_guard, args=(requests.path, process.pid, is_over), name="hoptrain-guard", daemon=True).start()
    weakref.finalize(exchange, _end, process, is_over)
    return exchange


def _guard(requests: str, comm_pid: int, is_over: threading.Event) -> None:
    """End this rank if the communication process, or the process that fetches rows, has ended or is stopped.

    Otherwise this rank could stay in a collective with ranks that wait for rows that the ended process should have sent.
    """
    slot, probes, counts = SharedMessageSlot(requests), dict[int, ProcessProbe](), dict[int, int]()
    while not is_over.wait(1.0):
        for pid, what in ((comm_pid, "exchanges rows with"), (slot.writer, "fetches rows of")):
            if not pid:
                continue
            probe = probes.setdefault(pid, ProcessProbe(pid))
            probe.look()
            counts[pid] = counts.get(pid, 0) + 1 if probe.is_gone or probe.is_stopped else 0
            if counts[pid] >= (_GONE_CHECKS if probe.is_gone else _STOPPED_CHECKS):
                how = probe.how_it_ended() if probe.is_gone else f"was stopped (SIGSTOP) for {_STOPPED_CHECKS} s"
                _fail(InputError(f"the process that {what} other machines {how}" + explain_hint("rows")))


def _fail(error: InputError) -> None:
    """Report the error and end this process, even if its main thread is blocked."""
    if (agent := current()) is not None:
        agent.fail(error)
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
    """Run the communication process. ``argv`` has the paths of both message slots, the number of this machine, the number of machines, and the group's name."""
    requests, answers = SharedMessageSlot(sys.argv[1]), SharedMessageSlot(sys.argv[2])
    rank, size, name = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    timeout = timedelta(seconds=FETCH_S)
    try:
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timeout)
        distributed.init_process_group("gloo", store=PrefixStore(name, store), rank=rank, world_size=size, timeout=timeout)
        carry(requests, answers, GlooExchange())
    except Exception as error:
        text = f"machines cannot connect to exchange rows (gloo: {' '.join(str(error).split())})"
        answers.put(1, [np.frombuffer(text.encode(), np.uint8)], FAILURE)
    threading.Event().wait()  # other machines notice a failure in their own collectives; this process waits to be killed


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
