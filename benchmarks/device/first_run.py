"""``make gpu``: the checks to run first on a machine with a GPU, in parts of at most ten minutes that each leave a record.

A part is one command; its output is kept as ``OUT/PART.log``. If a part fails or exceeds its time limit, the next one runs all the same. The
last lines show how each part ended. Tests run in several processes, depending on the number of cores, and the sanitizers run at the same time. Timings
are also kept in ``benchmarks/results``, under the GPU's name. ``--dry-run`` only prints the commands, and needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from hoptrain.engine.device import cuda_status, is_simulated
from hoptrain.engine.machine import usable_cores
from hoptrain.trainers.commands.checks.child import run_within

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SECONDS = 570
"""Time limit of a part in seconds: less than ten minutes, including the time to end it."""
_GRACE = 15
"""Seconds that a part has after its time limit to end its processes, before it is killed."""
WELL, SKIPPED = "exit code 0", "not run"
_COUNTED = ("sample_requests", "transit_threads", "transit_blocks", "ask_direct", "ask_packed", "mark_tiles", "number_tiles", "gather_rows")
"""Names of the kernels that Nsight Compute (``ncu``) measures, since they are expected to take most of the time."""
_NATIVE = "gather_placed"
"""Name of the kernel that replaces ``gather_rows`` if CuPy is installed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A command that ``make gpu`` runs, with its time limit.

    Attributes:
        question: the question that the part answers.
        command: the program and its arguments; ``{out}`` is the folder of the records.
        tool: an external program that must be on the PATH, or None.
        environment: environment variables of the command.
        seconds: time limit in seconds.
        beside: whether the part may run at the same time as adjacent parts with this flag; timings may not.
        record: if given, the part's ``results.json`` is kept in ``benchmarks/results`` as ``GPU_RECORD.json``.
    """

    question: str
    command: Sequence[str]
    tool: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = SECONDS
    beside: bool = False
    record: str | None = None


_HOPTRAIN = (sys.executable, "-m", "hoptrain.trainers.cli")
_ONE_BULK = (sys.executable, "-m", "hoptrain.trainers.commands.checks.gpu", "sampling")
_OF_CUDA = (
    "tests/kernels/cuda", "tests/samplers/cuda", "tests/trainers/models/test_sums_on_device.py", "tests/trainers/models/test_dropout.py",
    "tests/golden/test_golden_cuda.py", "-m", "not long",
)  # fmt: skip
_PRODUCTS = ("--device", "cuda", "--graphs", "synthetic:products", "--fanouts", "15,10,5", "--modes", "all")


def num_processes(cores: int) -> int:
    """Return the number of test processes for ``cores``; three cores stay free for child processes of the tests and for the driver."""
    return max(1, cores - 3)


def _tests(question: str, *which: str, **environment: str) -> Part:
    options = "-n", str(num_processes(usable_cores())), "-o", "timeout_method=thread"  # a signal does not interrupt a kernel that hangs
    command = (sys.executable, "-m", "pytest", *options, *which)
    return Part(question=question, command=command, environment={"HOPTRAIN_TEST_GPU": "1"} | environment)


def _sanitizer(tool: str, *options: str) -> Part:
    return Part(
        question=f"does {tool} of compute-sanitizer find an error in a small bulk of each schedule?",
        command=("compute-sanitizer", "--tool", tool, *options, "--error-exitcode", "9", *_ONE_BULK),
        tool="compute-sanitizer",
        # otherwise arrays share an allocation, and only accesses past its end are detected
        environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        beside=True,
    )


def _thresholds(schedule: str) -> Part:
    options = "--schedules", schedule, "--bulk", "64", "--rounds", "3", "--out", f"{{out}}/{schedule}"
    return Part(
        question=f"would other block sizes and thresholds be faster with the schedule {schedule!r}?",
        command=(*_HOPTRAIN, "bench", "thresholds", *options),
        record=f"thresholds-{schedule}",
    )


PARTS: Mapping[str, Part] = {
    "doctor": Part(question="does everything work that sampling on a GPU needs?", command=(*_HOPTRAIN, "doctor", "--gpu")),
    "equality": _tests(
        "do batches equal the CPU's, in bulks of up to 64 mini-batches and with the default block size?", "tests/golden/test_bulks_cuda.py"
    ),
    "tests": _tests("do the CUDA tests pass with tiny thread blocks, so that even small bulks span several blocks?", *_OF_CUDA),
    "blocks": _tests("do the CUDA tests pass with the default block size?", *_OF_CUDA, HOPTRAIN_TEST_BLOCK="256"),
    # without reports of CUDA API calls that return an error, since hoptrain handles such errors
    "memcheck": _sanitizer("memcheck", "--report-api-errors", "no"),
    "racecheck": _sanitizer("racecheck"),
    "synccheck": _sanitizer("synccheck"),
    "initcheck": _sanitizer("initcheck"),
    "data": Part(
        question="how large is the graph of the timings? This part generates it", command=(*_HOPTRAIN, "data", "info", "synthetic:products")
    ),
    "timing": Part(
        question="how fast is each schedule with the graph on the device and on the host, and how fast are gathers compared with plain copies?",
        command=(*_HOPTRAIN, "bench", "sampler", *_PRODUCTS, "--bulks", "8", "64", "193", "--rounds", "3", "--out", "{out}/timing"),
    ),
    "fit": Part(
        question="how long do two epochs of a training take with sampling on the GPU?",
        command=(
            *(*_HOPTRAIN, "fit", "--config", "synthetic_products", "--data.scale", "0.2", "--data.sampler_device", "cuda"),
            *("--data.num_workers", "0", "--data.batch_size", "1024", "--trainer.max_epochs", "2"),
            *("--trainer.accelerator", "gpu", "--trainer.devices", "1", "--trainer.default_root_dir", "{out}/fit"),
        ),
    ),
    "precision": Part(
        question="do models lose accuracy if products are computed in TF32 or bfloat16?",
        command=(*_HOPTRAIN, "bench", "accuracy", "--precisions", "--out", "{out}/precision"),
        record="precision",
    ),
    "counters": Part(
        question="what do the GPU's performance counters show for the kernels that take most of the time?",
        command=(
            *("ncu", "--target-processes", "all", "--kernel-name", f"regex:.*({'|'.join((*_COUNTED, _NATIVE))}).*", "--launch-count", "60"),
            *("--section", "SpeedOfLight", "--section", "MemoryWorkloadAnalysis", "--section", "Occupancy", "--section", "LaunchStats"),
            *("--csv", "--log-file", "{out}/counters.csv", *_HOPTRAIN, "bench", "sampler", *_PRODUCTS),
            *("--scale", "0.2", "--bulks", "8", "--rounds", "1", "--quick", "--out", "{out}/counters"),
        ),
        tool="ncu",
    ),
    "sample": _thresholds("sample"),
    "transit": _thresholds("transit"),
}


def main(arguments: Sequence[str] | None = None, parts: Mapping[str, Part] = PARTS) -> int:
    """Run the parts. Return 0 if every part that ran succeeded, and 1 otherwise or without a usable GPU."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(parts)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="DIR", help="folder of the records (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    args = parser.parse_intermixed_args(arguments)
    if unknown := [name for name in args.parts if name not in parts]:
        parser.error(f"unknown part {unknown[0]!r}: choose among {', '.join(parts)}")
    chosen, out = list(dict.fromkeys(args.parts)) or list(parts), args.out.resolve()
    if args.dry_run:
        for name in chosen:
            print(as_typed(parts[name], out), end="\n\n")
        return 0
    if (reason := reason_against()) is not None:
        print(f"make gpu: {reason}", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    ends: dict[str, str] = {}
    for _, names in groupby(chosen, key=lambda name: parts[name].beside or name):
        ends |= run_together(list(names), parts, out)
    print()
    for name, end in ends.items():
        print(f"{name:<12}{end:<40}  {out / name}.log")
    return 0 if all(end == WELL or end.startswith(SKIPPED) for end in ends.values()) else 1


def reason_against() -> str | None:
    """Return, in one line, why no part can run on this machine; None if parts can run."""
    return cuda_status() or ("CUDA is simulated here: unset NUMBA_ENABLE_CUDASIM" if is_simulated() else None)


def command_of(part: Part, out: Path) -> list[str]:
    """Return a part's command with ``{out}`` replaced by the folder of records."""
    return [word.replace("{out}", str(out)) for word in part.command]


def as_typed(part: Part, out: Path) -> str:
    """Return a part as a shell command."""
    variables = [f"{name}={value}" for name, value in part.environment.items()]
    return f"# {part.question}\n{shlex.join(['timeout', '-s', 'INT', '-k', str(_GRACE), f'{part.seconds:g}', 'env', *variables, *command_of(part, out)])}"


def run_together(names: Sequence[str], parts: Mapping[str, Part], out: Path) -> dict[str, str]:
    """Run parts at the same time and return how each ended."""
    if len(names) == 1:  # in the main thread, where Ctrl-C ends it; with several parts, Ctrl-C has to wait for them, about a minute
        return {names[0]: run_part(names[0], parts[names[0]], out)}
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(lambda name: run_part(name, parts[name], out), names), strict=True))


