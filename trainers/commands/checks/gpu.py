"""``hoptrain doctor --gpu``: checks each feature of the GPU, its driver and libraries that GPU sampling uses.

Each check runs in its own process, with a deadline. A kernel that hangs cannot be interrupted, and a kernel that fails makes the device unusable for its
process. The checks themselves are in ``gpu_numba``, ``gpu_torch`` and ``gpu_engine``.

``python -m hoptrain.trainers.commands.checks.gpu NAME`` runs one check without a child process, for profilers and debuggers.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hoptrain.trainers.commands.checks.child import ChildProcess, ask_child
from hoptrain.trainers.commands.checks.finding import CheckFailed, CheckSkipped, Finding, Status

AT_ONCE = 4
"""Number of checks that run at once. A check spends most of its time on imports, and uses little of the GPU."""
_NUMBA, _TORCH, _ENGINE = (f"hoptrain.trainers.commands.checks.gpu_{part}" for part in ("numba", "torch", "engine"))


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one feature that GPU sampling uses.

    Attributes:
        name: name of the check.
        at: function that runs the check, as "module:function". It returns a description of what it found, or raises.
        remedy: what to do if the check fails.
        seconds: deadline; it allows for compilation, which takes most of the time.
    """

    name: str
    at: str
    remedy: str
    seconds: float = 120


_CUDA_BUILD = "install the CUDA build of torch that fits the driver, and check $CUDA_VISIBLE_DEVICES"
_SHARED_MEMORY = "sample in a process without torch (num_workers=1), and report this line to the authors of hoptrain"

CHECKS: tuple[Check, ...] = (
    Check("numba.cuda", f"{_NUMBA}:versions", "pip install 'hoptrain[cuda]'"),
    Check("device", f"{_NUMBA}:device", "update the driver: it is older than the compiler, and may not load its code"),
    Check(
        "kernel",
        f"{_NUMBA}:kernel",
        "pip install 'hoptrain[cuda]', whose compilers are of one release; unset $CUDA_HOME if it names another release",
    ),
    Check(
        "kernel cache",
        f"{_NUMBA}:kernel_again",
        "every process compiles for seconds until this works: see 'kernel cache' of hoptrain doctor",
    ),
    Check("host memory", f"{_NUMBA}:host_memory", 'use placement="device"; in a virtual machine, check its IOMMU settings'),
    Check("torch", f"{_TORCH}:same_gpus", _CUDA_BUILD),
    Check("torch's stream", f"{_TORCH}:stream", _SHARED_MEMORY),
    Check("torch to Numba", f"{_TORCH}:torch_to_numba", _SHARED_MEMORY),
    Check("Numba to torch", f"{_TORCH}:numba_to_torch", _SHARED_MEMORY),
    Check("torch's memory", f"{_ENGINE}:memory_of_torch", _SHARED_MEMORY),
    Check(
        "gather",
        f"{_ENGINE}:gather",
        "install the CuPy for this CUDA version (pip install 'hoptrain[cuda]'), or uninstall CuPy: Numba's kernels then gather",
    ),
    Check("pinned pages", f"{_ENGINE}:locked_pages", "raise the limit on locked memory (ulimit -l)"),
    Check("graph capture", f"{_ENGINE}:graph_capture", "use --data.cuda_graphs false: each kernel of a bulk is then launched separately"),
    Check(
        "shared pages",
        f"{_ENGINE}:shared_pages",
        "raise the limit on locked memory (ulimit -l); until then each rank makes its own pinned copy",
    ),
    Check("IPC", f"{_NUMBA}:ipc", "in a container, use --ipc=host; until then each GPU has its own gpu_cache, and shares none of it"),
    Check("peers", f"{_TORCH}:peers", "nothing: each GPU has its own gpu_cache, and shares none of it"),
    Check("sampling", f"{_ENGINE}:sampling", 'use device="cpu", and report this line to the authors of hoptrain', seconds=300),
)


def reason_against() -> str | None:
    """Return the reason why CUDA cannot be used on this machine, in one line, or None if it can be used."""
    code = "import json; from hoptrain.engine.device import cuda_status; print(json.dumps({'error': cuda_status()}))"
    reason: str | None = ask_child(code)["error"]
    return reason


def findings(checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Run the checks, several at once, and yield their findings in order.

    All checks use a new cache folder for compiled kernels. The check "kernel" fills it before the checks that read it start.
    """
    alone = 1 + next((number for number, check in enumerate(checks) if check.name == "kernel"), -1)
    waiting, running = deque(checks), deque[tuple[Check, ChildProcess]]()
    with tempfile.TemporaryDirectory(prefix="hoptrain-doctor-") as folder:
        try:
            for number, check in enumerate(checks):
                while waiting and len(running) < (AT_ONCE if number >= alone else 1):
                    code = f"import json; from {look.__module__} import look; print(json.dumps(look({waiting[0].at!r})))"
                    running.append((waiting[0], ChildProcess(code, waiting[0].seconds, HOPTRAIN_NUMBA_ROOT=folder)))
                    waiting.popleft()
                answer = running[0][1].answer()
                running.popleft()
                status: Status = answer.get("status", "wrong")
                yield Finding(check.name, status, answer.get("found") or answer["error"], check.remedy if status == "wrong" else "")
        finally:
            for _, child in running:
                child.end()


def look(at: str) -> dict[str, str]:
    """Run the check function that ``at`` ("module:function") names in this process, and return the status and the text of its finding."""
    module, function = at.split(":")
    try:
        return {"status": "ok", "found": getattr(importlib.import_module(module), function)()}
    except CheckSkipped as error:
        return {"status": "note", "found": str(error)}
    except CheckFailed as error:
        return {"status": "wrong", "found": str(error)}
    except Exception as error:  # drivers and compilers raise exceptions of many classes
        return {"status": "wrong", "found": " ".join(f"{type(error).__name__}: {error}".split())}


def main(name: str) -> int:
    """Run the check of that name in this process and print its finding; return 1 if something is wrong, else 0."""
    found = look(next(check.at for check in CHECKS if check.name == name))
    print(f"{found['status']} {name}: {found['found']}")
    return 1 if found["status"] == "wrong" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
