"""``hoptrain doctor``: what this machine offers and what stands in the way, one line for each check.

Nothing heavy is imported here: packages that can fail to load, or crash while loading, are asked in a child process.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

TESTED_TORCH = "2.13.0"
COMPROMISED = {"2.6.2", "2.6.3"}
"""Releases of Lightning that an attacker uploaded (GHSA-w37p-236h-pfx3): importing one steals credentials."""

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
SHM = Path("/dev/shm")
GIB = 1 << 30
LOAD_SECONDS = 120
MIN_OPEN_FILES = 1024

Status = Literal["ok", "note", "wrong"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: what was looked at.
        status: ``ok``; ``note``, fine as it is but good to know; ``wrong``, something will fail.
        found: what is there.
        remedy: what to do, if there is anything to do.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``doctor``."""
    parser = subparsers.add_parser("doctor", help="look for what is missing or wrong on this machine", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run every check and print what was found; returns 0, or 1 if a check found something wrong."""
    findings = [examine(check) for check in CHECKS]
    wrong = [finding.name for finding in findings if finding.status == "wrong"]
    if args.json:
        print(json.dumps({"healthy": not wrong, "findings": [dataclasses.asdict(finding) for finding in findings]}, indent=1))
    else:
        print_findings(findings)
        print(f"\nWrong: {', '.join(wrong)}." if wrong else "\nNothing is wrong.")
    return 1 if wrong else 0


def examine(check: Callable[[], Finding]) -> Finding:
    """Run one check; one that fails itself is a finding too, since a doctor must not die of the disease."""
    try:
        return check()
    except Exception as error:
        name = getattr(check, "__name__", repr(check)).removeprefix("check_").replace("_", " ")
        return Finding(name, "wrong", f"the check failed: {type(error).__name__}: {error}", "report this line to the authors of hoptrain")


def print_findings(findings: Iterable[Finding]) -> None:
    """One line for each finding, its remedy below; wrapped to 120 columns or the terminal's width."""
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    for finding in findings:
        for text, lead in ((finding.found, f"{finding.status:<6}{finding.name:<18}"), (finding.remedy, " " * 24 + "-> ")):
            if text:
                print(textwrap.fill(text, width, initial_indent=lead, subsequent_indent=" " * len(lead)))


# Packages.


def version_of(*distributions: str) -> str | None:
    """Name and version of the first of these distributions that is installed; nothing is imported."""
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def ask_child(code: str, **environment: str) -> dict[str, Any]:
    """The dict that ``code`` prints as JSON in a child process; ``{"error": ...}`` if it fails, crashes or hangs."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=LOAD_SECONDS, env=os.environ | environment
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {LOAD_SECONDS} s"}
    if child.returncode < 0:
        return {"error": f"crashed with {signal.Signals(-child.returncode).name}"}
    if child.returncode > 0:
        return {"error": (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]}
    answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])  # packages may print while they load
    return answer


ASK_TORCH = """
import json, torch
gpus = []
if torch.cuda.is_available():
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    gpus = [[p.name, p.total_memory] for p in properties]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}))
"""


@functools.cache
def torch_facts() -> dict[str, Any]:
    """Version, CUDA version of the build (or None), names and bytes of the GPUs; or an error. Asked once."""
    return ask_child(ASK_TORCH)


def check_python() -> Finding:
    """Python's version; pip has seen to it that it is new enough."""
    return Finding("Python", "ok", f"{platform.python_version()} ({platform.python_implementation()}, {platform.machine()})")


def check_hoptrain() -> Finding:
    """Our own version."""
    version = version_of("hoptrain")
    if version is None:
        return Finding("hoptrain", "note", "running from a folder that is not installed", "pip install -e .")
    return Finding("hoptrain", "ok", version.split()[-1])


def check_torch() -> Finding:
    """Whether torch is there, loads, and is the tested version."""
    version = version_of("torch")
    if version is None:
        return Finding("torch", "wrong", "not installed", f"pip install torch=={TESTED_TORCH}")
    facts = torch_facts()
    if "error" in facts:
        remedy = f"install it again: pip install --force-reinstall torch=={TESTED_TORCH}"
        return Finding("torch", "wrong", f"{version} does not load: {facts['error']}", remedy)
    build = f"CUDA {facts['cuda']}" if facts["cuda"] else "CPU only"
    found = f"{facts['version']}, built for {build}"
    if facts["version"].split("+")[0] != TESTED_TORCH:
        return Finding("torch", "note", f"{found}; tested is {TESTED_TORCH}", f"if something fails: pip install torch=={TESTED_TORCH}")
    return Finding("torch", "ok", found)


