"""What did a study of ``hoptrain bench scale`` find?

The command writes its report, with tables and plots, as Markdown and as HTML.

The study's folder gets ``report.md``, whose plots are PNG files next to it, and ``report.html``, which embeds them. All numbers come from the folder's
``cells.jsonl``. Predictions, which were not measured, have their own section.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.common import pages
from hoptrain.benchmarks.common.grid import read_lines
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.tables import markdown
from hoptrain.benchmarks.study import plots, what_if
from hoptrain.benchmarks.study.table import NAMES, Row, rows_of, summarize
from hoptrain.engine import InputError

_GPU_STEP_S = 0.005
_GPU_CORES = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the study (its --out); the report is written there")


def run(args: argparse.Namespace) -> Result:
    """Write the report of a study again.

    Raises:
        InputError: the folder holds no study.
    """
    write(args.folder)
    lines = read_lines(args.folder)
    rows = rows_of(lines)
    print(f"wrote report.html and report.md to {args.folder}")
    return Result(records=rows, summary=summarize(rows), seeds=sorted({line["cell"]["seed"] for line in lines}))


def write(folder: Path) -> None:
    """Write ``report.md`` and ``report.html`` into the folder of a study.

    Raises:
        InputError: the folder holds no study, or one of another benchmark.
    """
    lines = read_lines(folder)
    if not lines:
        raise InputError(f"{folder} holds no study: cells.jsonl is missing or empty; run 'hoptrain bench scale --out {folder}' first")
    if "ranks" not in lines[0]["cell"]:
        raise InputError(
            f"{folder} holds no study of 'hoptrain bench scale': 'hoptrain bench trainings' writes its own report; run that again instead"
        )
    text = "\n\n".join(part.rstrip() for part in _parts(folder, lines) if part) + "\n"
    (folder / "report.md").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(pages.html(text, folder), encoding="utf-8")


def _parts(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = rows_of(lines)
    is_scale = all(row["algorithm"] == "neighbor" for row in rows)
    yield f"# {'The scalability study' if is_scale else 'One training script, samplers exchanged'}"
    yield _about(lines, rows)
    yield markdown([{"question": name, "value": f"{value:.3g}"} for name, value in summarize(rows).items()])
    pictures = plots.draw(rows)
    if not pictures:
        yield "There are no plots: matplotlib is not installed ('pip install hoptrain[bench]'), or nothing was measured."
    for name, (claim, png) in pictures.items():
        (folder / f"{name}.png").write_bytes(png)
        yield f"## {claim}\n\n![{claim}]({name}.png)"
    yield "## Measured"
    yield _TABLE_TEXT
    yield markdown([_result(row) for row in rows], keys=2)
    yield "## What each rank did"
    yield "Seeds and sampled edges of an epoch, by rank. A loader that does not shard the seeds across ranks would show here."
    yield markdown([_work(row) for row in rows if row["epoch_s"] is not None], keys=2)
    yield from pages.bad_cells(folder, lines)
    if is_scale:
        yield from _predictions(rows, lines[0]["machine"]["cores"])
    yield "## How it was measured"
    yield _METHOD
    if any(row["system"] == "papers" for row in rows):
        yield _PAPERS


def _about(lines: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> str:
    devices = ", ".join(dict.fromkeys(str(row["device"]) for row in rows if row.get("device")))
    sets = ", ".join(dict.fromkeys(f"{row['dataset']} at scale {row['scale']:g}" for row in rows))
    return f"{pages.surroundings(lines)} Training on {devices or 'nothing'}. {sets}; {pages.options(lines, ('hidden', 'epochs', 'lr', 'dropout', 'fanouts'))}."


def _result(row: Row) -> dict[str, Any]:
    place = {"system": NAMES[row["system"]], "cell": plots.place_of(row)}
    if row["epoch_s"] is None:
        return place | {"epoch s": row["outcome"]}
    epoch = row["epoch_s"]
    return place | {
        "epoch s": f"{epoch:.2f}",
        "spread %": _percent(row["spread"]),
        "best peer x": f"{row['speedup']:.2f}" if row["speedup"] else "",
        "waiting %": _percent(row["wait_s"] / epoch),
        "copying %": _percent(row["copy_s"] / epoch),
        "fwd+bwd %": _percent(row["train_s"] / epoch),
        "all-reduce %": _percent(row["all_reduce_s"] / epoch),
        "sampling %": _percent(row["sample_s"] / epoch) if row["workers"] == 0 else "",
        "sampling s": f"{row['sample_s']:.2f}",
        "gathering s": f"{row['gather_s']:.2f}",
        "first epoch s": f"{row['first_epoch_s']:.1f}",
        "memory GB": f"{row['pss'] / 1e9:.2f}",
        "shared GB": f"{row['shared'] / 1e9:.2f}",
        "sum of peak RSS GB": f"{row['peak_rss'] / 1e9:.2f}",
        **({"GPU GB": f"{row['gpu_bytes'] / 1e9:.2f}"} if row["gpu_bytes"] else {}),
        "accuracy %": "" if row["accuracy"] is None else f"{100 * row['accuracy']:.2f}",
        "rounds": str(row["rounds"]),
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _work(row: Row) -> dict[str, Any]:
    return {
        "system": NAMES[row["system"]],
        "cell": plots.place_of(row),
        "steps": str(row["steps"]),
        "seeds by rank": row["seeds_by_rank"],
        "edges by rank": row["edges_by_rank"],
        "feature rows": str(row["rows_loaded"]),
        "parameters": str(row["parameters"]),
        "threads": str(row["threads"]),
        "pinned": "yes" if row["pinned"] else "no",
    }


def _predictions(rows: Sequence[Row], cores: int) -> Iterator[str]:
    checked = what_if.check(rows, cores)
    error = what_if.typical_error(checked)
    yield "## Predicted, not measured"
    stated = "It could not be checked: all measured cells were used to calibrate it."
    if error is not None:
        stated = (
            f"On the {len(checked)} measured cells that were not used to calibrate it, its error is {error[0]:.0%} (median) and {error[1]:.0%} (at most), "
            "as the first table shows."
        )
    yield f"{_MODEL} {stated} Outside the measured cells the predictions are untested."
    if error is None:
        return
    yield markdown(
        [
            {
                "system": NAMES[row["system"]],
                "cell": plots.place_of(row),
                "measured s": f"{row['measured_s']:.2f}",
                "predicted s": f"{row['predicted_s']:.2f}",
                "error %": f"{100 * row['error']:+.0f}",
            }
            for row in checked
        ],
    )
    yield f"Predicted seconds of an epoch with {_GPU_CORES} such cores, training on the CPU."
    yield markdown([_predicted(row) for row in what_if.table(rows, cores, cores=_GPU_CORES)], keys=3)
    yield f"Predicted seconds of the same epochs with a GPU for each rank, if a step takes {1e3 * _GPU_STEP_S:g} ms on it."
    links = (what_if.NVLINK, what_if.ETHERNET)
    on_gpus = [row for link in links for row in what_if.table(rows, cores, cores=_GPU_CORES, link=link, device_step_s=_GPU_STEP_S)]
    yield markdown([_predicted(row) for row in on_gpus], keys=3)


def _predicted(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table row of a predicted training, with a column for each number of ranks."""
    cell = f"{one['arch']}, batch {one['batch_size']}, {one['workers']} workers a rank"
    epochs = {f"{ranks} rank{'s' if ranks > 1 else ''} s": f"{seconds:.2f}" for ranks, seconds in one["epochs_s"].items()}
    return {"system": NAMES[one["system"]], "cell": cell, "link": one["link"], **epochs}


