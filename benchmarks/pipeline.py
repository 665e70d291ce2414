"""What does a pipeline of stages gain on a Vision GNN, and what does it cost?

The data are handwritten digits (the data set ``digits``), the model has the blocks of Raffi 2024, and each stage has the same number of blocks. Every stage
is a process with one thread. A replica is a whole pipeline with its share of the batch (data parallelism); it splits that share into chunks (micro-
batches).

``speedup`` is relative to one process without a pipeline that computes the same chunks one after another. ``speedup_whole_batch`` is relative to one
process that computes the batch at once; it includes the gain of smaller chunks that fit in the caches, which is not due to the stages. Rows
``forward only`` are for prediction: images per second with several batches in flight, and the milliseconds of a single batch, each also for one process.

All variants make one step in each round, in turn. With more processes than cores, neither the speeds nor the bubble (the time in which stages wait) say
anything about the method.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hoptrain.benchmarks.common import pictures
from hoptrain.benchmarks.common.harness import HOPTRAIN, Record, Result
from hoptrain.engine.machine import allowed_cores

if TYPE_CHECKING:
    from hoptrain.benchmarks.pipelines.forward import Flow
    from hoptrain.benchmarks.pipelines.ranks import Launch, Track, Way

OURS, ALONE, PAPER, FORWARD = HOPTRAIN, "no pipeline", "Raffi 2024", "forward only"
_CROWDED_ROUNDS = 2
"""Number of timed steps if there are more processes than cores. Speeds then mean nothing, and two steps suffice to measure memory, gradients and losses."""
STAGES, DATA, CHUNKS = (1, 2, 4), (1, 2), (1, 2, 4, 5, 10)
PAPER_ROWS = (
    {"stages": 2, "data": 1, "chunks": 5, "speedup": 1.96},
    {"stages": 2, "data": 1, "chunks": 10, "speedup": 1.45},
    {"stages": 4, "data": 1, "chunks": None, "speedup": 1.33},
    {"stages": 2, "data": 2, "chunks": None, "speedup": 3.8},
)
"""Best speedups of the paper, by number of stages and of replicas, on machines with many cores. Speedups above the bound are due to memory, not to stages."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--stages", type=int, nargs="+", default=STAGES, metavar="S", help="stages of each pipeline (default 1 2 4)")
    parser.add_argument(
        "--data",
        type=int,
        nargs="+",
        default=DATA,
        metavar="D",
        help="replicas of the pipeline, each with a share of the batch (default 1 2)",
    )
    parser.add_argument(
        "--chunks",
        type=int,
        nargs="+",
        default=CHUNKS,
        metavar="M",
        help="chunks (micro-batches) of a replica's batch (default 1 2 4 5 10)",
    )
    parser.add_argument("--images", type=int, default=40, help="images of a step, over all replicas (default 40)")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps (default 5)")
    parser.add_argument(
        "--schedule", choices=["gpipe", "1f1b"], default="1f1b", help="order of forward and backward passes in a stage (default 1f1b)"
    )


def run(args: argparse.Namespace) -> Result:
    """Measure each number of stages and replicas. With ``--quick`` use 1 and 2 stages, two numbers of chunks, 40 images and 3 steps."""
    from hoptrain.benchmarks.pipelines.forward import flow
    from hoptrain.benchmarks.pipelines.ranks import SEED, Launch, study  # imported here, since torch would slow down --help
    from hoptrain.trainers.pipeline import run_ranks

    stages, data, chunks, images, rounds = args.stages, args.data, args.chunks, args.images, args.rounds
    if args.quick:
        stages, data, chunks, images, rounds = (1, 2), (1,), (5, 10), 40, 3
    ours: list[dict[str, Any]] = []
    forward: list[dict[str, Any]] = []
    cores = allowed_cores()
    for copies in data:
        for number in stages:
            steps = rounds if number * copies <= cores else min(rounds, _CROWDED_ROUNDS)
            launch = Launch(stages=number, data=copies, chunks=tuple(chunks), images=images, rounds=steps, schedule=args.schedule)
            ours += records_of(launch, run_ranks(study, number * copies, launch))
            if copies == 1 < number:
                forward += [forward_record(launch, count, run_ranks(flow, number, launch, count)) for count in chunks]
    records = [*ours, *forward, *({"system": PAPER, **row} for row in PAPER_ROWS if row["stages"] in stages and row["data"] in data)]
    pictures.write(args.out / "pipeline.png", picture, records)
    return Result(records=records, summary=summarize(ours) | summarize_forward(forward), seeds=[SEED])


