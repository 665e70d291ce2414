"""Plots with matplotlib, if it is installed, among them the bar chart of ``hoptrain bench sampler`` and ``loader``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from hoptrain.benchmarks.common.harness import HOPTRAIN, Record

T = TypeVar("T")

_DPI = 110
_MODES = {"all": "every hop expands all nodes found so far", "new": "every hop expands the new nodes"}
_SHADES = {True: ("#f2a65a", "#c4580c", "#7a3605"), False: ("#a9bcd0", "#4a6c8c", "#263f57")}
"""Colours of hoptrain (True) and of other systems (False), in ascending order of the number of threads or workers."""
_COLUMNS = 2


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def figure(width: float, height: float, title: str = "") -> Any:
    """Return an empty figure; width and height are in inches."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    if title:
        made.suptitle(title)
    return made


def write(path: Path, make: Callable[..., Any], *args: Any) -> None:
    """Write the figure that ``make(*args)`` returns as PNG or SVG, according to the file's suffix. Without matplotlib print that it is skipped."""
    if not can_draw():
        print(f"skipped {path.name}: matplotlib is not installed; install it with 'pip install hoptrain[bench]'")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = make(*args)
    path.write_bytes(svg(drawn) if path.suffix == ".svg" else png(drawn))


def png(drawn: Any) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    buffer = BytesIO()
    drawn.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def svg(drawn: Any) -> bytes:
    """Return a figure as the bytes of an SVG file with a transparent background, in which text is stored as text elements."""
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "hoptrain"}):  # makes the bytes of the SVG file depend on the figure only
        drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def open_frame(axes: Any) -> None:
    """Hide the upper and the right line of the frame around a plot."""
    axes.spines[["top", "right"]].set_visible(False)


def lanes(axes: Any, groups: Mapping[str, Sequence[tuple[str, T]]]) -> list[tuple[float, T]]:
    """Reserve space for horizontal bars from the top down, with a heading for each group, and label them on the axis. Returns each bar's y position."""
    found: list[tuple[float, T]] = []
    at, ticks = 0.0, {}
    for heading, items in groups.items():
        axes.text(0, at, heading, va="center", fontsize=8, fontweight="bold")
        at += 0.9
        for name, item in items:
            found.append((at, item))
            ticks[at] = name
            at += 1.0
        at += 0.3
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.set_ylim(at, -0.6)
    open_frame(axes)
    return found


SAMPLER = ("Neighbour sampling on the CPU: millions of sampled edges per second, longer is faster", "medges_s", "threads")
LOADER = ("Mini-batches with features, consumed by the trainer: batches per second, longer is faster", "batches_s", "workers")
"""Arguments of ``speeds`` for a plot of loaders: title, column with the speed, and column with the number of workers."""


def speeds(records: Sequence[Record], title: str, speed: str, count: str) -> Any:
    """Return a figure with a panel for each graph, fanouts and batch size."""
    panels: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        panels.setdefault((record["graph"], record["fanouts"], record["batch"]), []).append(record)
    rows = -(-len(panels) // _COLUMNS)
    drawn = figure(6.5 * _COLUMNS, rows * (1.8 + 0.28 * max(map(len, panels.values()))), title)
    for place, (facts, panel) in enumerate(panels.items(), start=1):
        axes = drawn.add_subplot(rows, _COLUMNS, place)
        axes.set_title("{}, fanouts {}, batch size {}".format(*facts), fontsize=10, fontweight="bold")
        _draw_panel(axes, panel, speed, count)
    return drawn


def _draw_panel(axes: Any, panel: Sequence[Record], speed: str, count: str) -> None:
    """Draw a panel's bars, ordered by mode, then by system, then by number of threads or workers."""
    systems = list(dict.fromkeys(record["system"] for record in panel))
    counts = sorted({record[count] for record in panel})
    groups: dict[str, list[tuple[str, Record]]] = {}
    for record in sorted(panel, key=lambda one: (one["mode"], systems.index(one["system"]), one[count])):
        name = f"{record['system']}, {record[count]} {count[:-1] if record[count] == 1 else count}"
        groups.setdefault(_MODES[record["mode"]], []).append((name, record))
    for y, record in lanes(axes, groups):
        length, shades = record[speed], _SHADES[record["system"].startswith(HOPTRAIN)]
        axes.barh(y, length, 0.85, color=shades[min(counts.index(record[count]), len(shades) - 1)])
        behind = f"   hoptrain: {record['ratio']:.1f} x" if record["ratio"] else ""
        side = "right" if record.get("floor_ns") else "left"  # inside the bar if the line of the lower bound may be close to its end
        axes.text(length, y, f" {length:.1f}{behind} ", va="center", ha=side, fontsize=8)
        if record.get("floor_ns"):
            floor = 1e3 / record["floor_ns"]
            axes.plot([floor, floor], [y - 0.5, y + 0.5], color="black", linestyle=":")
            axes.text(floor, y, " floor", va="center", fontsize=8)
    axes.margins(x=0.12)
