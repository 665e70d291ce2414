"""Result table and summary of a scalability study, from the lines of its ``cells.jsonl``: medians over the rounds, with ratios formed within a round."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from hoptrain.benchmarks.common.grid import COMPLETED, FAILED, HUNG
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.study.cell import PHASES

Line: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]

NAMES = {"hoptrain": "hoptrain", "pyg": "PyG", "dgl": "DGL", "papers": "authors' programs"}
PLACE = ("algorithm", "arch", "ranks", "workers", "batch_size", "allocator", "dataset", "scale")
"""Fields that, together with the system, identify a cell in the table."""
SHOWN = ("algorithm", "arch", "ranks", "workers", "batch_size", "allocator", "dataset")
"""Fields of a cell that a row of the report shows."""
_ASKED_ARCH, _ASKED_WORKERS = "sage", 2
"""Architecture and number of workers of the cells from which ``epoch_ratio_best_peer`` is computed."""


def rows_of(lines: Sequence[Line]) -> list[Row]:
    """Return one row for each cell, in the order of the lines; values that were not measured are None.

    ``several_sets`` is True if the study has several data sets or algorithms. ``apart`` is a text with further fields, if several rows would look the same
    without them.
    """
    cells: dict[str, list[Line]] = {}
    for line in lines:
        cells.setdefault(line["key"], []).append(line)
    rivals: dict[str, list[list[Line]]] = {}
    for own in cells.values():
        rivals.setdefault(_conditions(own[0]), []).append(own)
    rows = [_row(own, rivals[_conditions(own[0])]) for own in cells.values()]
    several = len({(row["algorithm"], row["dataset"]) for row in rows}) > 1
    apart = _apart([own[0]["cell"] for own in cells.values()])
    return [row | {"several_sets": several, "apart": own} for row, own in zip(rows, apart, strict=True)]


def _apart(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a text for each cell with the values that distinguish it from cells whose report rows would otherwise look the same."""
    alike: dict[tuple[Any, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for cell in cells:
        alike.setdefault(_shown(cell), {}).setdefault(cell["system"], []).append(cell)
    told = [[(name, value) for name, value in cell.items() if _tells(name, cell, alike[_shown(cell)])] for cell in cells]
    return [", ".join(f"{name} {'unset' if value is None else value}" for name, value in own) for own in told]


def _shown(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[name] for name in SHOWN)


def _tells(name: str, cell: Mapping[str, Any], alike: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether the field ``name`` distinguishes cells of one system that otherwise look the same in the report.

    ``expand`` counts only for hoptrain, since it has no effect on baselines.
    """
    differs = any(one[name] != own[0][name] for own in alike.values() for one in own)
    return differs and (name != "expand" or cell["system"] == HOPTRAIN)


def _conditions(line: Line) -> str:
    """Return the conditions that comparable cells have in common: all fields except the system and ``expand``, which only hoptrain has."""
    return json.dumps({name: value for name, value in line["cell"].items() if name not in ("system", "expand")}, sort_keys=True)


def _row(lines: Sequence[Line], rivals: Sequence[Sequence[Line]]) -> Row:
    cell = lines[0]["cell"]
    found = [line["found"] for line in lines if line["outcome"] == COMPLETED]
    row: Row = {name: cell[name] for name in ("system", *PLACE)} | {"set_threads": cell.get("threads")}
    row |= {"outcome": _outcome(lines), "why": next((line["why"] for line in lines if line["why"]), None), "rounds": len(found)}
    if not found:
        return row | {"epoch_s": None}
    last = found[-1]
    epoch = statistics.median(one["epoch_s"] for one in found)
    row |= {
        "epoch_s": epoch,
        "spread": (max(one["epoch_s"] for one in found) - min(one["epoch_s"] for one in found)) / epoch,
        "first_epoch_s": statistics.median(one["first_epoch_s"] for one in found),
        "speedup": _ratio(lines, [own for own in rivals if own[0]["cell"]["system"] != HOPTRAIN]) if cell["system"] == HOPTRAIN else None,
        "seeds": sum(last["seeds"]),
        "seeds_by_rank": ",".join(map(str, last["seeds"])),
        "steps": max(last["steps"]),
        "edges": sum(last["edges"]),
        "edges_by_rank": ",".join(map(str, last["edges"])),
        "rows_loaded": sum(last["rows"]),
    }
    row |= {f"{phase}_s": statistics.median(one["phases"][phase] for one in found) for phase in PHASES}
    row |= {name: statistics.median(one[name] for one in found) for name in ("sample_s", "gather_s", "trainer_cpu_s")}
    row |= {name: max(one[name] for one in found) for name in ("peak_rss", "pss", "shared", "gpu_bytes")}
    scores = [one["accuracy"] for one in found if one["accuracy"] is not None]
    row |= {"accuracy": statistics.mean(scores) if scores else None, "loss": statistics.mean(one["loss"] for one in found)}
    return row | {name: last[name] for name in ("parameters", "gradient_bytes", "threads", "pinned", "device")}


def _outcome(lines: Sequence[Line]) -> str:
    """Return the worst outcome of the cell's rounds."""
    outcomes = [line["outcome"] for line in lines]
    return next((bad for bad in (HUNG, FAILED) if bad in outcomes), outcomes[0])


def _ratio(own: Sequence[Line], baselines: Sequence[Sequence[Line]]) -> float | None:
    """Return the fastest baseline's epoch time over this system's: the median of the rounds' ratios."""
    ratios = []
    for line in own:
        others = [one["found"]["epoch_s"] for lines in baselines for one in lines if one["round"] == line["round"] and one["found"]]
        if line["found"] and others:
            ratios.append(min(others) / line["found"]["epoch_s"])
    return statistics.median(ratios) if ratios else None


def summarize(rows: Sequence[Row]) -> dict[str, float]:
    """Return the numbers that answer the study's question, except for those that were not measured.

    Returns:
        ``epoch_ratio_best_peer``: epoch time of the fastest baseline over hoptrain's, for sage with two workers and the default number of threads; the
        minimum if there are several such cells;
        ``min_epoch_ratio``: the minimum of this ratio over all cells; ``best_setting_ratio``: the ratio with each system's best number of workers, the minimum
        over models and numbers of ranks; ``accuracy_gap``: the largest difference between two systems' accuracies under the same conditions, in percentage
        points; ``hung_cells``: number of cells of all systems that hung; ``hoptrain_bad_cells``: number of hoptrain's cells that hung or failed.
    """
    ratios = [row["speedup"] for row in rows if row.get("speedup") is not None]
    asked = [row["speedup"] for row in rows if row.get("speedup") is not None and _is_asked(row)]
    least = {"epoch_ratio_best_peer": asked, "min_epoch_ratio": ratios, "best_setting_ratio": _best_settings(rows)}
    summary = {name: min(values) for name, values in least.items() if values}
    gaps = _gaps(rows)
    if gaps:
        summary["accuracy_gap"] = max(gaps)
    bad = [row for row in rows if row["outcome"] in (HUNG, FAILED)]
    counts = {"cells": len(rows), "hung_cells": sum(row["outcome"] == HUNG for row in rows)}
    return summary | counts | {"hoptrain_bad_cells": sum(row["system"] == HOPTRAIN for row in bad)}


def _is_asked(row: Row) -> bool:
    return (row["algorithm"], row["arch"], row["workers"], row["set_threads"]) == ("neighbor", _ASKED_ARCH, _ASKED_WORKERS, None)


def _best_settings(rows: Sequence[Row]) -> list[float]:
    """Return the fastest baseline's epoch time over hoptrain's, for each set of conditions except the number of workers."""
    epochs: dict[tuple[Any, ...], dict[bool, list[float]]] = {}
    for row in rows:
        if row["epoch_s"] is not None:
            place = tuple(row[name] for name in PLACE if name != "workers")
            epochs.setdefault(place, {True: [], False: []})[row["system"] == HOPTRAIN].append(row["epoch_s"])
    return [min(found[False]) / min(found[True]) for found in epochs.values() if found[True] and found[False]]


def _gaps(rows: Sequence[Row]) -> list[float]:
    """Return the largest difference between the systems' accuracies in percentage points, for each set of conditions."""
    scores: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row.get("accuracy") is not None:
            place = tuple(row[name] for name in PLACE)
            scores.setdefault(place, []).append(100 * row["accuracy"])
    return [max(found) - min(found) for found in scores.values() if len(found) > 1]
