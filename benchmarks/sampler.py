"""How fast is neighbour sampling, beside DGL and PyG and beside what the memory allows?

All systems sample the same mini-batches of seeds in interleaved rounds, and the machine's floor (``hoptrain.benchmarks.floor``) is timed in
the same rounds, each for a quarter of a second at least. Each number is a median over the rounds; ratios and multiples are formed within a
round, per sampled edge. How the peers are driven is said in ``hoptrain.benchmarks.peers``. What is timed:

* hoptrain: drawing, relabelling, and copying every array out into buffers that are used again, as its loader does into a slot. "hoptrain"
  hands whole mini-batches to its threads; "hoptrain, shared" lets them share each one. Ids are int32 where they fit: of the peers, int32
  is the fair comparison and int64 what a user of their defaults gets.
* the peers: their samplers' whole call, which returns new tensors.

Everybody has the graph in memory of its own: the peers cannot but, hoptrain by ``Graph.in_memory``.

A system that samples another number of edges than hoptrain from the same seeds is left out, aloud: its speed could not be compared.

Modes: "all" expands on each hop all vertices found so far, as DGL does; "new" those found on the hop before, as PyG does. Each peer is
compared with hoptrain in the peer's mode, with as many threads. The summary's ``min_ratio_*`` are hoptrain's speed over the *fastest*
variant of a peer that uses up to as many threads, the least over graphs, fanouts and batch sizes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks import plots
from hoptrain.benchmarks.floor import Floor, count_work, floor_per_edge
from hoptrain.benchmarks.harness import Result
from hoptrain.benchmarks.peers import PEERS
from hoptrain.benchmarks.rounds import WARMUP, Cost, Costs, time_rounds
from hoptrain.benchmarks.systems import FAMILY, Open, System, open_hoptrain, open_overhead
from hoptrain.engine import Dataset, Graph, InputError, Schedule, load_dataset
from hoptrain.engine.arrays import Array
from hoptrain.samplers import NeighborSampler

SEED = 0
GRAPHS = ("synthetic:reddit", "synthetic:products")
FANOUTS = ((25, 10), (15, 10, 5))
QUICK_SCALE = 0.02
_COUNTED = 2
"""Mini-batches in which the floor's cache lines are counted."""
_IDLE = 0.5
"""Load average up to which a machine counts as idle."""
_PYTHON = "python"
_ROUND_S = {False: 0.25, True: 0.0}
"""Seconds that each system samples in a round at least, by ``--quick``: milliseconds alone would be a matter of luck."""
_TOLERANCE = 0.05
"""Difference in sampled edges, relative, that chance may make."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.description = f"{parser.description} Takes minutes at full scale; results.json and sampler.png are left in --out."
    add = parser.add_argument
    add_case_arguments(parser, list(PEERS))
    add("--batches", type=int, metavar="K", help="mini-batches that each system samples at a time (default 16, with --quick 4)")
    add("--threads", type=int, nargs="+", default=[1, 2][: cores()], metavar="T", help="threads of each system (default 1 2)")
    add("--replace", action="store_true", help="draw with replacement")
    add(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: hoptrain's schedules on a GPU beside one another, no peers (default cpu)",
    )
    add(
        "--bulks",
        type=int,
        nargs="+",
        metavar="K",
        help="with --device cuda: mini-batches of a bulk (default 1 4 16 64 256, with --quick 1 4)",
    )


def add_case_arguments(parser: argparse.ArgumentParser, peers: Sequence[str]) -> None:
    """Options that say what is compared on what."""
    add = parser.add_argument
    add(
        "--graphs",
        nargs="+",
        default=list(GRAPHS),
        metavar="NAME",
        help="data sets by name or path (default: the synthetic twins of Reddit and products); seeds are taken from the train split",
    )
    add("--scale", type=float, help="share of a synthetic: set to generate, in (0, 1] (default 1, with --quick 0.02)")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")
    add(
        "--fanouts",
        type=_fanouts,
        action="append",
        metavar="N,N,...",
        help="neighbours per hop from the seeds outward; give it twice to measure two (default: 25,10 and 15,10,5)",
    )
    add("--batch-size", type=int, nargs="+", default=[1024], metavar="B", help="seeds of a mini-batch (default 1024)")
    add(
        "--modes",
        nargs="+",
        choices=("all", "new"),
        default=["all", "new"],
        help="what a hop expands: all vertices found so far, as DGL does, or the new ones, as PyG does (default: both)",
    )
    add(
        "--peers",
        nargs="*",
        choices=peers,
        default=peers,
        help="what to compare with (default: all that are installed; with nothing behind it: none)",
    )
    add("--rounds", type=int, metavar="R", help="rounds that count (default 7, with --quick 3)")


def _fanouts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers; write for instance 25,10") from None


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def run(args: argparse.Namespace) -> Result:
    """Measure on every graph; see the module's docstring."""
    if args.device == "cuda":
        from hoptrain.benchmarks import sampler_cuda

        return sampler_cuda.measure(args)
    setting = Setting(
        threads=sorted(set(args.threads)),
        modes=args.modes,
        replace=args.replace,
        batches=(4 if args.quick else 16) if args.batches is None else args.batches,
        rounds=num_rounds(args),
        round_s=_ROUND_S[args.quick],
    )
    warn_if_busy()
    records: list[dict[str, Any]] = []
    answers: list[dict[str, float]] = []
    for name in args.graphs:
        data = load(name, args)
        for rows, answer in _measure_graph(data, list(product(args.fanouts or FANOUTS, args.batch_size)), args.peers, setting):
            records += rows
            answers.append(answer)
    plots.draw(records, args.out / "sampler.png")
    return Result(records=records, summary=summarize(answers), seeds=[SEED])


