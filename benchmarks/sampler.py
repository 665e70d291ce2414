"""How fast is neighbour sampling, compared with DGL, PyG and a lower bound from the memory's speed?

All systems sample an epoch's mini-batches in interleaved rounds of about a quarter of a second each. The accesses for the lower bound
(``hoptrain.benchmarks.common.floor``) are timed in the same rounds for the same time. Results are medians over the rounds; ratios and multiples are
formed within a round, per sampled edge. The files of ``hoptrain.benchmarks.baselines`` say how each baseline is called. Timed are:

* hoptrain: drawing, relabelling, and copying all arrays into buffers that are reused, as its loader copies them into a queue slot. "hoptrain" gives each
  thread whole mini-batches; "hoptrain, shared" uses all threads for each one. Ids are int32 if they fit. Compare with a baseline's int32 variant for
  the same data size, and with int64 for the baseline's default.
* baselines: the whole call of their samplers, which return new tensors.

All systems have the graph in their own memory; baselines require it, and hoptrain uses ``Graph.in_memory``. A system that samples another number of edges
than hoptrain from the same seeds is left out, with a message, since the speeds would not be comparable.

In mode "all" each hop expands all nodes found so far, as in DGL; in mode "new" only those found by the previous hop, as in PyG. Each baseline is compared
with hoptrain in the baseline's mode and with as many threads. In the summary ``min_ratio_*`` is hoptrain's speed over the *fastest* variant of a baseline
with at most as many threads, the minimum over graphs, fanouts and batch sizes. ``min_scaling_*`` is hoptrain's speed over its speed with one thread, and
``min_machine_scaling_*`` the same for plain random reads, which shows how well the machine scales.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from hoptrain.benchmarks.baselines import hoptrain
from hoptrain.benchmarks.baselines.installed import call
from hoptrain.benchmarks.baselines.systems import NeighborSystems, System, open_baselines
from hoptrain.benchmarks.common import options, pictures
from hoptrain.benchmarks.common.floor import count_work, floor_parts, floor_per_edge
from hoptrain.benchmarks.common.harness import HOPTRAIN, Result
from hoptrain.benchmarks.common.options import key_of, summarize
from hoptrain.benchmarks.common.rounds import Costs, Paced, time_rounds
from hoptrain.engine import Dataset, Graph, InputError
from hoptrain.engine.arrays import Array
from hoptrain.samplers import NeighborSampler

BASELINES: Mapping[str, Callable[[Graph], NeighborSystems]] = {
    "dgl": partial(call, "dgl", "open_neighbor"),
    "pyg-lib": partial(call, "pyg", "open_neighbor", "pyg-lib"),
    "torch-sparse": partial(call, "pyg", "open_neighbor", "torch-sparse"),
}
_COUNTED = 2
"""Number of mini-batches whose cache lines are counted for the lower bound."""
_MOST_SEEDS = 1024
"""Maximum number of different mini-batches that are timed. If an epoch has more, only its first ones are timed, repeatedly."""
_PYTHON = "python"
_SECONDS = 0.25
"""Approximate seconds for which each system is timed in a round."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.description = f"{parser.description} Takes minutes at full scale. Writes results.json and sampler.png to --out."
    add = parser.add_argument
    options.add_case_arguments(parser, list(BASELINES))
    add("--batches", type=int, metavar="K", help="mini-batches per system and round (default: as many as take 0.25 s; with --quick 4)")
    options.add_threads(parser)
    add("--replace", action="store_true", help="sample neighbours with replacement")
    add(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: compare hoptrain's GPU schedules with each other, without baselines (default cpu)",
    )
    add(
        "--bulks",
        type=int,
        nargs="+",
        metavar="K",
        help="with --device cuda: mini-batches that a GPU samples in one bulk (default 1 4 16 64 256, with --quick 1 4)",
    )
    add(
        "--bandwidth",
        type=float,
        metavar="GB/S",
        help="with --device cuda: memory bandwidth of the GPU, for predicted times (default: from the driver)",
    )