def driver() -> str | None:
    """Version of the NVIDIA kernel driver, or None without one."""
    try:
        text = (PROC / "driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    return match[0] if match else "unknown"


def check_gpu() -> Finding:
    """GPUs as torch sees them, and why it sees none where a driver is loaded."""
    facts, version = torch_facts(), driver()
    if facts.get("gpus"):
        gpus = ", ".join(f"{name} ({memory / GIB:.0f} GiB)" for name, memory in facts["gpus"])
        return Finding("GPU", "ok", f"{gpus}; driver {version or 'unknown'}, CUDA {facts['cuda']}")
    if version is None or "error" in facts:
        return Finding("GPU", "note", "none seen: the CPU backend is used")
    if facts["cuda"] is None:
        return Finding("GPU", "note", f"driver {version} is loaded, but torch is built for the CPU only", "install a CUDA build of torch")
    found = f"driver {version} is loaded, but torch (CUDA {facts['cuda']}) sees no GPU: the CPU backend would be used"
    return Finding(
        "GPU", "wrong", found, "look at nvidia-smi and $CUDA_VISIBLE_DEVICES; update the driver if it is older than torch's CUDA"
    )


def check_lightning() -> Finding:
    """Whether pytorch-lightning is there, and no compromised release of it. It is not imported: that is what such a release waits for."""
    for distribution in ("pytorch-lightning", "lightning"):
        version = version_of(distribution)
        if version and version.split()[-1] in COMPROMISED:
            remedy = f"pip uninstall {distribution}, install 2.6.6, and replace every credential this account could read"
            return Finding("Lightning", "wrong", f"{version} is a compromised release that steals credentials on import", remedy)
    version = version_of("pytorch-lightning")
    if version is None:
        return Finding("Lightning", "wrong", "not installed", "pip install 'pytorch-lightning>=2.5,!=2.6.2,!=2.6.3,<3'")
    return Finding("Lightning", "ok", version)


def check_numba() -> Finding:
    """Whether numba is there and loads: every kernel needs it."""
    version, llvmlite = version_of("numba"), version_of("llvmlite")
    if version is None or llvmlite is None:
        return Finding("numba", "wrong", f"{version or 'numba not installed'}, {llvmlite or 'llvmlite not installed'}", "pip install numba")
    facts = ask_child("import json, numba; print(json.dumps({}))")
    if "error" in facts:
        return Finding("numba", "wrong", f"{version}, {llvmlite} do not load: {facts['error']}", "pip install --force-reinstall numba")
    return Finding("numba", "ok", f"{version}, {llvmlite}")


def required(name: str) -> Finding:
    """A package that has to be there; it is not imported."""
    version = version_of(name)
    return Finding(name, "ok", version) if version else Finding(name, "wrong", "not installed", f"pip install {name}")


def optional(name: str, distributions: tuple[str, ...], purpose: str, needs_driver: bool = False) -> Finding:
    """A package that may be absent; one for GPUs is recommended where a driver is loaded."""
    version = version_of(*distributions)
    if version:
        return Finding(name, "ok", version)
    return Finding(
        name, "note", f"not installed: optional, for {purpose}", "pip install 'hoptrain[cuda]'" if needs_driver and driver() else ""
    )


# The machine.


def check_shm() -> Finding:
    """Size of /dev/shm; containers get 64 MiB unless told otherwise."""
    if not SHM.is_dir():
        return Finding("/dev/shm", "note", "absent: torch and NCCL cannot share memory between processes", "mount a tmpfs there")
    usage = shutil.disk_usage(SHM)
    found = f"{usage.total / GIB:.1f} GiB, {usage.free / GIB:.1f} GiB free"
    if usage.free < GIB:
        return Finding("/dev/shm", "note", f"{found}: tight for torch and NCCL", "in a container: docker run --shm-size=8g, or --ipc=host")
    return Finding("/dev/shm", "ok", found)


def check_memfd() -> Finding:
    """Anonymous memory files, which carry the batches of the sampler processes."""
    try:
        fd = os.memfd_create("hoptrain-doctor")
        os.posix_fallocate(fd, 0, 4096)
        os.close(fd)
    except (AttributeError, OSError) as error:
        found = f"not available ({error}): batches travel through files in {tempfile.gettempdir()}"
        return Finding("shared memory", "note", found, "use Linux 3.17 or newer for the faster way")
    return Finding("shared memory", "ok", "memfd_create works")


def _limit(value: int, unit: int = 1) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value // unit:,}"


def check_open_files() -> Finding:
    """The limit of open files; each sampler process takes a handful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"at most {_limit(soft)} (hard limit {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        return Finding("open files", "note", f"{found}: few for many workers", f"ulimit -n {MIN_OPEN_FILES} or more, before the start")
    return Finding("open files", "ok", found)


def check_locked_memory() -> Finding:
    """The limit of locked memory; InfiniBand needs it, CUDA's pinned memory does not count."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Finding("locked memory", "ok", f"at most {_limit(soft, 1024)} KiB" if soft != resource.RLIM_INFINITY else "unlimited")


def _cgroup_folders() -> list[Path]:
    """The folders of this process's cgroup, from its own to the root: a limit in any of them binds."""
    try:
        lines = (PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    folder = CGROUP / own
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(CGROUP))]


