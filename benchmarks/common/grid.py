"""A study as a grid of cells: each cell runs in its own processes with a time limit, round after round.

A cell is one combination of the grid's values. Each result is a line of ``cells.jsonl``, with the machine, its load from other programs before the round,
the versions and the commit. A study that is started again resumes: cells and rounds that have a line are not repeated. A cell that hung or failed has a
line too, and its log and stacks are kept.

A grid is a YAML file::

    rounds: 3                 # runs of each cell; all cells run once before the next round
    limit: 120                # time limit of a cell, in seconds
    all: {scale: 0.1}         # values for all cells
    grids:                    # each entry gives one cell for every combination of its values
      - {system: [hoptrain, dgl], workers: [0, 2]}
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from hoptrain.benchmarks.common.harness import commit, load, machine, versions
from hoptrain.benchmarks.common.trial import RAISED, Trial, run_trial
from hoptrain.engine import InputError
from hoptrain.engine.files.untrusted_yaml import read_yaml

FOUND = "found "
"""Prefix of the line in which a cell's program prints its measurements as JSON."""
SKIPPED = "skipped "
"""Prefix of the line in which a cell's program prints why it cannot measure."""
LINES = "cells.jsonl"
COMPLETED, HUNG, FAILED, LEFT_OUT = "completed", "hung", "failed", "skipped"
_KEYS = {"rounds", "limit", "all", "grids"}