def bound(stages: float, chunks: float, data: float) -> float:
    """Return the largest possible speedup with equal stages, in which only the bubble costs time."""
    return data * stages * chunks / (chunks + stages - 1)


def records_of(launch: Launch, results: Sequence[dict[Way, Track]]) -> list[dict[str, Any]]:
    """Return a table row for each number of chunks. With a single process, a row for the undivided batch comes first."""
    from hoptrain.benchmarks.pipelines.ranks import WHOLE

    first = results[0]
    rows = [_row(launch, 1, [first[WHOLE]], first[WHOLE], first[WHOLE]) | {"system": ALONE}] if len(results) == 1 else []
    return rows + [
        _row(launch, chunks, [result["piped", chunks] for result in results], first[launch.alone(chunks)], first[WHOLE])
        for chunks in launch.chunks
    ]


def _row(launch: Launch, chunks: int, tracks: Sequence[Track], alone: Track, whole: Track) -> dict[str, Any]:
    # A step ends when its slowest process has ended; ratios are taken within a round.
    seconds = [max(times) for times in zip(*(track.seconds for track in tracks), strict=True)]
    losses = [sum(parts) for parts in zip(*(track.losses for track in tracks[:: launch.stages]), strict=True)]
    peaks = [track.peak_mb for track in tracks if track.peak_mb is not None]
    row: dict[str, Any] = {
        "system": OURS,
        "stages": launch.stages,
        "data": launch.data,
        "chunks": chunks,
        "processes": len(tracks),
        "more_than_cores": "yes" if len(tracks) > allowed_cores() else "no",
        "step_ms": 1e3 * statistics.median(seconds),
        "speedup": _median_ratio(alone.seconds, seconds),
        "bound": bound(launch.stages, chunks, launch.data),
        "speedup_whole_batch": _median_ratio(whole.seconds, seconds),
        "waste": max(track.waste for track in tracks),
        "gradient_error": max(track.gradient_error for track in tracks),
    }
    if tracks[0].busy_s:
        shares = [1 - busy / spent for track in tracks for busy, spent in zip(track.busy_s, track.pipe_seconds, strict=True)]
        row |= {"bubble": statistics.median(shares), "bubble_ideal": (launch.stages - 1) / (chunks + launch.stages - 1)}
    if peaks:
        row |= {"peak_mb": max(peaks), "peak_mb_by_stage": " ".join(f"{peak:.0f}" for peak in peaks[: launch.stages])}
    return row | {"loss_first": losses[0], "loss_last": losses[-1], "losses": " ".join(f"{loss:.4f}" for loss in losses)}


def forward_record(launch: Launch, chunks: int, flows: Sequence[Flow]) -> dict[str, Any]:
    """Return the table row of prediction without training. A batch is complete when the slowest process has finished it."""
    from hoptrain.benchmarks.pipelines.forward import BATCHES

    first, seconds, latency = (
        flows[0],
        [max(times) for times in zip(*(each.piped_s for each in flows), strict=True)],
        [max(times) for times in zip(*(each.piped_latency_s for each in flows), strict=True)],
    )
    return {
        "system": FORWARD,
        "stages": launch.stages,
        "data": 1,
        "chunks": chunks,
        "processes": len(flows),
        "more_than_cores": "yes" if len(flows) > allowed_cores() else "no",
        "speedup": _median_ratio(first.alone_s, seconds),
        "bound": bound(launch.stages, chunks * BATCHES, 1),
        "images_per_s": BATCHES * launch.images / statistics.median(seconds),
        "images_per_s_alone": BATCHES * launch.images / statistics.median(first.alone_s),
        "latency_ms": 1e3 * statistics.median(latency),
        "latency_ms_alone": 1e3 * statistics.median(first.alone_latency_s),
        "largest_difference": max(each.difference for each in flows),
    }


def summarize_forward(rows: Sequence[Record]) -> dict[str, float]:
    """Return the best speedup of prediction in two stages, and its latency relative to that of one process."""
    two = [row for row in rows if row["stages"] == 2]
    if not two:
        return {}
    best = max(two, key=lambda row: row["speedup"])
    return {
        "forward_speedup_2_stages": best["speedup"],
        "forward_latency_ratio": best["latency_ms"] / best["latency_ms_alone"],
        "forward_difference": max(row["largest_difference"] for row in rows),
    }


