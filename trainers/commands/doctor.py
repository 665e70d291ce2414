"""``hoptrain doctor``: what this machine offers and what stands in the way, one line for each check; ``--gpu`` tries out what a GPU has to do.

Nothing heavy is imported here: packages that can fail to load, or crash while loading, are asked in a child process.
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
    functools.partial(packages.optional, "dgl", ("dgl",), "graphs and layers of DGL"),
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
_NO_GPU = "install NVIDIA's driver and a torch for CUDA, in a container give it the GPU (--gpus all); training on the CPU needs none"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``doctor``."""
    parser = subparsers.add_parser("doctor", help="look for what is missing or wrong on this machine", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--gpu", action="store_true", help="try out, on this machine's GPU, each thing that sampling there relies on: a minute or more"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run every check and print what was found; returns 0, or 1 if a check found something wrong or there is no GPU to check."""
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
    """What the checks of the machine and its packages found."""
    with ThreadPoolExecutor() as pool:  # most of the time goes into children that import a package
        return list(pool.map(examine, CHECKS))


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
                print(textwrap.fill(text, width, initial_indent=lead, subsequent_indent=" " * len(lead)), flush=True)
