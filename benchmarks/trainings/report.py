"""The report of ``hoptrain bench trainings``: a table and a plot for each model, and the settings that each system tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoptrain.benchmarks.common import pages, pictures
from hoptrain.benchmarks.common.grid import COMPLETED
from hoptrain.benchmarks.common.tables import markdown
from hoptrain.benchmarks.trainings.cell import SYSTEMS
from hoptrain.benchmarks.trainings.table import SETTING, TOLERANCE, Line, Place, Row, place_of, summarize

if TYPE_CHECKING:
    from hoptrain.benchmarks.trainings.bound import Bound

_COLOURS = {"hoptrain": "#c4580c", "PyG": "#4a6c8c", "DGL": "#7a9a5b"}
_GREY = "#7a8088"
"""Text colour that is legible on white and on black backgrounds."""
_FAMILIES = {system.name: system.family for system in SYSTEMS.values()}


def write(folder: Path, lines: Sequence[Line], rows: Sequence[Row], bounds: Mapping[Place, Bound]) -> None:
    """Write ``report.md``, ``report.html`` and the plots, each as PNG and SVG, into the folder of the trainings.

    ``bounds`` are the lower bounds of ``hoptrain fit``, by training, from which ``rows`` were made.
    """
    figures = {name: [row for row in rows if _model(row) == name] for name in dict.fromkeys(map(_model, rows))}
    for name, own in figures.items():
        if any(row["step_ms"] is not None for row in own):
            for ending in ("png", "svg"):
                pictures.write(folder / f"{name}.{ending}", draw, own)
    text = "\n\n".join(part.rstrip() for part in _parts(folder, lines, rows, list(figures), bounds) if part) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(pages.html(text, folder), encoding="utf-8")


def _model(row: Row) -> str:
    """Return the name of the plot that shows the row: layer type and hidden channels."""
    return f"{row['arch']}-{row['hidden']}"


def _panel(row: Row) -> str:
    """Return the heading of the table, and the title of the plot's panel, that contain the row."""
    where = "" if row["device"] == "cpu" else f", features {row['features']}"
    return f"{row['dataset'].rpartition('/')[2]} at scale {row['scale']:g}{where}"


def _parts(folder: Path, lines: Sequence[Line], rows: Sequence[Row], models: Sequence[str], bounds: Mapping[Place, Bound]) -> Iterator[str]:
    devices = ", ".join(dict.fromkeys(line["found"]["device"] for line in lines if line["outcome"] == COMPLETED))
    yield "# Whole trainings by hoptrain, PyG and DGL"
    options = pages.options(lines, ("batch_size", "fanouts", "steps", "epochs", "lr", "dropout"))
    yield f"{pages.surroundings(lines)} Training on {devices or 'nothing'}; {options}."
    yield markdown([{"question": name, "value": f"{value:.3g}"} for name, value in summarize(rows).items()])
    yield _unequal(rows)
    for model in models:
        own = [row for row in rows if _model(row) == model]
        yield f"## {model.replace('-', ', width ')}"
        if (folder / f"{model}.png").exists():
            yield f"![{alt_text(own)}]({model}.png)"
        for panel in dict.fromkeys(map(_panel, own)):
            yield f"{panel}:"
            yield markdown([_result(row) for row in own if _panel(row) == panel])
            yield from (_bound(row, bounds[place_of(row)]) for row in own if _panel(row) == panel and row["bound_x"] is not None)
    yield from _settings(lines)
    yield from pages.bad_cells(folder, lines)
    yield "## How it was measured"
    yield _METHOD


def _unequal(rows: Sequence[Row]) -> str:
    """Return a sentence that compares the accuracies after the same number of epochs."""
    different = [f"{row['system']} ({_model(row)}, {_panel(row)})" for row in rows if row["is_equal"] is False]
    if different:
        return f"**Accuracies differ.** More than {TOLERANCE:g} points below the best system with the same initial weights: {'; '.join(different)}."
    return f"After the same number of epochs, all accuracies are within {TOLERANCE:g} points of the best of the systems with the same initial weights."


def alt_text(rows: Sequence[Row]) -> str:
    """Return a plot's alternative text: the milliseconds per step of each library's fastest system, for each data set."""
    facts = []
    for panel in dict.fromkeys(map(_panel, rows)):
        best: dict[str, float] = {}
        for row in rows:
            if _panel(row) == panel and row["step_ms"] is not None:
                family = _FAMILIES[row["system"]]
                best[family] = min(best.get(family, row["step_ms"]), row["step_ms"])
        facts.append(f"{panel}: {', '.join(f'{family} {step:.0f}' for family, step in best.items())}")
    return f"Milliseconds a step. {'; '.join(facts)}"


