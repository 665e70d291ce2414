"""Checks of packages: which are installed, whether they load, and which GPUs torch sees."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import threading
from typing import Any

from hoptrain.trainers.commands.checks.child import ask_child
from hoptrain.trainers.commands.checks.finding import GIB, Finding
from hoptrain.trainers.commands.checks.machine import driver

TESTED_TORCH = "2.13.0"
"""Version of torch that hoptrain is tested with."""
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
"""Names of the distributions that contain CuPy."""
COMPROMISED = {"2.6.2", "2.6.3"}
"""Releases of Lightning that an attacker uploaded (GHSA-w37p-236h-pfx3): importing one steals credentials."""


def version_of(*distributions: str) -> str | None:
    """Return name and version of the first of these distributions that is installed, or None. Nothing is imported."""
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


ASK_TORCH = """
import json, torch
gpus = []
if torch.cuda.is_available():
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    gpus = [[p.name, p.total_memory] for p in properties]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}))
"""


_ASKING = threading.Lock()


def torch_facts() -> dict[str, Any]:
    """Return torch's version, its CUDA version (or None), and name and bytes of each GPU; or an error. The result is cached."""
    with _ASKING:
        return _ask_torch()


@functools.cache
def _ask_torch() -> dict[str, Any]:
    return ask_child(ASK_TORCH)


def check_python() -> Finding:
    """Report the version of Python. pip has ensured that it is new enough."""
    return Finding("Python", "ok", f"{platform.python_version()} ({platform.python_implementation()}, {platform.machine()})")


def check_hoptrain() -> Finding:
    """Report the version of hoptrain."""
    version = version_of("hoptrain")
    if version is None:
        return Finding("hoptrain", "note", "running from a source folder that is not installed", "pip install -e .")
    return Finding("hoptrain", "ok", version.split()[-1])


def check_torch() -> Finding:
    """Check that torch is installed, loads, and has the tested version."""
    version = version_of("torch")
    if version is None:
        return Finding("torch", "wrong", "not installed", f"pip install torch=={TESTED_TORCH}")
    facts = torch_facts()
    if "error" in facts:
        remedy = f"reinstall it: pip install --force-reinstall torch=={TESTED_TORCH}"
        return Finding("torch", "wrong", f"{version} does not load: {facts['error']}", remedy)
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else "CPU only"
    found = f"{facts['version']}, built for {build}"
    if facts["version"].split("+")[0] != TESTED_TORCH:
        return Finding(
            "torch", "note", f"{found}; hoptrain is tested with {TESTED_TORCH}", f"if something fails: pip install torch=={TESTED_TORCH}"
        )
    return Finding("torch", "ok", found)


def check_gpu() -> Finding:
    """Report the GPUs that torch sees, or why it sees none although a driver is loaded."""
    facts, version = torch_facts(), driver()
    if facts.get("gpus"):
        gpus = ", ".join(f"{name} ({memory / GIB:.0f} GiB)" for name, memory in facts["gpus"])
        return Finding("GPU", "ok", f"{gpus}; driver {version or 'unknown'}, CUDA {facts['cuda']}")
    if version is None or "error" in facts:
        return Finding("GPU", "note", "none found: training runs on the CPU")
    if facts["cuda"] is None:
        return Finding("GPU", "note", f"driver {version} is loaded, but torch is built for the CPU only", "install a CUDA build of torch")
    found = f"driver {version} is loaded, but torch (CUDA {facts['cuda']}) sees no GPU: training would run on the CPU"
    return Finding(
        "GPU", "wrong", found, "check nvidia-smi and $CUDA_VISIBLE_DEVICES; update the driver if it is older than torch's CUDA version"
    )


def check_lightning() -> Finding:
    """Check that pytorch-lightning is installed and is not a compromised release. It is not imported, since that would run the malicious code."""
    for distribution in ("pytorch-lightning", "lightning"):
        version = version_of(distribution)
        if version and version.split()[-1] in COMPROMISED:
            remedy = f"pip uninstall {distribution}, install 2.6.6, and replace every credential that this account can read"
            return Finding("Lightning", "wrong", f"{version} is a compromised release that steals credentials on import", remedy)
    version = version_of("pytorch-lightning")
    if version is None:
        return Finding("Lightning", "wrong", "not installed", "pip install 'pytorch-lightning>=2.5,!=2.6.2,!=2.6.3,<3'")
    return Finding("Lightning", "ok", ", ".join(filter(None, (version, version_of("lightning")))))


def check_numba() -> Finding:
    """Check that numba is installed and loads, since every kernel needs it."""
    version, llvmlite = version_of("numba"), version_of("llvmlite")
    if version is None or llvmlite is None:
        return Finding("numba", "wrong", f"{version or 'numba not installed'}, {llvmlite or 'llvmlite not installed'}", "pip install numba")
    facts = ask_child("import json, numba; print(json.dumps({}))")
    if "error" in facts:
        return Finding("numba", "wrong", f"{version}, {llvmlite} do not load: {facts['error']}", "pip install --force-reinstall numba")
    return Finding("numba", "ok", f"{version}, {llvmlite}")


def check_cupy() -> Finding:
    """Report which kernels gather features on a GPU: CUDA C++ if CuPy is installed, else Numba's."""
    version = version_of(*CUPY)
    if version:
        return Finding("CuPy", "ok", f"{version}: CUDA C++ kernels gather features on GPUs")
    return Finding(
        "CuPy", "note", "not installed: Numba's kernels gather features on GPUs", "pip install 'hoptrain[cuda]'" if driver() else ""
    )


def required(name: str) -> Finding:
    """Check that a required package is installed. It is not imported."""
    version = version_of(name)
    return Finding(name, "ok", version) if version else Finding(name, "wrong", "not installed", f"pip install {name}")


def optional(name: str, distributions: tuple[str, ...], purpose: str, needs_driver: bool = False) -> Finding:
    """Report whether an optional package is installed. With ``needs_driver``, recommend the package only if a GPU driver is loaded."""
    version = version_of(*distributions)
    if version:
        return Finding(name, "ok", version)
    return Finding(
        name, "note", f"not installed: optional, for {purpose}", "pip install 'hoptrain[cuda]'" if needs_driver and driver() else ""
    )
