"""Plots of a scalability study: epoch time by number of ranks, phases of the trainer's time, and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from hoptrain.benchmarks.common import pictures
from hoptrain.benchmarks.study.cell import PHASES, SYSTEMS
from hoptrain.benchmarks.study.table import NAMES, PLACE, Row

_COLOURS = {"hoptrain": "#c4580c", "pyg": "#4a6c8c", "dgl": "#7a9a5b", "papers": "#8e6bbf"}
_PHASE_COLOURS = {"wait": "#c0392b", "copy": "#e0a458", "train": "#4a6c8c", "all_reduce": "#8e6bbf", "other": "#b8b8b8"}
_PHASE_NAMES = {
    "wait": "waiting for data",
    "copy": "copying",
    "train": "forward, backward, step",
    "all_reduce": "all-reduce",
    "other": "other",
}


class Drawn(NamedTuple):
    """A plot: one sentence on what it shows, and the PNG."""

    claim: str
    png: bytes


def draw(rows: Sequence[Row]) -> dict[str, Drawn]:
    """Return the plots by file name; empty if matplotlib is not installed or nothing was measured."""
    measured = [row for row in rows if row["epoch_s"] is not None]
    if not pictures.can_draw() or not measured:
        return {}
    figures = {
        "ranks": (f"Time of an epoch with {_most_ranks(measured)} ranks relative to one rank", _shorter, scaling),
        "phases": ("Fraction of an epoch spent waiting for data", _waiting, phases),
        "memory": ("Memory of all processes together", _gigabytes, memory),
    }
    told = {name: _each(measured, fact) for name, (_, fact, _) in figures.items()}
    return {name: Drawn(f"{claim}: {told[name]}", pictures.png(make(measured))) for name, (claim, _, make) in figures.items() if told[name]}


def _each(rows: Sequence[Row], fact: Callable[[Sequence[Row]], str]) -> str:
    """Return a text with each system and what ``fact`` returns for its rows."""
    facts = {NAMES[system]: fact([row for row in rows if row["system"] == system]) for system in SYSTEMS}
    return ", ".join(f"{name} {found}" for name, found in facts.items() if found)


def _waiting(rows: Sequence[Row]) -> str:
    return f"{median(row['wait_s'] / row['epoch_s'] for row in rows):.0%}" if rows else ""


def _gigabytes(rows: Sequence[Row]) -> str:
    return f"{median(row['pss'] for row in rows) / 1e9:.1f} GB" if rows else ""


def _most_ranks(rows: Sequence[Row]) -> int:
    return max(int(row["ranks"]) for row in rows)


def _shorter(rows: Sequence[Row]) -> str:
    """Return the epoch time with the most ranks in percent of that with one rank: the median over cells measured with both."""
    epochs: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        epochs.setdefault(tuple(row[name] for name in PLACE if name != "ranks"), []).append(row)
    most = _most_ranks(rows) if rows else 1
    shares = [found[most] / found[1] for found in map(_by_ranks, epochs.values()) if {1, most} <= set(found)]
    return f"{median(shares):.0%}" if shares and most > 1 else ""


def _by_ranks(rows: Sequence[Row]) -> dict[int, float]:
    """Return the seconds of an epoch by number of ranks. Among cells that differ only in the trainer's threads, the fastest counts."""
    ranks = sorted({int(row["ranks"]) for row in rows})
    return {number: min(float(row["epoch_s"]) for row in rows if row["ranks"] == number) for number in ranks}


def place_of(row: Row) -> str:
    """Return a text with all conditions of a cell except for its system."""
    parts = [
        row["arch"],
        f"{row['ranks']} rank{'s' if row['ranks'] > 1 else ''}",
        f"{row['workers']} worker{'s' if row['workers'] != 1 else ''}",
        f"batch {row['batch_size']}",
    ]
    if row["several_sets"]:
        parts[0] = f"{row['algorithm']} on {row['dataset'].rpartition('/')[2]}"
    further = [row["allocator"]] if row["allocator"] != "malloc" else []
    return ", ".join([*parts, *further, *([row["apart"]] if row["apart"] else [])])