def run_part(name: str, part: Part, out: Path) -> str:
    """Run a part in the project's root and keep its output as ``out/name.log``. Return how it ended, in a few words."""
    print(f"{name}: {part.question}", flush=True)
    with (out / f"{name}.log").open("w") as log:
        print(as_typed(part, out), file=log, flush=True)
        if part.tool and not shutil.which(part.tool):
            print(f"{part.tool} is not on the PATH", file=log)
            return f"{SKIPPED}: no {part.tool} here"
        try:
            environment = os.environ | part.environment
            options = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": ROOT, "env": environment}
            code, _, _ = run_within(part.seconds, command_of(part, out), grace=_GRACE, **options)
        except subprocess.TimeoutExpired:
            return f"too slow: ended after {part.seconds:g} s"
        except OSError as error:
            return f"did not start: {error.strerror}"
    if part.record and code == 0:
        keep(part.record, out / name / "results.json")
    return f"exit code {code}"


def keep(record: str, found: Path) -> None:
    """Copy a ``results.json`` to ``benchmarks/results/GPU_RECORD.json``, if it names a GPU."""
    for name in json.loads(found.read_text())["machine"]["gpus"][:1]:
        gpu = re.sub(r"\W+", "-", name.lower())
        shutil.copyfile(found, RESULTS / f"{gpu}_{record}.json")


if __name__ == "__main__":
    sys.exit(main())
