"""How fast is each sampling algorithm, compared with other libraries that have it?

For each algorithm all systems sample mini-batches from the same graph, in interleaved rounds of a few tenths of a second each. Times are medians over
the rounds. Ratios are formed within a round: the time that a baseline takes for one sampled edge (one step of a random walk, or one mini-batch if the
systems' results differ in size), divided by hoptrain's time with the same number of threads. hoptrain copies all arrays into buffers that it reuses, as
its loader does; baselines return new tensors. The files of ``hoptrain.benchmarks.baselines`` say how each baseline is called.

The summary's ``min_ratio_ALGORITHM`` is hoptrain's speed over that of the *fastest* variant of any baseline with at most the same number of threads, the
minimum over graphs and thread counts. ``min_ratio`` is the minimum of these. Precomputation (alias tables, clusters, FastGCN's distribution) is not timed.
``hoptrain bench sampler`` times neighbour sampling in PyG's expansion mode, and compares it with a lower bound from the memory's speed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hoptrain.benchmarks.baselines import hoptrain
from hoptrain.benchmarks.baselines.installed import call
from hoptrain.benchmarks.baselines.systems import AlgorithmSystems, System, open_baselines
from hoptrain.benchmarks.cases.samplers import ALGORITHMS, TIMED, Workload
from hoptrain.benchmarks.common import options, pictures, tables
from hoptrain.benchmarks.common.harness import HOPTRAIN, Record, Result
from hoptrain.benchmarks.common.options import key_of, summarize
from hoptrain.benchmarks.common.rounds import Cost, Costs, Paced, time_rounds
from hoptrain.engine import Graph

BASELINES: Mapping[str, Callable[[Graph], AlgorithmSystems]] = {
    "dgl": partial(call, "dgl", "open_algorithms"),
    "pyg": partial(call, "pyg", "open_algorithms"),
    "papers": partial(call, "papers", "open_algorithms"),
}
GOAL = 2.0
"""Speedup over a baseline that hoptrain aims for; marked in the figure."""
SECONDS = {False: 0.3, True: 0.05}
"""Approximate seconds for which each system is timed in a round, by whether ``--quick`` is given."""
_SCALE, _QUICK_SCALE = 0.2, 0.01
_TOLERANCE = 0.2
"""Largest relative difference between two systems' edges per mini-batch that is attributed to chance."""
_COLORS = {"DGL": "#4a6c8c", "PyG": "#7a9a5a", "scipy": "#8e6bbf"}
"""Colours of the baselines in the figure, by the first word of a baseline's label."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.description = f"{parser.description} Takes half an hour. Writes results.json, algorithms.md and algorithms.png to --out."
    names = list(TIMED)
    parser.add_argument("--algorithms", nargs="+", choices=names, default=names, help="algorithms to time (default: all)")
    options.add_graph_arguments(parser, list(BASELINES), _SCALE, _QUICK_SCALE)
    options.add_threads(parser)


def run(args: argparse.Namespace) -> Result:
    """Time every algorithm on every graph; see the module's docstring."""
    threads = sorted(set(args.threads))
    options.check_threads(threads)
    options.warn_if_busy()
    records: list[dict[str, Any]] = []
    answers: list[dict[str, float]] = []
    for name in args.graphs:
        data = options.load(name, args, scale=_SCALE, quick_scale=_QUICK_SCALE)
        split = data.split("train") if "train" in data.splits else np.arange(data.graph.num_nodes)
        graph = _with_weights(data.graph)
        opened = [hoptrain.open_algorithms(graph), *open_baselines(BASELINES, args.baselines, graph)]
        for key in args.algorithms:
            print(data.name, key, file=sys.stderr)
            workload = ALGORITHMS[key].workload(graph, split, args.quick)
            systems = [system for make in opened for system in make(key, workload, threads)]
            rows, answer = _measure(key, workload, systems, options.num_rounds(args), SECONDS[args.quick])
            records += [{"graph": data.name} | row for row in rows]
            answers.append(answer)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "algorithms.md").write_text(tables.markdown([_line(record) for record in records]))
    pictures.write(args.out / "algorithms.png", picture, records)
    return Result(records=records, summary=summarize(answers), seeds=[options.SEED])


def _with_weights(graph: Graph) -> Graph:
    """Return the graph in memory, with random edge weights if it has none."""
    weights = graph.weights
    if weights is None:
        weights = np.random.default_rng(options.SEED).random(graph.num_edges, np.float32) + np.float32(0.1)
    return Graph(graph.indptr, graph.indices, weights=weights, is_sorted=graph.is_sorted, validate=False).in_memory()