def _cgroup_values(*files: str) -> list[list[str]]:
    """The words of these files, where they exist in a folder of our cgroup (version 2, or version 1 as containers mount it)."""
    return [(folder / file).read_text().split() for folder in _cgroup_folders() for file in files if (folder / file).is_file()]


def cgroup_cores() -> float | None:
    """Cores that the cgroup's quota allows, or None without a quota."""
    quotas = [int(quota) / int(period) for quota, period in _cgroup_values("cpu.max") if quota != "max"]
    old = zip(_cgroup_values("cpu/cpu.cfs_quota_us"), _cgroup_values("cpu/cpu.cfs_period_us"), strict=False)
    quotas += [int(quota) / int(period) for (quota,), (period,) in old if int(quota) > 0]
    return min(quotas, default=None)


def cgroup_memory() -> int | None:
    """Bytes that the cgroup allows, or None without a limit."""
    values = [value for (value,) in _cgroup_values("memory.max", "memory/memory.limit_in_bytes")]
    limits = [int(value) for value in values if value != "max" and int(value) < 1 << 60]  # version 1 writes "none" as about 2**63
    return min(limits, default=None)


def check_cores() -> Finding:
    """Cores that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cores()
    found = f"{allowed} of {os.cpu_count()}" + (f", cgroup quota {quota:.1f}" if quota is not None else "")
    if quota is not None and quota < allowed:
        remedy = f"give no more than {max(1, int(quota))} workers and threads, or raise the quota"
        return Finding("cores", "note", f"{found}: more threads than the quota wait for one another", remedy)
    return Finding("cores", "ok", found)


def check_memory() -> Finding:
    """Memory of the machine and of our cgroup."""
    text = (PROC / "meminfo").read_text()
    sizes = {key: int(kib) * 1024 for key, kib in re.findall(r"(\w+):\s+(\d+) kB", text)}
    total, available = sizes["MemTotal"], sizes["MemAvailable"]
    limit = cgroup_memory()
    found = f"{available / GIB:.1f} GiB available of {total / GIB:.1f} GiB"
    if limit is not None and limit < total:
        found += f", cgroup limit {limit / GIB:.1f} GiB"
    if min(available, limit or available) < 2 * GIB:
        return Finding("memory", "note", f"{found}: little for torch and a graph", "end other programs, or raise the limit")
    return Finding("memory", "ok", found)


def check_kernel_cache() -> Finding:
    """Whether compiled kernels can be kept in a folder that nobody else can write."""
    code = "import json; from hoptrain.kernels.cpu.compile import private_cache_root as root; print(json.dumps({'root': str(root())}))"
    with tempfile.TemporaryDirectory() as temporary:  # where the child would put a substitute
        facts = ask_child(code, TMPDIR=temporary)
        if "error" in facts:
            return Finding("kernel cache", "wrong", f"the kernels do not load: {facts['error']}", "see numba above")
        if not facts["root"].startswith(temporary):
            return Finding("kernel cache", "ok", facts["root"])
    wanted = Path(os.environ.get("HOPTRAIN_CACHE") or "~/.cache/hoptrain") / "numba"
    found = f"{wanted} cannot be used, or others may write it or a folder above it: compiled kernels go to a temporary folder"
    remedy = f"chmod go-w {wanted} and the folders above it that are yours, or set $HOPTRAIN_CACHE to a folder of your own"
    return Finding("kernel cache", "note", found, remedy)


def check_data() -> Finding:
    """Where data sets are looked for."""
    value = os.environ.get("HOPTRAIN_DATA")
    if not value:
        return Finding("$HOPTRAIN_DATA", "note", "not set: data sets are downloaded into the cache folder")
    if not Path(value).is_dir():
        return Finding("$HOPTRAIN_DATA", "wrong", f"{value} is not a folder", "make the folder, or unset the variable")
    return Finding("$HOPTRAIN_DATA", "ok", value)


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_hoptrain,
    check_torch,
    check_gpu,
    check_lightning,
    check_numba,
    functools.partial(optional, "numba-cuda", ("numba-cuda",), "sampling on NVIDIA GPUs", needs_driver=True),
    functools.partial(required, "torch-geometric"),
    functools.partial(optional, "dgl", ("dgl",), "graphs and layers of DGL"),
    functools.partial(required, "ogb"),
    check_shm,
    check_memfd,
    check_open_files,
    check_locked_memory,
    check_cores,
    check_memory,
    check_kernel_cache,
    check_data,
)
