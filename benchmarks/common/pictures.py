"""Pictures by matplotlib, which may be absent; and the one of ``hoptrain bench sampler`` and ``loader``: speed by system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common.harness import HOPTRAIN, Record

_DPI = 110
_MODES = {"all": "every hop expands all vertices found so far", "new": "every hop expands the new vertices"}
_SHADES = {True: ("#f2a65a", "#c4580c", "#7a3605"), False: ("#a9bcd0", "#4a6c8c", "#263f57")}
"""Of hoptrain and of others, by the number of threads: the fewest, more, more still."""
_COLUMNS = 2


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def figure(width: float, height: float, title: str = "") -> Any:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    if title:
        made.suptitle(title)
    return made


def write(path: Path, make: Callable[..., Any], *args: Any) -> None:
    """Write the figure that ``make(*args)`` returns as a PNG; where matplotlib is not installed, say so instead."""
    if not can_draw():
        print(f"skipped {path.name}: matplotlib is not installed; install it with 'pip install hoptrain[bench]'")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(make(*args)))


def png(drawn: Any) -> bytes:
    """A figure as a PNG."""
    buffer = BytesIO()
    drawn.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def open_frame(axes: Any) -> None:
    """Take the frame's upper and right lines away."""
    axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What a picture shows of the records: a title, the column that is a bar's length, and the column that counts its ``unit``."""

    title: str
    speed: str
    count: str
    unit: str


SAMPLER = View(
    title="Neighbour sampling on the CPU: millions of sampled edges per second, longer is faster",
    speed="medges_s",
    count="threads",
    unit="thread",
)
LOADER = View(
    title="Mini-batches with features, consumed by the trainer: batches per second, longer is faster",
    speed="batches_s",
    count="workers",
    unit="worker",
)


def speeds(records: Sequence[Record], view: View) -> Any:
    """The figure of a view: a panel for each graph, fanouts and batch size."""
    panels: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        panels.setdefault((record["graph"], record["fanouts"], record["batch"]), []).append(record)
    bars = max(len(_lanes(panel, view.count)) for panel in panels.values())
    rows = -(-len(panels) // _COLUMNS)
    drawn = figure(6.5 * _COLUMNS, rows * (1.2 + 0.28 * bars), view.title)
    for place, (facts, panel) in enumerate(panels.items(), start=1):
        axes = drawn.add_subplot(rows, _COLUMNS, place)
        axes.set_title("{}, fanouts {}, batch size {}".format(*facts), fontsize=10, fontweight="bold")
        _draw_panel(axes, panel, view)
    return drawn


def _lanes(panel: Sequence[Record], count: str) -> dict[tuple[str, ...], float]:
    """Where each bar stands: modes apart from one another, in them the systems, in these the threads or workers."""
    lanes: dict[tuple[str, ...], float] = {}
    for mode in _MODES:
        lanes[(mode,)] = len(lanes)
        for name in dict.fromkeys(record["system"] for record in panel if record["mode"] == mode):
            for number in sorted(record[count] for record in panel if (record["mode"], record["system"]) == (mode, name)):
                lanes[mode, name, str(number)] = len(lanes)
    return lanes


def _draw_panel(axes: Any, panel: Sequence[Mapping[str, Any]], view: View) -> None:
    lanes = _lanes(panel, view.count)
    counts = sorted({record[view.count] for record in panel})
    ticks = {}
    for record in panel:
        speed, count = record[view.speed], record[view.count]
        y = lanes[record["mode"], record["system"], str(count)]
        ticks[y] = f"{record['system']}, {count} {view.unit}{'' if count == 1 else 's'}"
        shades = _SHADES[record["system"].startswith(HOPTRAIN)]
        axes.barh(y, speed, 0.85, color=shades[min(counts.index(count), len(shades) - 1)])
        behind = f"   hoptrain: {record['ratio']:.1f} x" if record["ratio"] else ""
        side = "right" if record.get("floor_ns") else "left"  # inside the bar, where the floor's mark may stand close behind it
        axes.text(speed, y, f" {speed:.1f}{behind} ", va="center", ha=side, fontsize=8)
        if record.get("floor_ns"):
            floor = 1e3 / record["floor_ns"]
            axes.plot([floor, floor], [y - 0.5, y + 0.5], color="black", linestyle=":")
            axes.text(floor, y, " floor", va="center", fontsize=8)
    headings = {lanes[(mode,)]: text for mode, text in _MODES.items() if any(record["mode"] == mode for record in panel)}
    for y, text in headings.items():
        axes.text(0, y + 0.2, text, va="center", fontsize=8, style="italic")
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.margins(x=0.12)
    axes.set_ylim(max(ticks) + 0.7, min(headings) - 0.4)  # from the top down
    open_frame(axes)