def run(args: argparse.Namespace) -> Result:
    """Measure on every graph; see the module's docstring."""
    if args.device == "cuda":
        from hoptrain.benchmarks.cases import sampler_cuda  # imported here since CUDA may be absent

        return sampler_cuda.measure(args)
    if args.bandwidth is not None:
        raise InputError(f"--bandwidth {args.bandwidth:g} with --device cpu: it is used only for predictions on a GPU; leave it out")
    timing = Timing(
        threads=sorted(set(args.threads)),
        modes=args.modes,
        replace=args.replace,
        batches=4 if args.quick and args.batches is None else args.batches,
        rounds=options.num_rounds(args),
    )
    options.warn_if_busy()
    records: list[dict[str, Any]] = []
    answers: list[dict[str, float]] = []
    for name in args.graphs:
        data = options.load(name, args)
        for rows, answer in _measure_graph(data, list(product(args.fanouts or options.FANOUTS, args.batch_size)), args.baselines, timing):
            records += rows
            answers.append(answer)
    pictures.write(args.out / "sampler.png", pictures.speeds, records, *pictures.SAMPLER)
    return Result(records=records, summary=summarize(answers), seeds=[options.SEED])


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Settings for timing systems on all graphs.

    A round has ``batches`` mini-batches per system; None takes as many as fill about a quarter of a second.
    """

    threads: Sequence[int]
    modes: Sequence[str]
    replace: bool
    batches: int | None
    rounds: int

    def __post_init__(self) -> None:
        options.check_threads(self.threads)
        if self.rounds < 1 or (self.batches is not None and self.batches < self.threads[-1]):
            raise InputError(
                f"{self.batches} batches in {self.rounds} rounds: "
                f"there must be 1 round or more, with a batch for each of {self.threads[-1]} threads; give more"
            )

    def pace(self, act: Callable[[int, int], int], threads: int = 1) -> Paced:
        """Return a callable that runs ``act`` on the mini-batches of a round, at least one for each thread."""
        return Paced(act, _SECONDS, least=threads) if self.batches is None else Paced(act, 0.0, least=self.batches)


def _measure_graph(
    data: Dataset, cases: Sequence[tuple[Sequence[int], int]], baselines: Sequence[str], timing: Timing
) -> Iterator[tuple[list[dict[str, Any]], dict[str, float]]]:
    """Yield, for each case (fanouts and a batch size), its records and its part of the summary."""
    graph = data.graph.in_memory()
    opened = [*(hoptrain.open_neighbor(mode, graph) for mode in timing.modes), *open_baselines(BASELINES, baselines, graph)]
    parts = floor_parts(graph, timing.threads)
    for fanouts, batch_size in cases:
        place = {"graph": data.name, "fanouts": ",".join(map(str, fanouts)), "batch": batch_size}
        print(*place.values(), file=sys.stderr)
        steps = options.schedule(data, batch_size)
        seeds = [steps.batch_items(0, step) for step in range(min(steps.num_steps, _MOST_SEEDS))]
        systems = [system for make in opened for system in make(fanouts, timing.replace, timing.threads) if system.mode in timing.modes]
        paced = {system.label: timing.pace(partial(_sample, system.sample, seeds), system.threads) for system in systems}
        yardsticks = {name: timing.pace(partial(_repeat, part)) for name, part in parts.items()}
        yardsticks[_PYTHON] = timing.pace(partial(_sample, hoptrain.open_overhead(graph, timing.modes[0], len(fanouts)), seeds))
        costs = time_rounds({**paced, **yardsticks}, timing.rounds)
        floors = {}
        for mode in timing.modes:
            sampler = NeighborSampler(fanouts, replace=timing.replace, expand=mode)
            work = count_work(graph, [sampler.sample(graph, ids, batch=i) for i, ids in enumerate(seeds[:_COUNTED])])
            floors[mode] = floor_per_edge({part: costs[part].ns for part in parts}, work)
        edges = {label: one.amount_per_unit for label, one in paced.items()}
        systems = [
            system
            for system in systems
            if options.is_same_work(system.label, edges[system.label], edges[_own(system.mode, system.threads)])
        ]
        rows = [place | _row(system, costs, floors[system.mode], edges[system.label], timing.replace) for system in systems]
        yield rows, answers(systems, costs, floors) | _own_answers(data.name, rows)


def _sample(sample: Callable[[Sequence[Array], int], int], seeds: Sequence[Array], first: int, number: int) -> int:
    return sample([seeds[i % len(seeds)] for i in range(first, first + number)], first)


def _repeat(part: Callable[[int], int], first: int, number: int) -> int:
    return sum(part(i) for i in range(first, first + number))


def _own(mode: str, threads: int) -> str:
    """Return the label of the hoptrain variant with which baselines are compared."""
    return f"{HOPTRAIN}, {mode}, {threads}"


def _row(system: System, costs: Costs, floor: Array, edges_batch: float, replace: bool) -> dict[str, Any]:
    cost = costs[system.label]
    beside = None if system.family == HOPTRAIN else costs[_own(system.mode, system.threads)].ns
    has_floor = system.family == HOPTRAIN and system.threads == 1
    return {
        "mode": system.mode,
        "draws": "with" if replace else "without",
        "system": system.name,
        "threads": system.threads,
        "medges_s": 1e3 / cost.median,
        "batches_s": 1e9 / (cost.median * edges_batch),
        "ns_edge": cost.median,
        "spread": cost.spread,
        "edges_batch": edges_batch,
        "ratio": None if beside is None else cost.over(beside),
        "floor_ns": float(np.median(floor)) if has_floor else None,
        "floor_multiple": cost.over(floor) if has_floor else None,
        # Upper bound on the fraction of time in which hoptrain holds the GIL: the time of a mini-batch with almost no edges.
        "python_share": costs[_PYTHON].over(cost.ns * edges_batch) if has_floor else None,
    }


def answers(systems: Sequence[System], costs: Costs, floors: Mapping[str, Array]) -> dict[str, float]:
    """Return the values that one graph with its fanouts and batch size adds to the summary."""
    found: list[dict[str, float]] = []
    for own in (system for system in systems if system.name == HOPTRAIN):
        cost, threads = costs[own.label], own.threads
        for baseline in systems:
            if baseline.family != HOPTRAIN and baseline.mode == own.mode and baseline.threads <= threads:
                ratio = costs[baseline.label].over(cost.ns)
                found += [{f"min_ratio_{key_of(name)}_t{threads}": ratio} for name in (baseline.family, baseline.name)]
        if threads == 1:
            found.append({"max_floor_multiple": cost.over(floors[own.mode])})
        elif (alone := _own(own.mode, 1)) in costs:
            machine = costs["line"].over(costs[f"line, {threads}"].ns)
            found.append({f"min_scaling_t{threads}": costs[alone].over(cost.ns), f"min_machine_scaling_t{threads}": machine})
    return summarize(found)


def _own_answers(graph: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return hoptrain's part of the summary for the rows of one case."""
    multiples = [row["floor_multiple"] for row in rows if row["floor_multiple"] is not None]
    shares = [row["python_share"] for row in rows if row["python_share"] is not None]
    return {f"max_floor_multiple_{key_of(graph)}": max(multiples), "max_python_share": max(shares)} if multiples else {}