def warn_if_busy() -> None:
    """Say so where others use the machine."""
    load_average = os.getloadavg()[0]
    if load_average > _IDLE:
        print(f"the load average is {load_average:.1f}: others use this machine, so figures of several threads will not tell much")


def num_rounds(args: argparse.Namespace) -> int:
    """Rounds that count."""
    rounds: int = (3 if args.quick else 7) if args.rounds is None else args.rounds
    return rounds


def load(name: str, args: argparse.Namespace) -> Dataset:
    """A data set at the scale that was asked for; only synthetic ones have several."""
    scale = (QUICK_SCALE if args.quick else 1.0) if args.scale is None else args.scale
    return load_dataset(name, root=args.root, scale=scale if name.startswith("synthetic:") else 1.0)


def schedule(data: Dataset, batch_size: int) -> Schedule:
    """Mini-batches of the train split, or of all vertices where there is none."""
    seeds = data.split("train") if "train" in data.splits else np.arange(data.graph.num_nodes)
    return Schedule(seeds=seeds, batch_size=batch_size, seed=SEED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is the same for all graphs, fanouts and batch sizes; ``batches`` in each of ``rounds`` rounds, and more until ``round_s`` are over."""

    threads: Sequence[int]
    modes: Sequence[str]
    replace: bool
    batches: int
    rounds: int
    round_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.threads[0] <= self.threads[-1] <= cores():
            raise InputError(f"threads are {list(self.threads)}: this process may use {cores()} cores, so 1 to as many; correct --threads")
        if self.batches < self.threads[-1] or self.rounds < 1:
            raise InputError(
                f"{self.batches} batches in {self.rounds} rounds: a round has a batch for each of {self.threads[-1]} threads; give more"
            )


def _measure_graph(
    data: Dataset, cases: Sequence[tuple[Sequence[int], int]], peers: Sequence[str], setting: Setting
) -> Iterator[tuple[list[dict[str, Any]], dict[str, float]]]:
    """For each case, fanouts and a batch size: its records, and its part of the summary."""
    graph = data.graph.in_memory()
    opened = [open_hoptrain(graph, mode) for mode in setting.modes] + list(_open_peers(peers, graph))
    floor = Floor(graph)
    for fanouts, batch_size in cases:
        place = {"graph": data.name, "fanouts": ",".join(map(str, fanouts)), "batch": batch_size}
        print(*place.values(), file=sys.stderr)
        systems = [system for make in opened for system in make(fanouts, setting.replace, setting.threads) if system.mode in setting.modes]
        bulks = list(take_bulks(schedule(data, batch_size), setting.batches, WARMUP + setting.rounds))
        subjects = {system.label: partial(_sample, system, bulks) for system in systems}
        overhead = open_overhead(graph, setting.modes[0], len(fanouts))
        costs = time_rounds({**subjects, **floor.parts, _PYTHON: partial(_call, overhead, bulks)}, setting.rounds, least_s=setting.round_s)
        floors = {}
        for mode in setting.modes:
            sampler = NeighborSampler(fanouts, replace=setting.replace, expand=mode)
            work = count_work(graph, [sampler.sample(graph, seeds, batch=i) for i, seeds in enumerate(bulks[0][:_COUNTED])])
            floors[mode] = floor_per_edge({part: costs[part].ns for part in floor.parts}, work)
        systems = [
            system
            for system in systems
            if is_same_work(system.label, costs[system.label].amount, costs[_own(system.mode, system.threads)].amount)
        ]
        rows = [place | _row(system, costs, floors[system.mode], setting) for system in systems]
        yield rows, _answers(systems, costs, floors) | _own_answers(data.name, rows)


def _open_peers(names: Sequence[str], graph: Graph) -> Iterator[Open]:
    for name in names:
        try:
            yield PEERS[name](graph)
        except InputError as error:
            print(f"skipped {name}: {error}")


def take_bulks(schedule: Schedule, batches: int, count: int) -> Iterator[list[Array]]:
    """The seeds of ``count`` times some batches, epoch after epoch."""
    for call in range(count):
        numbers = range(call * batches, (call + 1) * batches)
        yield [schedule.batch_seeds(*divmod(number, schedule.num_steps)) for number in numbers]


def _sample(system: System, bulks: Sequence[Sequence[Array]], call: int) -> int:
    bulk = bulks[call % len(bulks)]
    return system.sample(bulk, call * len(bulk))


def _call(overhead: Callable[[Sequence[Array]], int], bulks: Sequence[Sequence[Array]], call: int) -> int:
    return overhead(bulks[call % len(bulks)])


def _own(mode: str, threads: int) -> str:
    """The label of hoptrain's variant that peers are compared with."""
    return f"{FAMILY}, {mode}, {threads}"


def is_same_work(label: str, edges: float, expected: float) -> bool:
    """Whether a system sampled as many edges as hoptrain did from the same seeds; one that did not is left out, aloud."""
    same = abs(edges - expected) <= _TOLERANCE * expected
    if not same:
        print(f"left out {label}: {edges:,.0f} edges a round where hoptrain has {expected:,.0f}; the work is not the same")
    return same


def _row(system: System, costs: Costs, floor: Array, setting: Setting) -> dict[str, Any]:
    cost = costs[system.label]
    beside = None if system.family == FAMILY else costs[_own(system.mode, system.threads)].ns
    has_floor = system.family == FAMILY and system.threads == 1
    return {
        "mode": system.mode,
        "draws": "with" if setting.replace else "without",
        "system": system.name,
        "threads": system.threads,
        "medges_s": 1e3 / cost.median,
        "batches_s": setting.batches / cost.seconds,
        "ns_edge": cost.median,
        "spread": cost.spread,
        "edges_batch": cost.amount / setting.batches,
        "ratio": None if beside is None else cost.over(beside),
        "floor_ns": float(np.median(floor)) if has_floor else None,
        "floor_multiple": cost.over(floor) if has_floor else None,
        "python_share": _python_share(cost, costs, setting) if has_floor else None,
    }


def _python_share(cost: Cost, costs: Costs, setting: Setting) -> float:
    """The part of a mini-batch's time in which hoptrain holds Python's lock: at most that of a mini-batch with nearly no edge."""
    return costs[_PYTHON].over(cost.ns * cost.amount / setting.batches)


def _answers(systems: Sequence[System], costs: Costs, floors: Mapping[str, Array]) -> dict[str, float]:
    """One case's part of the summary."""
    answers: list[dict[str, float]] = []
    for own in (system for system in systems if system.name == FAMILY):
        cost, threads = costs[own.label], own.threads
        for peer in systems:
            if peer.family != FAMILY and peer.mode == own.mode and peer.threads <= threads:
                ratio = costs[peer.label].over(cost.ns)
                answers += [{f"min_ratio_{key_of(name)}_t{threads}": ratio} for name in (peer.family, peer.name)]
        if threads == 1:
            answers.append({"max_floor_multiple": cost.over(floors[own.mode])})
        elif (alone := _own(own.mode, 1)) in costs:
            answers.append({f"min_scaling_t{threads}": costs[alone].over(cost.ns)})
    return summarize(answers)


def _own_answers(graph: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What one graph's rows say about hoptrain alone."""
    multiples = [row["floor_multiple"] for row in rows if row["floor_multiple"] is not None]
    shares = [row["python_share"] for row in rows if row["python_share"] is not None]
    return {f"max_floor_multiple_{key_of(graph)}": max(multiples), "max_python_share": max(shares)} if multiples else {}


def key_of(name: str) -> str:
    """A name as part of the summary's names."""
    return name.removeprefix("synthetic:").lower().replace(" ", "_").replace("-", "_")


def summarize(answers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The least of every ``min_*`` and the largest of every ``max_*``."""
    keys = sorted({key for answer in answers for key in answer})
    return {key: (max if key.startswith("max_") else min)(answer[key] for answer in answers if key in answer) for key in keys}
