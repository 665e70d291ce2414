"""Result table and summary of ``hoptrain bench trainings``, from the lines of ``cells.jsonl``: medians over the rounds, with ratios formed within a round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from hoptrain.benchmarks.common.grid import COMPLETED, FAILED, HUNG
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.trainings.cell import SYSTEMS

if TYPE_CHECKING:
    from hoptrain.benchmarks.trainings.bound import Bound

Line: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[Any, ...]

PLACE = ("dataset", "scale", "arch", "hidden", "device", "features")
"""Fields that identify a training, for all systems and settings."""
SETTING = ("workers", "threads")
TOLERANCE = 3.0
"""Percentage points by which an accuracy may be below the best accuracy of the systems with the same initial weights."""


def place_of(cell: Mapping[str, Any]) -> Place:
    """Return the fields of a cell or row that identify what was trained (``PLACE``): data set, architecture, device and so on."""
    return tuple(cell[name] for name in PLACE)


def rows_of(lines: Sequence[Line], bounds: Mapping[Place, Bound] = MappingProxyType({})) -> list[Row]:
    """Return a row for each system and training, at the system's best setting, which has the most rounds. Unavailable systems have no measurements.

    ``bounds`` are the lower bounds of ``hoptrain fit``, by training.
    """
    groups: dict[Place, dict[str, dict[Place, list[Line]]]] = {}
    for line in lines:
        cell = line["cell"]
        of_system = groups.setdefault(place_of(cell), {}).setdefault(cell["system"], {})
        of_system.setdefault((cell["epochs"], *(cell[name] for name in SETTING)), []).append(line)
    rows = [row for place, systems in groups.items() for row in _rows(place, {name: _best(found) for name, found in systems.items()})]
    for row in rows:
        if row["system"] == SYSTEMS["fit"].name and row["step_ms"] is not None and place_of(row) in bounds:
            row["bound_x"] = row["step_ms"] / bounds[place_of(row)].ms
    return rows


def _best(settings: Mapping[Place, Sequence[Line]]) -> Sequence[Line]:
    """Return the lines of a system's best setting: the setting with the most rounds, then with the most epochs, then with the shortest step."""
    rank = {key: (len(lines), key[0], -min(_by_round(lines, "step_s").values(), default=float("inf"))) for key, lines in settings.items()}
    return settings[max(rank, key=lambda key: rank[key])]


def _rows(place: Place, systems: Mapping[str, Sequence[Line]]) -> list[Row]:
    steps = {name: _by_round(lines, "step_s") for name, lines in systems.items()}
    baselines = [found for name, found in steps.items() if SYSTEMS[name].family != HOPTRAIN]
    rows = {name: _row(place, name, systems[name], _ratio(steps[name], baselines)) for name in SYSTEMS if name in systems}
    most: dict[str, float] = {}
    for name, row in rows.items():
        weights = SYSTEMS[name].weights
        most[weights] = max(most.get(weights, 0.0), row["accuracy"] or 0.0)
    for name, row in rows.items():
        if row["accuracy"] is not None:
            row["is_equal"] = 100 * (most[SYSTEMS[name].weights] - row["accuracy"]) <= TOLERANCE
    return list(rows.values())


