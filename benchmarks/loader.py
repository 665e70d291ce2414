"""How fast do loaders pass mini-batches with their features to the trainer, compared with DGL's and PyG's loaders?

Each system has its own process (``hoptrain.benchmarks.common.child``) with its graph, its loaders with their workers, and a consumer that reads one value
of each cache line of every feature row. ``touch_share`` is the fraction of the time that this takes. All systems load the same seeds in turn, round after
round. Results are medians over the rounds, and ratios are formed within a round. The files of ``hoptrain.benchmarks.baselines`` say how each baseline is
set up.

Each measurement is a whole short epoch, from the request for its first mini-batch until its last mini-batch is consumed. So no batch is prefetched before the
clock starts, no work is left over after it stops, and systems that are not being measured are idle. ``max_idle_share`` checks this: it is the CPU time
of all systems and their workers while no system is asked for batches, as a fraction of one core. Workers start in the warm-up.

Systems are compared within a mode. In mode "all" each hop expands all nodes found so far, as in DGL; in mode "new" only those found by the previous hop, as
in PyG. Every system is measured with each number of workers. hoptrain is also measured with its default, ``DEFAULT_WORKERS``. Baselines are also
measured with tcmalloc if it is installed. ``ratio`` and ``min_ratio_*`` are the speed of hoptrain's default over a baseline's. ``min_ratio_best_peer`` is
the smallest ratio to the fastest baseline in its best setting, over graphs, fanouts and batch sizes; ``min_ratio_best_peer_malloc`` is the same without
tcmalloc. A system is left out, with a message, if it dies, does not answer in time, or samples another number of edges than hoptrain.

With ``--features`` hoptrain's default is also measured on quantised features, in two ways: decoded to numbers in the trainer, and, if the system's name
ends in "codes", as the codes that would be sent to a device and decoded there. ``over_float32`` is the speed relative to features as stored in the data set.

``idle_cpu_share`` is the CPU time of a trainer that waits for a slow sampler, as a fraction of one core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hoptrain.benchmarks.baselines import hoptrain
from hoptrain.benchmarks.baselines.installed import call, tcmalloc
from hoptrain.benchmarks.baselines.loaders import Case, Consumer, Load, Open, idle_cpu_share
from hoptrain.benchmarks.common import options, pictures
from hoptrain.benchmarks.common.child import Child, ChildError
from hoptrain.benchmarks.common.harness import HOPTRAIN, Result
from hoptrain.benchmarks.common.options import key_of, summarize
from hoptrain.benchmarks.common.rounds import Cost, time_rounds
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.features.quantized import FORMATS

DEFAULT_WORKERS = 0
"""Number of workers that a ``SampleLoader`` has by default. Without workers it samples with all cores, which a program that only loads leaves idle."""
IDLE_S = 1.0
"""Seconds during which the CPU time of idle loaders is measured."""


class Baseline(NamedTuple):
    """A loader to compare with: its library, its mode of expanding hops, and the function that opens it."""

    family: str
    mode: str
    open_loaders: Open


BASELINES: Mapping[str, Baseline] = {
    "dgl": Baseline("DGL", "all", partial(call, "dgl", "open_loader")),
    "pyg": Baseline("PyG", "new", partial(call, "pyg", "open_loader")),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.description = f"{parser.description} Takes half an hour at full scale. Writes results.json and loader.png to --out."
    options.add_case_arguments(parser, list(BASELINES))
    add = parser.add_argument
    add("--batches", type=int, metavar="K", help="mini-batches per epoch; a round is one epoch (default 8, with --quick 2)")
    add("--workers", type=int, nargs="+", metavar="W", help="worker processes of each loader (default 0 1 2, with --quick 0 2)")
    add("--features", nargs="+", choices=FORMATS, default=[], help="also measure hoptrain on features in these formats")
    add(
        "--patience",
        type=float,
        default=300.0,
        metavar="S",
        help="leave a loader out if it does not answer within this number of seconds (default 300)",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """Settings that hold for all graphs, fanouts and batch sizes.

    ``allocators`` maps an allocator's name to the environment variables with which baselines use it.
    """

    workers: Sequence[int]
    batches: int
    rounds: int
    patience: float
    allocators: Mapping[str, Mapping[str, str]]

    def __post_init__(self) -> None:
        if min(self.workers) < 0 or self.batches < 1 or self.rounds < 1:
            raise InputError(
                f"{self.batches} batches in {self.rounds} rounds with {list(self.workers)} workers: "
                "batches and rounds must be at least 1, workers at least 0; correct these options"
            )


def run(args: argparse.Namespace) -> Result:
    """Measure on every graph; see the module's docstring."""
    conditions = Conditions(
        workers=sorted(set(args.workers or ([0, 2] if args.quick else [0, 1, 2]))),
        batches=(2 if args.quick else 8) if args.batches is None else args.batches,
        rounds=options.num_rounds(args),
        patience=args.patience,
        allocators=allocators(),
    )
    options.warn_if_busy()
    records: list[dict[str, Any]] = []
    answers = [{"idle_cpu_share": idle_cpu_share(2 if args.quick else 10)}]
    with tempfile.TemporaryDirectory(prefix="hoptrain-bench-") as scratch:
        for name, mode in product(args.graphs, args.modes):
            data = options.load(name, args)
            if data.x is None or data.y is None or data.path is None:
                raise InputError(
                    f"{name} lacks features or labels, or has not been saved: the benchmark loads both from files; choose another data set"
                )
            cases = [
                _take_case(data, fanouts, size, conditions) for fanouts, size in product(args.fanouts or options.FANOUTS, args.batch_size)
            ]
            narrow = {form: Path(scratch) / f"{key_of(name)}-{form}" for form in args.features}
            for form, folder in narrow.items():
                if not folder.exists():
                    data.save(folder, features=form)
            for rows, answer in _measure(data, mode, cases, [BASELINES[name] for name in args.baselines], conditions, narrow):
                records += rows
                answers.append(answer)
    timed = [record for record in records if record["batches_s"]]
    pictures.write(args.out / "loader.png", pictures.speeds, timed, *pictures.LOADER)
    return Result(records=records, summary=summarize(answers), seeds=[options.SEED])