def _median_ratio(these: Sequence[float], those: Sequence[float]) -> float:
    return statistics.median(this / that for this, that in zip(these, those, strict=True))


def summarize(rows: Sequence[Record]) -> dict[str, float]:
    """Return the largest gradient error, the best two-stage speedup with its bound and bubble, and the memory of a stage relative to one process."""
    ours = [row for row in rows if row["system"] == OURS]
    summary = {"max_gradient_error": max(row["gradient_error"] for row in ours)}
    two = [row for row in ours if (row["stages"], row["data"]) == (2, 1)]
    if two:
        best = max(two, key=lambda row: row["speedup"])
        names = {"speedup": "speedup_2_stages", "chunks": "its_chunks", "bound": "its_bound", "bubble": "its_bubble"}
        names |= {"bubble_ideal": "its_bubble_ideal", "speedup_whole_batch": "speedup_2_stages_whole_batch"}
        summary |= {name: best[key] for key, name in names.items()}
    for stages in (2, 4):
        shares = [share for row in ours if (share := _memory_share(row, ours, stages)) is not None]
        if shares:
            summary[f"memory_of_a_stage_of_{stages}"] = statistics.median(shares)
    return summary


def _memory_share(row: Record, rows: Sequence[Record], stages: int) -> float | None:
    """Return the peak memory of ``row`` divided by that of one process with the same chunks; None unless it has ``stages`` stages."""
    if (row["stages"], row["data"]) != (stages, 1):
        return None
    alone = [other["peak_mb"] for other in rows if (other["processes"], other["chunks"]) == (1, row["chunks"]) and "peak_mb" in other]
    return row["peak_mb"] / alone[0] if alone and "peak_mb" in row else None


def picture(records: Sequence[Record]) -> Any:
    """Return the matplotlib figure: speedup, bubble and memory by number of chunks, with a line for each number of stages and replicas."""
    figure = pictures.figure(15, 4.6, "A Vision GNN in a pipeline: stages as processes with one thread each")
    panels = (
        ("speedup", "bound", "speedup over one process with the same chunks"),
        ("bubble", "bubble_ideal", "fraction of a stage's time without work"),
        ("peak_mb", None, "peak memory of the largest stage, MB"),
    )
    for place, (name, ideal, title) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("chunks")
        _draw_panel(axes, records, name, ideal)
        axes.margins(x=0.1, y=0.12)
        axes.set_ylim(bottom=0)
        axes.set_xticks(sorted({record["chunks"] for record in records if record["chunks"]}))
        pictures.open_frame(axes)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


_COLOURS = {1: "#4a6c8c", 2: "#c4580c", 4: "#4f7a3a"}


def _draw_panel(axes: Any, records: Sequence[Record], name: str, ideal: str | None) -> None:
    ours = [record for record in records if record["system"] == OURS]
    for stages, data in sorted({(record["stages"], record["data"]) for record in ours}):
        rows = sorted(
            (r for r in ours if (r["stages"], r["data"]) == (stages, data) and r.get(name) is not None), key=lambda r: r["chunks"]
        )
        if not rows:
            continue
        chunks = [row["chunks"] for row in rows]
        colour, dash = _COLOURS.get(stages, "black"), "-" if data == 1 else "--"
        crowded = " (more processes than cores)" if rows[0]["more_than_cores"] == "yes" else ""
        label = f"{stages} stage{'s' * (stages > 1)}{f' x {data} replicas' if data > 1 else ''}{crowded}"
        axes.plot(chunks, [row[name] for row in rows], dash, marker="o", markersize=4, color=colour, label=label)
        if ideal is not None and stages > 1 and data == 1:
            axes.plot(chunks, [row[ideal] for row in rows], ":", color=colour, label=f"{stages} stages, bound by the bubble")
    published = [record for record in records if record["system"] == PAPER and record["chunks"] and record.get(name) is not None]
    for record in published:
        axes.plot(record["chunks"], record[name], "x", color=_COLOURS.get(record["stages"], "black"))
        axes.annotate(
            f"paper, {record['stages']} x {record['data']}",
            (record["chunks"], record[name]),
            fontsize=7,
            xytext=(4, 4),
            textcoords="offset points",
        )