_TABLE_TEXT = (
    "Times are medians over the rounds; 'spread' is the range of the rounds over the median. 'best peer x' is the epoch time of the fastest "
    "baseline over hoptrain's under the same conditions, formed within a round. Waiting, copying, forward and backward (with the optimiser) "
    "and all-reduce are fractions of the slowest rank's epoch. Sampling and gathering are seconds of work of a rank's loader per epoch, "
    "summed over its processes: with workers they run in parallel with the training, without workers they are part of the waiting. Memory is "
    "that of all processes together after training, with shared pages counted once."
)

_METHOD = (
    "Every cell runs in new processes, one for each rank. All systems train the same model from the same initial weights with the same "
    "hand-written loop: hoptrain's GNN on PyG's convolutions, Adam, torch's DistributedDataParallel over gloo (NCCL on GPUs). All "
    "loaders' batches are converted to the same blocks. The first epoch starts the workers and is not counted. An epoch lasts from a barrier to"
    " the end of the slowest rank's last step. Cells run in turn, and their order rotates from round to round. For all systems torch uses the"
    " rank's share of the cores as threads, at least one, as Lightning sets it. Accuracy is that of the test split with "
    "full-neighbour inference, computed by the same code for all systems. PyG: NeighborLoader with persistent workers over the rank's "
    "share of the seeds, split as in PyG's multi-GPU examples; features are gathered in the trainer's process, its default for data in "
    "memory; it samples with pyg-lib if that is installed, otherwise with torch-sparse, and each hop expands the nodes that the previous "
    "hop found. DGL: DataLoader with use_ddp=True if there are several ranks, features and labels named for prefetching, "
    "persistent workers, a graph in CSC format; each hop expands all nodes found so far, as hoptrain does by default. "
    "If a rank has more cores than workers, PyG's and DGL's enable_cpu_affinity pins workers and trainer to different cores; with fewer "
    "cores this is impossible. On a GPU the phases are separated by synchronising, so they do not overlap, for any system."
)

_PAPERS = (
    "The authors' programs of LADIES and FastGCN are reimplemented here with one change: the previous layer's nodes are added to "
    "the sampled ones, without edges, since the model also uses each node's own features. As published, LADIES adds the seeds of the "
    "mini-batch, with their edges; 'hoptrain bench algorithms' times that version."
)

_MODEL = (
    "The model is calibrated from cells with one rank (and the same number of trainer threads, if there are any): the time of a step in the trainer "
    "and in the loader, the core-seconds of both, and the core-seconds by which a step with workers exceeded these. A step with "
    "more ranks takes as long as the slowest of: the trainer, its workers dividing the loader's work, and the machine's cores dividing all "
    "work. The excess and the all-reduce are added. The model ignores that ranks share the memory bandwidth."
)
