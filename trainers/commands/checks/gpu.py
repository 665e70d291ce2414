"""``hoptrain doctor --gpu``: whether what sampling on a GPU relies on works here, in a check for each thing.

Each check has a process of its own, and a deadline: a kernel that hangs cannot be interrupted, and one that fails leaves its process a device
that nothing works on any more. Nothing heavy is imported here; the checks lie in the modules beside this one.

``python -m hoptrain.trainers.commands.checks.gpu NAME`` makes one check in the very process, for tools that look at it from outside.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hoptrain.trainers.commands.checks.child import Asked, ask_child
from hoptrain.trainers.commands.checks.finding import Finding, NotHere, Status, Wrong

AT_ONCE = 4
"""Checks that run beside one another: each imports torch for seconds, and needs little of the device."""
_NUMBA, _TORCH, _ENGINE = (f"hoptrain.trainers.commands.checks.gpu_{part}" for part in ("numba", "torch", "engine"))


@dataclass(frozen=True, slots=True)
class Check:
    """A thing that sampling on a GPU relies on.

    Attributes:
        name: what it is called.
        at: "module:function"; the function returns what it found, or raises.
        remedy: what to do where it fails.
        seconds: its deadline; compiling is the most of what takes time.
    """

    name: str
    at: str
    remedy: str
    seconds: float = 120


_CUDA_BUILD = "install the CUDA build of torch that fits the driver, and look at $CUDA_VISIBLE_DEVICES"
_SHARED_MEMORY = "sample in a process without torch (num_workers=1), and report this line to the authors of hoptrain"

CHECKS: tuple[Check, ...] = (
    Check("numba.cuda", f"{_NUMBA}:versions", "pip install 'hoptrain[cuda]'"),
    Check("device", f"{_NUMBA}:device", "update the driver: it is older than the compiler, whose code it may not load"),
    Check(
        "kernel",
        f"{_NUMBA}:kernel",
        "pip install 'hoptrain[cuda]', whose compilers are of one release; unset $CUDA_HOME if it is another's",
    ),
    Check("kernel cache", f"{_NUMBA}:kernel_again", "every process will compile for seconds: look at 'kernel cache' of hoptrain doctor"),
    Check("host memory", f"{_NUMBA}:host_memory", 'use placement="device"; in a virtual machine, look at its settings of the IOMMU'),
    Check("torch", f"{_TORCH}:same_gpus", _CUDA_BUILD),
    Check("torch's stream", f"{_TORCH}:stream", _SHARED_MEMORY),
    Check("torch to Numba", f"{_TORCH}:torch_to_numba", _SHARED_MEMORY),
    Check("Numba to torch", f"{_TORCH}:numba_to_torch", _SHARED_MEMORY),
    Check("torch's memory", f"{_ENGINE}:memory_of_torch", _SHARED_MEMORY),
    Check(
        "gather",
        f"{_ENGINE}:gather",
        "uninstall CuPy: Numba's kernels do the same; or install the one for this CUDA: pip install 'hoptrain[cuda]'",
    ),
    Check("page lock", f"{_ENGINE}:locked_pages", "raise the limit of locked memory (ulimit -l)"),
    Check("graph capture", f"{_ENGINE}:graph_capture", "use --data.cuda_graphs false: each kernel of a bulk is launched by itself then"),
    Check(
        "shared pages", f"{_ENGINE}:shared_pages", "each rank makes a pinned copy of its own; raise the limit of locked memory (ulimit -l)"
    ),
    Check("IPC", f"{_NUMBA}:ipc", "GPUs do not share their gpu_cache out: each has its own; in a container: --ipc=host"),
    Check("peers", f"{_TORCH}:peers", "GPUs do not share their gpu_cache out: each has its own"),
    Check("sampling", f"{_ENGINE}:sampling", 'use device="cpu", and report this line to the authors of hoptrain', seconds=300),
)


def reason_against() -> str | None:
    """Why CUDA cannot be used here, in one line, or None."""
    code = "import json; from hoptrain.engine.device import cuda_status; print(json.dumps({'error': cuda_status()}))"
    reason: str | None = ask_child(code)["error"]
    return reason


def findings(checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Make the checks, some of them at once, and tell what they found in their order.

    They keep machine code in a folder that is new: "kernel" compiles it before others, which read it, begin.
    """
    alone = 1 + next((place for place, check in enumerate(checks) if check.name == "kernel"), -1)
    waiting, running = deque(checks), deque[tuple[Check, Asked]]()
    with tempfile.TemporaryDirectory(prefix="hoptrain-doctor-") as folder:
        try:
            for number, check in enumerate(checks):
                while waiting and len(running) < (AT_ONCE if number >= alone else 1):
                    code = f"import json; from {look.__module__} import look; print(json.dumps(look({waiting[0].at!r})))"
                    running.append((waiting[0], Asked(code, waiting[0].seconds, HOPTRAIN_NUMBA_ROOT=folder)))
                    waiting.popleft()
                answer = running[0][1].answer()
                running.popleft()
                status: Status = answer.get("status", "wrong")
                yield Finding(check.name, status, answer.get("found") or answer["error"], check.remedy if status == "wrong" else "")
        finally:
            for _, asked in running:
                asked.end()


def look(at: str) -> dict[str, str]:
    """Make the check at "module:function" in this process; the status and the text of its finding."""
    module, function = at.split(":")
    try:
        return {"status": "ok", "found": getattr(importlib.import_module(module), function)()}
    except NotHere as reason:
        return {"status": "note", "found": str(reason)}
    except Wrong as fault:
        return {"status": "wrong", "found": str(fault)}
    except Exception as error:  # also whatever a driver or a compiler says
        return {"status": "wrong", "found": " ".join(f"{type(error).__name__}: {error}".split())}


def main(name: str) -> int:
    """Make the check of that name here and print what it found; returns 1 if something is wrong."""
    found = look(next(check.at for check in CHECKS if check.name == name))
    print(f"{found['status']} {name}: {found['found']}")
    return 1 if found["status"] == "wrong" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