def _take_case(data: Dataset, fanouts: Sequence[int], batch_size: int, conditions: Conditions) -> Case:
    """Return a case with the first mini-batches of the training split: as many as the conditions ask for, or all if there are fewer."""
    steps = options.schedule(data, batch_size)
    seeds = np.concatenate([steps.batch_items(0, step) for step in range(min(conditions.batches, steps.num_steps))])
    return Case(fanouts=tuple(fanouts), batch_size=batch_size, seeds=seeds)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class LoaderSystem:
    """A loader with a number of workers: one row of the table.

    Attributes:
        family: the library, "hoptrain", "DGL" or "PyG".
        name: the library and the variant.
        mode: which nodes a hop expands, "all" or "new".
        workers: number of worker processes.
        child: process in which the loader runs. Systems that differ only in their number of workers share it.
        loads: measurements so far, one per epoch.
    """

    family: str
    name: str
    mode: str
    workers: int
    child: Child
    loads: list[Load] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Name that is unique among the systems of a comparison."""
        return f"{self.name}, {self.mode}, {self.workers}"

    def load(self, _call: int) -> int:
        """Load and consume one epoch, and return its number of mini-batches."""
        try:
            self.loads.append(self.child.call("load", self.workers))
        except ChildError as error:
            print(error, file=sys.stderr)
            raise LostError(self.label, str(error).splitlines()[-1]) from error
        return self.loads[-1].batches

    def per_batch(self, amount: Callable[[Load], float]) -> float:
        """Return the mean of an amount per mini-batch, over all recorded epochs."""
        return sum(map(amount, self.loads)) / sum(one.batches for one in self.loads)


class LostError(RuntimeError):
    """An error for a loader that failed. Its arguments are the label of the system and the reason."""


def _own(mode: str) -> str:
    """Return the label of hoptrain with default settings, the variant to which baselines are compared."""
    return f"{HOPTRAIN}, {mode}, {DEFAULT_WORKERS}"


def _measure(
    data: Dataset, mode: str, cases: Sequence[Case], baselines: Sequence[Baseline], conditions: Conditions, narrow: Mapping[str, Path]
) -> Iterator[tuple[list[dict[str, Any]], dict[str, float]]]:
    """Yield, for each case, its records and its part of the summary."""
    systems = [*_systems(data, mode, baselines, conditions), *_on_narrow(mode, conditions, narrow)]
    try:
        for case in cases:
            place = {"graph": data.name, "fanouts": ",".join(map(str, case.fanouts)), "batch": case.batch_size}
            print(*place.values(), mode, file=sys.stderr)
            costs, lost = _time(systems, case, conditions)
            answer = {"max_idle_share": _idle_share({system.child for system in systems})}
            edges = {system.label: system.per_batch(lambda load: load.edges) for system in systems if system.label in costs}
            alike = {label for label, count in edges.items() if options.is_same_work(label, count, edges[_own(mode)])}
            rows = [_row(system, costs) for system in systems if system.label in alike]
            left_out = [_facts(system) | {"batches_s": None, "left_out": lost[system.label]} for system in systems if system.label in lost]
            yield [place | row for row in rows + left_out], answer | _answers(data.name, rows)
    finally:
        for system in systems:
            system.child.close()


def _systems(data: Dataset, mode: str, baselines: Sequence[Baseline], conditions: Conditions) -> Iterator[LoaderSystem]:
    """Yield hoptrain's and the baselines' loaders for a mode. Baselines need not be installed."""
    child = Child(Consumer, partial(hoptrain.open_loader, mode), data.path, patience=conditions.patience)
    for workers in sorted({*conditions.workers, DEFAULT_WORKERS}):
        yield LoaderSystem(family=HOPTRAIN, name=HOPTRAIN, mode=mode, workers=workers, child=child)
    for baseline, (allocator, environment) in product(
        [baseline for baseline in baselines if baseline.mode == mode], conditions.allocators.items()
    ):
        child = Child(Consumer, baseline.open_loaders, data.path, environment=environment, patience=conditions.patience)
        for workers in conditions.workers:
            yield LoaderSystem(family=baseline.family, name=f"{baseline.family} {allocator}", mode=mode, workers=workers, child=child)


def _on_narrow(mode: str, conditions: Conditions, narrow: Mapping[str, Path]) -> Iterator[LoaderSystem]:
    """Yield hoptrain's default loader for each folder of quantised features, decoded and as codes."""
    for (form, folder), what in product(narrow.items(), ("", " codes")):
        child = Child(Consumer, partial(hoptrain.open_loader, mode, as_codes=bool(what)), folder, patience=conditions.patience)
        yield LoaderSystem(family=HOPTRAIN, name=f"{HOPTRAIN} {form}{what}", mode=mode, workers=DEFAULT_WORKERS, child=child)


