"""The result of a benchmark, and the files that it is written to: ``results.json``, and ``results.csv`` with its records.

A benchmark is a module of ``hoptrain.benchmarks``. The first line of its docstring is the question that it answers. ``run(args)`` returns a ``Result``; an
optional ``add_arguments(parser)`` adds options. ``args`` always has ``quick``.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil  # installed with PyG, which depends on it

from hoptrain.engine import InputError
from hoptrain.engine.machine import allowed_cores

Record: TypeAlias = Mapping[str, Any]
"""One row of a table: names and plain values (text, number, bool or None)."""

_RECORD = (str, int, float, bool, type(None)), "values of a record must be text, bool, finite numbers or None; use None for missing values"
_SUMMARY = (int, float), "values of a summary must be finite numbers; put other values into the records"

HOPTRAIN = "hoptrain"
"""Name of hoptrain in the result tables."""

_LOOK_S = 0.2
"""Seconds for which ``load`` measures the CPU time of other programs."""
_CHECKOUT = Path(__file__).resolve().parents[2]
"""Root folder of the repository, with the symbolic links of ``hoptrain/`` resolved."""
PACKAGES = (
    "hoptrain",
    "numpy",
    "numba",
    "llvmlite",
    "numba-cuda",
    "torch",
    "torch-geometric",
    "pytorch-lightning",
    "torchmetrics",
    "dgl",
    "torch-sparse",
    "pyg-lib",
    "ogb",
    "scikit-learn",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The result of a benchmark: its records, a summary of them, and the seeds.

    Attributes:
        records: the measurements, one flat row each.
        summary: the few numbers that answer the question, by name.
        seeds: every random seed that was used.
    """

    records: Sequence[Record]
    summary: Mapping[str, float]
    seeds: Sequence[int]


def write_results(
    folder: Path,
    name: str,
    result: Result,
    *,
    quick: bool,
    command: str,
    revision: str | None = None,
    load: Mapping[str, float] | None = None,
) -> Path:
    """Write ``results.csv`` with the records and ``results.json`` with the records and their conditions. Return the path of ``results.json``.

    Files are written atomically.

    Args:
        folder: where to write.
        name: name of the benchmark.
        result: its result.
        quick: whether it ran at a small scale.
        command: the command that ran.
        revision: ``commit()`` from before the benchmark ran; by default the current commit, which may have changed during a long run.
        load: load of the machine before the benchmark ran (``load()``).

    Raises:
        InputError: a record or the summary has a value that is not plain and finite, or a file cannot be written.
    """
    records = [_plain(f"records[{number}]", record, *_RECORD) for number, record in enumerate(result.records)]
    content = {
        "benchmark": name,
        "quick": quick,
        "machine": machine(),
        "versions": versions(),
        "commit": revision or commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "load": dict(load or {}),
        "seeds": [int(seed) for seed in result.seeds],
        "records": records,
        "summary": _plain("summary", result.summary, *_SUMMARY),
    }
    path = folder / "results.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
        _replace(path.with_suffix(".csv"), _comma_separated(records))
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}): results need a folder that you may write to; name another with --out"
        ) from error
    return path


def _comma_separated(records: Sequence[Record]) -> str:
    """Return the records as CSV, with a column for each name; missing values and None are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for record in records for name in record)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _plain(where: str, values: Mapping[str, Any], kinds: Sequence[type], rule: str) -> dict[str, Any]:
    """Return the values with NumPy scalars converted to Python's. Raises ``InputError`` if a value is not finite or not of ``kinds``."""
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}
    for key, value in plain.items():
        if not isinstance(key, str) or type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(f"{where}[{key!r}] is {value!r}: {rule}")
    return plain


def machine() -> dict[str, Any]:
    """Return facts about the hardware and the operating system. GPUs are listed only if the benchmark has imported torch, whose import takes seconds."""
    torch = sys.modules.get("torch")
    gpus = []
    if torch is not None and torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "cpu": _cpu_model(),
        "cores": allowed_cores(),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "os": f"{platform.system()} {platform.release()}",
        "gpus": gpus,
        "python": platform.python_version(),
    }


def load() -> dict[str, float]:
    """Return the load from other programs: ``busy_cores``, the number of cores that they use while this process sleeps, and the one-minute ``load_average``."""
    shares = psutil.cpu_percent(_LOOK_S, percpu=True)
    busy = sum(shares[core] for core in os.sched_getaffinity(0) if core < len(shares)) / 100
    return {"busy_cores": round(busy, 2), "load_average": round(os.getloadavg()[0], 2)}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor() or platform.machine()
    )


def versions() -> dict[str, str | None]:
    """Return the version of each relevant package, or None if it is not installed. No package is imported."""
    found: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(folder: Path = _CHECKOUT) -> str | None:
    """Return the git commit of the code, with ``-dirty`` if files differ from it; None if ``folder`` is not the root of a git repository.

    Args:
        folder: root of the repository. For a package installed inside another project's repository, that project's commit would be wrong.
    """
    try:
        top, head, changes = (
            subprocess.run(
                ["git", "-C", str(folder), *command.split()], capture_output=True, text=True, check=True, timeout=20
            ).stdout.strip()
            for command in ("rev-parse --show-toplevel", "rev-parse HEAD", "status --porcelain")
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if Path(top).resolve() != folder.resolve():
        return None
    return f"{head}-dirty" if changes else head