def _measure(
    key: str, workload: Workload, systems: Sequence[System], rounds: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Time an algorithm on a graph. Return its records, and its entries of the summary."""
    by_unit = TIMED[key].unit == "batch"
    paced = {one.label: Paced(partial(_sample, one, workload), seconds, least=one.threads, by_unit=by_unit) for one in systems}
    costs = time_rounds(paced, rounds)
    edges = {label: one.amount_per_unit for label, one in paced.items()}
    alike = [
        one
        for one in systems
        if by_unit or one.note or options.is_same_work(one.label, edges[one.label], edges[f"{HOPTRAIN}, {one.threads}"], _TOLERANCE)
    ]
    return [_row(key, one, edges[one.label], costs) for one in alike], _answers(key, alike, costs)


def _sample(system: System, workload: Workload, first: int, number: int) -> int:
    return system.sample(workload.batches(first, number), first)


def _row(key: str, system: System, edges_batch: float, costs: Costs) -> dict[str, Any]:
    cost, unit = costs[system.label], TIMED[key].unit
    ratio = None if system.family == HOPTRAIN else cost.over(costs[f"{HOPTRAIN}, {system.threads}"].ns)
    return {
        "algorithm": key,
        "system": system.name,
        "threads": system.threads,
        "ms_batch": 1e-6 * cost.median * (1 if unit == "batch" else edges_batch),
        "edges_batch": edges_batch,
        "unit": unit,
        "ns_unit": cost.median,
        "spread": cost.spread,
        "ratio": ratio,
        "counts": system.counts,
        "note": system.note or None,
    }


def _answers(key: str, systems: Sequence[System], costs: Mapping[str, Cost]) -> dict[str, float]:
    """Return hoptrain's smallest speed ratios: for the algorithm, for each baseline, and overall. Baselines with more threads are left out."""
    answers = []
    for own in (one for one in systems if one.family == HOPTRAIN):
        for baseline in systems:
            if baseline.family != HOPTRAIN and baseline.counts and baseline.threads <= own.threads:
                ratio = costs[baseline.label].over(costs[own.label].ns)
                answers += [{f"min_ratio_{key}": ratio, f"min_ratio_{key_of(baseline.family)}": ratio, "min_ratio": ratio}]
    return summarize(answers)


def _line(record: Record) -> dict[str, Any]:
    """Return a row of the Markdown table. Its ratio is hoptrain's speed over the baseline's."""
    return {name: record[name] for name in ("graph", "algorithm", "threads", "system")} | {
        "ms a batch": f"{record['ms_batch']:.2f}",
        "edges a batch": f"{record['edges_batch']:,.0f}",
        "ratio": "" if record["ratio"] is None else f"{record['ratio']:.1f}x",
        "remarks": record["note"],
    }


def picture(records: Sequence[Record]) -> Any:
    """Return the matplotlib figure of hoptrain's speedup over each baseline with the same number of threads, per graph and algorithm (logarithmic scale)."""
    baselines = [record for record in records if not record["system"].startswith(HOPTRAIN)]
    graphs = list(dict.fromkeys(record["graph"] for record in records))
    names = list(dict.fromkeys(record["algorithm"] for record in records))
    title = "hoptrain's speed over that of each baseline with as many threads; dotted line: twice as fast"
    figure = pictures.figure(6.5 * len(graphs), 1.5 + 0.45 * len(names), title)
    for place, graph in enumerate(graphs, start=1):
        axes = figure.add_subplot(1, len(graphs), place)
        axes.set_title(graph, fontsize=10, fontweight="bold")
        for record in (record for record in baselines if record["graph"] == graph):
            y = names.index(record["algorithm"]) + 0.25 * (record["threads"] - 1)
            face = {} if record["counts"] else {"markerfacecolor": "none"}
            axes.plot(record["ratio"], y, "o" if record["threads"] == 1 else "s", color=_color(record["system"]), markersize=5, **face)
        axes.set_xscale("log")
        axes.axvline(GOAL, color="black", linestyle=":")
        axes.axvline(1.0, color="black")
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_ylim(len(names) - 0.3, -0.7)  # inverts the axis, so that the first algorithm is at the top
        axes.grid(axis="x", which="both", alpha=0.3)
        pictures.open_frame(axes)
    handles = [axes.plot([], [], "o", color=color)[0] for color in _COLORS.values()]
    title = "circles: 1 thread; squares: 2; hollow: a different amount of work, see the table"
    figure.legend(handles, list(_COLORS), loc="outside lower center", ncols=len(_COLORS), fontsize=8, title=title)
    return figure


def _color(system: str) -> str:
    return _COLORS.get(system.replace(",", " ").split()[0], "black")