C = TypeVar("C", bound=Any)
"""Class of the cells: a frozen dataclass that validates its fields, which are plain values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid(Generic[C]):
    """The ``cells`` to run, each ``rounds`` times, for at most ``limit`` seconds."""

    cells: Sequence[C]
    rounds: int
    limit: float

    def __post_init__(self) -> None:
        if not self.cells or self.rounds < 1 or self.limit <= 0:
            raise InputError(
                f"a grid of {len(self.cells)} cells, {self.rounds} rounds and a limit of {self.limit:g} s: "
                "cells and rounds must be at least 1, the limit above 0; correct the grid"
            )


def read_grid(path: Path, make: Callable[..., C]) -> Grid[C]:
    """Read a grid from its file. ``make`` is the class of the cells.

    Raises:
        InputError: the file cannot be read or is not YAML, a key is unknown, or a cell rejects a value.
    """
    try:
        content = read_yaml(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}): it must be a YAML file; configs/bench has examples"
        ) from error
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not YAML ({' '.join(str(error).split())}): fix the file") from error
    return parse_grid(content, make, str(path))


def parse_grid(content: Any, make: Callable[..., C], name: str) -> Grid[C]:
    """Return the grid that parsed YAML describes; ``name`` is used in error messages."""
    if not isinstance(content, dict) or not content.get("grids") or not set(content) <= _KEYS:
        keys = sorted(map(str, content)) if isinstance(content, dict) else content
        raise InputError(
            f"{name} has {keys}: a grid needs the key 'grids', and may have 'rounds', 'limit' and 'all'; add 'grids' or remove other keys"
        )
    common, rounds, limit = content.get("all") or {}, content.get("rounds", 3), content.get("limit", 300)
    if type(rounds) is not int or type(limit) not in (int, float):
        raise InputError(
            f"{name} has rounds {rounds!r} and limit {limit!r}: rounds must be an integer of 1 or more, limit a number of seconds; change them"
        )
    cells = [_cell(make, common | point, name) for axes in content["grids"] for point in _points(axes, name)]
    return Grid(cells=list(dict.fromkeys(cells)), rounds=rounds, limit=float(limit))


def _points(axes: Any, name: str) -> Iterator[dict[str, Any]]:
    if not isinstance(axes, dict) or not all(isinstance(values, list) for values in axes.values()):
        raise InputError(f"{name} has {axes!r} in grids: each key of an entry needs a list of values; write [value] for one value")
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def _cell(make: Callable[..., C], values: Mapping[str, Any], name: str) -> C:
    try:
        return make(**with_tuples(values))
    except TypeError as error:
        raise InputError(f"{name}: {re.sub(r'^.*__init__[(][)] ', 'a cell ', str(error))}; see 'hoptrain bench scale --help'") from error


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cell's values with tuples instead of the lists that YAML and JSON give."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def run_grid(grid: Grid[C], command_of: Callable[[C], Sequence[str]], folder: Path, *, again: bool = False) -> list[dict[str, Any]]:
    """Run the cells and rounds that have no line in ``folder`` yet. Return all lines of the grid, including those of earlier runs.

    Args:
        grid: the cells.
        command_of: returns the command of a cell. The program prints a line that starts with ``FOUND`` or ``SKIPPED``.
        folder: folder of ``cells.jsonl`` and of ``logs``, the programs' output.
        again: also repeat cells that hung, failed or were skipped before.

    Raises:
        InputError: the folder holds lines of another machine.
    """
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    path = folder / LINES
    lines = {_place(line): line for line in read_lines(folder) if not again or line["outcome"] == COMPLETED}
    facts: dict[str, Any] = {"machine": machine(), "versions": versions(), "commit": commit(), "interpreter": sys.executable}
    _refuse_other_machine(lines.values(), facts["machine"], folder)
    if path.exists() and not path.read_text(encoding="utf-8").endswith("\n"):
        # ends an incomplete last line that an interrupted run left
        path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    loads: dict[int, dict[str, float]] = {}
    wanted = [(key_of(cell), number, cell) for number in range(grid.rounds) for cell in _turned(grid.cells, number)]
    for i, (key, number, cell) in enumerate(wanted, start=1):
        if (key, number) in lines:
            continue
        if number not in loads:
            loads[number] = load()
        log = folder / "logs" / f"{key}-{number}.log"
        line = (
            {"key": key, "round": number, "cell": asdict(cell)} | _try(command_of(cell), grid.limit, log) | facts | {"load": loads[number]}
        )
        text = json.dumps(line | {"date": datetime.now(UTC).isoformat(timespec="seconds")})
        lines[key, number] = json.loads(text)  # gives values the types that they have when the file is read
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        print(
            f"[{i}/{len(wanted)}] round {number}: {_brief(cell, grid.cells)}: {line['outcome']} ({line['seconds']:.0f} s) {line['why'] or ''}",
            flush=True,
        )
    return [lines[key, number] for key, number, _ in wanted]


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return a folder's lines: the last line of each cell and round, without incomplete lines. The list is empty if there is no file."""
    path, found = folder / LINES, {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[_place(line)] = line
    return list(found.values())


def key_of(cell: Any) -> str:
    """Return an identifier of a cell that depends only on its values."""
    return hashlib.blake2b(json.dumps(asdict(cell), sort_keys=True).encode(), digest_size=6).hexdigest()


def _place(line: Mapping[str, Any]) -> tuple[str, int]:
    return line["key"], line["round"]


def _turned(cells: Sequence[C], number: int) -> Sequence[C]:
    """Return the cells in the order of round ``number``. The order rotates, so that the first cell differs from round to round."""
    shift = number % len(cells)
    return [*cells[shift:], *cells[:shift]]


def _brief(cell: Any, cells: Sequence[Any]) -> str:
    """Return as text those fields of a cell whose values are not equal in all cells."""
    return ", ".join(f"{name} {value}" for name, value in asdict(cell).items() if any(getattr(other, name) != value for other in cells))


def _refuse_other_machine(lines: Any, here: Mapping[str, Any], folder: Path) -> None:
    for line in lines:
        there = line["machine"]
        if any(there[name] != here[name] for name in ("cpu", "cores", "memory")):
            raise InputError(
                f"{folder} holds results of another machine ({there['cpu']}, {there['cores']} cores): results of different machines cannot be compared; "
                "name another folder with --out"
            )


def _try(command: Sequence[str], limit: float, log: Path) -> dict[str, Any]:
    trial = run_trial(command, limit, log)
    skipped = _said(SKIPPED, trial.text)
    found = _said(FOUND, trial.text)
    outcome, why = COMPLETED, None
    if not trial.ended:
        outcome, why = HUNG, trial.where
    elif skipped is not None:
        outcome, why = LEFT_OUT, skipped
    elif trial.code or found is None:
        outcome, why = FAILED, _said(RAISED, trial.text) or _last_line(trial)
    if outcome == COMPLETED:
        log.unlink()
    return {
        "outcome": outcome,
        "why": why,
        "log": None if outcome == COMPLETED else str(Path("logs") / log.name),
        "seconds": trial.seconds,
        "orphans": trial.orphans,
        "found": json.loads(found) if outcome == COMPLETED and found else None,
    }


def _said(beginning: str, text: str) -> str | None:
    match = re.search(f"^{re.escape(beginning)}(.*)$", text, re.MULTILINE)
    return None if match is None else match[1]


def _last_line(trial: Trial) -> str:
    lines = [line for line in trial.text.splitlines() if line.strip()]
    return f"exit code {trial.code}: {lines[-1].strip() if lines else 'it printed nothing'}"