def _row(place: Place, system: str, lines: Sequence[Line], faster: float | None) -> Row:
    found = [line["found"] for line in lines if line["outcome"] == COMPLETED]
    middle = {name: statistics.median(one[name] for one in found) if found else None for name in ("step_s", "cpu_s", "accuracy")}
    step_ms = None if middle["step_s"] is None else 1e3 * middle["step_s"]
    outcomes = [line["outcome"] for line in lines]
    return {
        "system": SYSTEMS[system].name,
        **dict(zip(PLACE, place, strict=True)),
        "outcome": next((bad for bad in (HUNG, FAILED) if bad in outcomes), outcomes[0]),
        "step_ms": step_ms,
        "spread": (max(one["step_s"] for one in found) - min(one["step_s"] for one in found)) / middle["step_s"] if found else None,
        "cpu_ms": None if middle["cpu_s"] is None else 1e3 * middle["cpu_s"],
        "faster": faster,
        "bound_x": None,  # set by rows_of
        "memory_gb": max(one["pss"] for one in found) / 1e9 if found else None,
        "gpu_gb": max(one["gpu"] for one in found) / 1e9 if found and place[PLACE.index("device")] == "cuda" else None,
        "accuracy": middle["accuracy"],
        "is_equal": None,  # set after the rows of all systems are made
        **{name: lines[0]["cell"][name] if found else None for name in SETTING},
        "first_epoch_s": statistics.median(one["first_epoch_s"] for one in found) if found else None,
        "steps": found[0]["steps"] if found else None,
        "rounds": len(found),
        "why": next((line["why"] for line in lines if line["why"]), None),
    }


def _by_round(lines: Sequence[Line], name: str) -> dict[int, float]:
    return {line["round"]: line["found"][name] for line in lines if line["outcome"] == COMPLETED}


def _ratio(own: Mapping[int, float], baselines: Sequence[Mapping[int, float]]) -> float | None:
    """Return the fastest baseline's step time over this system's: the median of the rounds' ratios."""
    others = {number: [found[number] for found in baselines if number in found] for number in own}
    ratios = [min(others[number]) / step for number, step in own.items() if others[number]]
    return statistics.median(ratios) if ratios else None


_COMPARED = {"": (HOPTRAIN, ("PyG", "DGL")), "_pyg": ("hoptrain.pyg", "PyG"), "_dgl": ("hoptrain.dgl", "DGL")}
"""Suffix of a key in the summary -> prefix of the names of hoptrain's systems, and the prefix or prefixes of the baselines that they are compared with."""


def _fastest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda row: float(row["step_ms"]), default=None)


def summarize(rows: Sequence[Row]) -> dict[str, float]:
    """Return the numbers that answer the question, except for those that were not measured.

    Returns:
        ``min_faster``: speedup of hoptrain's fastest system over the fastest baseline, the minimum over the trainings;
        ``min_faster_pyg`` and ``min_faster_dgl``: speedup of hoptrain.pyg over PyG, and of hoptrain.dgl over DGL, from their medians;
        ``min_cpu_ratio``: CPU time of the fastest baseline's step over that of hoptrain's fastest system;
        ``accuracy_gap``: largest difference between accuracies in a training, in percentage points; ``unequal``: number of rows with ``is_equal`` False;
        ``bad_rows``: number of systems that hung or failed in a training; ``absent``: number of systems that are not available.
    """
    groups: dict[Place, list[Row]] = {}
    for row in rows:
        groups.setdefault(place_of(row), []).append(row)
    answers: dict[str, list[float]] = {}
    for group in groups.values():
        measured = [row for row in group if row["step_ms"] is not None]
        for name, (ours, theirs) in _COMPARED.items():
            own = _fastest(row for row in measured if row["system"].startswith(ours))
            other = _fastest(row for row in measured if row["system"].startswith(theirs))
            if own is not None and other is not None:
                ratio = other["step_ms"] / own["step_ms"] if name else own["faster"]
                answers.setdefault(f"min_faster{name}", []).append(ratio)
                if not name:
                    answers.setdefault("min_cpu_ratio", []).append(other["cpu_ms"] / own["cpu_ms"])
    scores = [[row["accuracy"] for row in group if row["accuracy"] is not None] for group in groups.values()]
    gaps = [100 * (max(found) - min(found)) for found in scores if len(found) > 1]
    counts = {
        "unequal": sum(row["is_equal"] is False for row in rows),
        "bad_rows": sum(row["outcome"] in (HUNG, FAILED) for row in rows),
        "absent": len({row["system"] for row in rows if row["outcome"] == "skipped"}),
    }
    return {name: min(values) for name, values in answers.items()} | ({"accuracy_gap": max(gaps)} if gaps else {}) | counts