def scaling(rows: Sequence[Row]) -> Any:
    """Plot the seconds of an epoch over ranks, with a line for each system and a panel for each architecture, number of workers and batch size."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(f"{row['arch']}, {row['workers']} workers a rank, batch {row['batch_size']}, {row['allocator']}", []).append(row)
    panels = {title: panel for title, panel in panels.items() if len({row["ranks"] for row in panel}) > 1}
    columns, lines = min(len(panels), 2) or 1, (len(panels) + 1) // 2 or 1
    figure = pictures.figure(4.4 * columns, 3.4 * lines)
    for number, (title, panel) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(lines, columns, number)
        for system in SYSTEMS:
            points = _by_ranks([row for row in panel if row["system"] == system])
            if points:
                axes.plot(list(points), list(points.values()), marker="o", color=_COLOURS[system], label=NAMES[system])
        axes.set_title(title, fontsize=9)
        axes.set_xticks(sorted({row["ranks"] for row in panel}))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("ranks")
        axes.set_ylabel("seconds an epoch")
        axes.legend(fontsize=8, frameon=False)
        pictures.open_frame(axes)
    return figure


def phases(rows: Sequence[Row]) -> Any:
    """Plot the trainer's epoch as a bar divided into phases. A thin bar below shows the work of its loader, which may run in other processes."""
    figure, axes, lanes = _bars(rows)
    for lane, row in lanes:
        left = 0.0
        for phase in PHASES:
            axes.barh(lane, row[f"{phase}_s"], 0.5, left=left, color=_PHASE_COLOURS[phase])
            left += row[f"{phase}_s"]
        behind = f"  {row['epoch_s']:.2f} s" + (f", best peer {row['speedup']:.1f} x" if row["speedup"] else "")
        axes.text(left, lane, behind, va="center", fontsize=7)
        axes.barh(lane + 0.36, row["sample_s"], 0.16, color="#555555")
        axes.barh(lane + 0.36, row["gather_s"], 0.16, left=row["sample_s"], color="#aaaaaa")
    names = _PHASE_NAMES | {"sample": "thin: sampling, in all processes of a loader", "gather": "thin: gathering features"}
    colours = _PHASE_COLOURS | {"sample": "#555555", "gather": "#aaaaaa"}
    _legend(figure, {names[name]: colour for name, colour in colours.items()})
    axes.set_xlabel("seconds an epoch, slowest rank")
    return figure


def memory(rows: Sequence[Row]) -> Any:
    """Plot the memory of all processes of a cell, with shared pages counted once."""
    figure, axes, lanes = _bars(rows)
    for lane, row in lanes:
        shared, alone = row["shared"] / 1e9, (row["pss"] - row["shared"]) / 1e9
        axes.barh(lane, shared, 0.6, color="#7a9a5b")
        axes.barh(lane, alone, 0.6, left=shared, color="#4a6c8c")
        axes.text(shared + alone, lane, f"  {shared + alone:.2f} GB", va="center", fontsize=7)
    _legend(figure, {"in pages shared by several processes": "#7a9a5b", "of one process alone": "#4a6c8c"})
    axes.set_xlabel("GB of all ranks and workers together")
    return figure


def _bars(rows: Sequence[Row]) -> tuple[Any, Any, list[tuple[float, Row]]]:
    """Return a figure, its axes, and the vertical position of each row's bar. Bars are grouped by the cells' conditions."""
    places: dict[str, list[tuple[str, Row]]] = {place_of(row): [] for row in rows}
    for row in sorted(rows, key=lambda row: SYSTEMS.index(row["system"])):
        places[place_of(row)].append((NAMES[row["system"]], row))
    figure = pictures.figure(9.0, 1.4 + 0.21 * (len(rows) + 1.2 * len(places)))
    axes = figure.add_subplot(1, 1, 1)
    axes.margins(x=0.22)
    return figure, axes, pictures.lanes(axes, places)


def _legend(figure: Any, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), fontsize=8, frameon=False)