def allocators() -> dict[str, dict[str, str]]:
    """Return the environment variables for the baselines, by allocator name."""
    found: dict[str, dict[str, str]] = {"malloc": {}}
    library = tcmalloc()
    if library is None:
        print("skipped tcmalloc: not installed; DGL's guide for CPUs recommends it, so install it (Debian: libtcmalloc-minimal4)")
    else:
        found["tcmalloc"] = {"LD_PRELOAD": library}
    return found


def _time(systems: list[LoaderSystem], case: Case, conditions: Conditions) -> tuple[dict[str, Cost], dict[str, str]]:
    """Return the costs of the loaders that could be timed, and the reasons why others failed, both by label."""
    lost: dict[str, str] = {}
    while True:
        _prepare(systems, case)
        present = [system for system in systems if system.label not in lost]
        try:
            costs = time_rounds({system.label: system.load for system in present}, conditions.rounds)
        except LostError as error:
            label, why = error.args
            if label.startswith(HOPTRAIN):
                raise RuntimeError(f"{label}: {why}") from error
            print(f"left out {label}: {why}")
            lost[label] = why
        else:
            for system in present:
                del system.loads[: -conditions.rounds]
            return costs, lost


def _prepare(systems: list[LoaderSystem], case: Case) -> None:
    """Pass a case to each process once. Systems of a process that cannot prepare it are removed from the list."""
    for child in dict.fromkeys(system.child for system in systems):
        served = [system for system in systems if system.child is child]
        try:
            child.call("prepare", case)
        except (InputError, ChildError) as error:
            if served[0].family == HOPTRAIN:
                raise
            print(f"skipped {served[0].name}: {error}")
            for system in served:
                systems.remove(system)
        for system in served:
            system.loads.clear()


def _idle_share(children: Collection[Child]) -> float:
    """Return the CPU time of all processes while no batches are requested from them, as a fraction of one core."""
    before = sum(child.cpu_seconds() for child in children)
    time.sleep(IDLE_S)
    return max(0.0, sum(child.cpu_seconds() for child in children) - before) / IDLE_S


def _row(system: LoaderSystem, costs: Mapping[str, Cost]) -> dict[str, Any]:
    cost = costs[system.label]
    return _facts(system) | {
        "batches_s": 1e9 / cost.median,
        "ms_batch": 1e-6 * cost.median,
        "spread": cost.spread,
        "touch_share": 1e9 * system.per_batch(lambda load: load.touch_s) / float(np.mean(cost.ns)),
        "edges_batch": system.per_batch(lambda load: load.edges),
        "rows_batch": system.per_batch(lambda load: load.rows),
        "ratio": None if system.family == HOPTRAIN else cost.over(costs[_own(system.mode)].ns),
        "over_float32": float(np.median(costs[_own(system.mode)].ns / cost.ns)) if system.name.startswith(f"{HOPTRAIN} ") else None,
        "left_out": None,
    }


def _facts(system: LoaderSystem) -> dict[str, Any]:
    return {"mode": system.mode, "system": system.name, "workers": system.workers}


def _answers(graph: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return a case's entries of the summary, by name."""
    answers: list[dict[str, float]] = []
    for row in rows:
        if row["ratio"] is not None:
            family, allocator = row["system"].split()
            names = ["best_peer", f"best_peer_{key_of(graph)}", f"best_peer_{allocator}", key_of(family)]
            answers += [{f"min_ratio_{name}": row["ratio"]} for name in names]
        if row["over_float32"] is not None:
            answers.append({f"min_over_float32_{key_of(row['system'].removeprefix(HOPTRAIN).strip())}": row["over_float32"]})
    return summarize(answers)
