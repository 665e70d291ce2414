"""``hoptrain doctor``: checks this machine and the installed packages, and prints a line for each check; ``--gpu`` tests sampling on a GPU.

Packages that may fail or crash when they are imported are imported only in a child process.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hoptrain.trainers.commands.checks import gpu, machine, packages
from hoptrain.trainers.commands.checks.finding import Finding

CHECKS: tuple[Callable[[], Finding], ...] = (
    packages.check_python,
    packages.check_hoptrain,
    packages.check_torch,
    packages.check_gpu,
    packages.check_lightning,
    packages.check_numba,
    functools.partial(packages.optional, "numba-cuda", ("numba-cuda",), "sampling on NVIDIA GPUs", needs_driver=True),
    packages.check_cupy,
    functools.partial(packages.required, "torch-geometric"),
    functools.partial(packages.optional, "dgl", ("dgl",), "hoptrain.dgl and the convolutions of DGL"),
    functools.partial(packages.required, "ogb"),
    machine.check_shm,
    machine.check_memfd,
    machine.check_open_files,
    machine.check_locked_memory,
    machine.check_cores,
    machine.check_memory,
    machine.check_kernel_cache,
    machine.check_data,
)
_NO_GPU = "install NVIDIA's driver and a CUDA build of torch; in a container, pass the GPU to it (--gpus all); the CPU needs none of this"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``doctor``."""
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine and the installed packages",
        description="Check this machine and the installed packages: one line for each check, with a remedy below it. "
        "The exit code is 1 if something is wrong.",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--gpu", action="store_true", help="test sampling on this machine's GPU instead, step by step; takes a minute or more"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run all checks and print their findings; return 1 if something is wrong, or no GPU can be tested, else 0."""
    reason = gpu.reason_against() if args.gpu else None
    if reason and not args.json:
        print(f"hoptrain: {reason}", file=sys.stderr)
        return 1
    findings = []
    for finding in [Finding("GPU", "wrong", reason, _NO_GPU)] if reason else gpu.findings() if args.gpu else general():
        findings.append(finding)
        if not args.json:
            print_findings([finding])
    wrong = [finding.name for finding in findings if finding.status == "wrong"]
    if args.json:
        print(json.dumps({"healthy": not wrong, "findings": [dataclasses.asdict(finding) for finding in findings]}, indent=1))
    else:
        print(f"\nWrong: {', '.join(wrong)}." if wrong else "\nNothing is wrong.")
    return 1 if wrong else 0


def general() -> list[Finding]:
    """Run the checks of the machine and of packages, and return their findings."""
    with ThreadPoolExecutor() as pool:  # in threads, since checks mostly wait for child processes that import a package
        return list(pool.map(examine, CHECKS))


def examine(check: Callable[[], Finding]) -> Finding:
    """Run one check and return its finding. An exception in the check itself becomes a finding too."""
    try:
        return check()
    except Exception as error:
        name = getattr(check, "__name__", repr(check)).removeprefix("check_").replace("_", " ")
        return Finding(
            name, "wrong", f"the check itself failed: {type(error).__name__}: {error}", "report this line to the authors of hoptrain"
        )


def print_findings(findings: Iterable[Finding]) -> None:
    """Print each finding with its remedy below, wrapped to the width of the terminal, at most 120 columns."""
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    for finding in findings:
        for text, lead in ((finding.found, f"{finding.status:<6}{finding.name:<18}"), (finding.remedy, " " * 24 + "-> ")):
            if text:
                print(textwrap.fill(text, width, initial_indent=lead, subsequent_indent=" " * len(lead)), flush=True)