def _result(row: Row) -> dict[str, Any]:
    if row["step_ms"] is None:
        return {"system": row["system"], "step ms": row["outcome"]}
    return {
        "system": row["system"],
        "step ms": f"{row['step_ms']:.1f}",
        "spread %": f"{100 * row['spread']:.0f}",
        "faster x": "" if row["faster"] is None else f"{row['faster']:.2f}",
        "CPU ms": f"{row['cpu_ms']:.1f}",
        "memory GB": f"{row['memory_gb']:.2f}",
        **({"GPU GB": f"{row['gpu_gb']:.2f}"} if row["gpu_gb"] else {}),
        "accuracy %": f"{100 * row['accuracy']:.2f}",
        "workers": row["workers"],
        "threads": row["threads"],
        "rounds": row["rounds"],
    }


def _bound(row: Row, bound: Bound) -> str:
    (products, flops), (streams, copied), (rows, gathered) = bound
    return (
        f"Lower bound of a step: {bound.ms:.1f} ms (products {products:.1f} ms at {flops:.1f} GFLOP/s, {streams:.1f} ms of streamed memory at "
        f"{copied:.1f} GB/s, {rows:.1f} ms of random rows at {gathered:.1f} GB/s); `hoptrain fit` takes {row['bound_x']:.1f} times as long."
    )


def _settings(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the table of the settings that were tried, with a column for each setting."""
    yield "## Milliseconds per step for each setting that was tried"
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in lines:
        if line["outcome"] == COMPLETED:
            cell = line["cell"]
            place = {"training": f"{_model(cell)}, {_panel(cell)}", "system": SYSTEMS[cell["system"]].name}
            workers, threads = (cell[name] for name in SETTING)
            found.setdefault(tuple(place.values()), place).setdefault(f"{workers} w, {threads} t", f"{1e3 * line['found']['step_s']:.1f}")
    yield "w: workers, t: torch's threads in the trainer."
    yield markdown(list(found.values()), keys=2)


def draw(rows: Sequence[Row]) -> Any:
    """Return a figure with a panel for each data set and a bar for each system: its milliseconds per step at its best setting."""
    panels = {
        panel: [row for row in rows if _panel(row) == panel and row["step_ms"] is not None] for panel in dict.fromkeys(map(_panel, rows))
    }
    panels = {panel: own for panel, own in panels.items() if own}
    names = [system.name for system in SYSTEMS.values() if any(row["system"] == system.name for own in panels.values() for row in own)]
    figure = pictures.figure(2.6 + 3.0 * max(2, len(panels)), 1.2 + 0.3 * len(names))
    for number, (panel, own) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), number)
        for row in own:
            lane, length = names.index(row["system"]), row["step_ms"]
            axes.barh(lane, length, 0.75, color=_COLOURS[_FAMILIES[row["system"]]])
            axes.text(length, lane, f" {length:.0f} ms, {_setting(row)}", va="center", fontsize=7, color=_GREY)
        axes.set_title(panel.removeprefix("synthetic:"), fontsize=9, color=_GREY)
        axes.set_yticks(range(len(names)), names if number == 1 else [""] * len(names), fontsize=8, color=_GREY)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 1.6 * max(row["step_ms"] for row in own))
        axes.set_xticks([])
        axes.tick_params(left=False)
        axes.spines["left"].set_color(_GREY)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    model = _model(rows[0]).replace("-", ", width ")
    figure.suptitle(f"Time of a training step, shorter is faster ({model}; each system at its best setting)", fontsize=10, color=_GREY)
    return figure


def _setting(row: Row) -> str:
    return f"{row['workers']} worker{'' if row['workers'] == 1 else 's'}"


_METHOD = (
    "Every training runs in a new process. Each system has its own script, whose settings are those that its documentation recommends "
    "(`benchmarks/trainings/fit.py`, `pyg.py` and `dgl.py`). 'hoptrain.pyg' and 'hoptrain.dgl' are the scripts of PyG and DGL with the import "
    "line of the loader changed; 'and its layers' also changes that of the layers. The time of a step is the median epoch's time over its number of steps; "
    "the first epoch is not counted. Values are medians over the rounds, and 'spread' is the range of the rounds over the median. "
    "'faster x' is the fastest baseline's step time over that of the row, formed within a round. CPU ms is the CPU time of all processes per "
    "step. Memory is that of all processes together after training, with shared pages counted once. Accuracy is that of the same test nodes for "
    "all systems, each with its own sampler. DGL's layers have other initial weights than PyG's and hoptrain's, so they are compared separately. "
    "The lower bound of a step counts the work of sampled mini-batches, at rates that the machine reached after the last round with the same number of "
    "threads (`benchmarks/trainings/bound.py`); it ignores sampling, the optimiser, the loss and Python."
)
