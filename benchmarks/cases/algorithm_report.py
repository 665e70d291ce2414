"""The table and the picture of ``hoptrain bench algorithms``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common.harness import Record
from hoptrain.benchmarks.peers.systems import FAMILY

GOAL = 2.0
"""How many times as fast as a peer hoptrain should be."""
WHY: Mapping[str, str] = {}
"""By algorithm, what keeps hoptrain from its goal where a peer comes near."""
_COLUMNS = ("graph", "algorithm", "threads", "system", "ms a batch", "edges a batch", "ratio", "remarks")
_COLORS = {"DGL": "#4a6c8c", "PyG": "#7a9a5a", "scipy": "#8e6bbf"}
"""By the first word of a system's name."""


def markdown(records: Sequence[Record]) -> str:
    """A table of all records; the ratio is hoptrain's speed over the peer's."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for record in records:
        ratio = "" if record["ratio"] is None else f"{record['ratio']:.1f}x"
        remarks = "; ".join(text for text in (record["note"], record["why"]) if text)
        numbers = f"{record['ms_batch']:.2f} | {record['edges_batch']:,.0f} | {ratio}"
        lines.append(f"| {record['graph']} | {record['algorithm']} | {record['threads']} | {record['system']} | {numbers} | {remarks} |")
    return "\n".join(lines) + "\n"


def draw(records: Sequence[Record], path: Path) -> None:
    """Write the PNG; where matplotlib is not installed, say so instead."""
    if find_spec("matplotlib") is None:
        print(f"skipped {path.name}: matplotlib is not installed; install it with 'pip install hoptrain[bench]'")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(records).savefig(path, dpi=110)


def picture(records: Sequence[Record]) -> Any:
    """The matplotlib figure: for every graph and algorithm hoptrain's speed over each peer's, with as many threads, on a logarithmic scale."""
    from matplotlib.figure import Figure

    peers = [record for record in records if not record["system"].startswith(FAMILY)]
    graphs = list(dict.fromkeys(record["graph"] for record in records))
    names = list(dict.fromkeys(record["algorithm"] for record in records))
    figure = Figure(figsize=(6.5 * len(graphs), 1.5 + 0.45 * len(names)), layout="constrained")
    figure.suptitle("hoptrain's speed over that of each peer with as many threads; the line is twice as fast")
    for place, graph in enumerate(graphs, start=1):
        axes = figure.add_subplot(1, len(graphs), place)
        axes.set_title(graph, fontsize=10, fontweight="bold")
        for record in (record for record in peers if record["graph"] == graph):
            y = names.index(record["algorithm"]) + 0.25 * (record["threads"] - 1)
            face = {} if record["counts"] else {"markerfacecolor": "none"}
            axes.plot(record["ratio"], y, "o" if record["threads"] == 1 else "s", color=_color(record["system"]), markersize=5, **face)
        axes.set_xscale("log")
        axes.axvline(GOAL, color="black", linestyle=":")
        axes.axvline(1.0, color="black")
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_ylim(len(names) - 0.3, -0.7)  # from the top down
        axes.grid(axis="x", which="both", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [axes.plot([], [], "o", color=color)[0] for color in _COLORS.values()]
    title = "circles: 1 thread; squares: 2; hollow: not the same thing, see the table"
    figure.legend(handles, list(_COLORS), loc="outside lower center", ncols=len(_COLORS), fontsize=8, title=title)
    return figure


def _color(system: str) -> str:
    return _COLORS.get(system.replace(",", " ").split()[0], "black")
