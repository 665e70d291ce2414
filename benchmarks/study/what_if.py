"""Predicts the seconds of an epoch for numbers of ranks, workers, cores, GPUs and links that were not measured.

It knows a system from its cells with a single rank, per step; from those whose trainer has as many threads as the ranks to be predicted, where the study
has them, since nothing else tells what a trainer with fewer threads takes. From the one without workers: ``beside``, the work of its loader that workers
can do. From the one with the fewest workers: ``own``, what the trainer does itself for a step, and ``cpu``, the core-seconds that this took, both beside
workers; and ``handover``, the core-seconds that the step took beyond what the three explain: batches that go from process to process, and processes that
take the cores from one another. Of a step with several ranks the slowest of three things decides:

* the trainer: ``own`` (not less than ``cpu`` shared out among the threads of a rank);
* its workers: ``beside`` shared out among them;
* the machine: the core-seconds of all ranks and workers shared out among the cores.

On top come the ``handover`` of all ranks, shared out among the cores, and the all-reduce of a ring: 2 (N - 1) / N times the gradient's bytes over the
bandwidth of the link, and 2 (N - 1) latencies. Without workers ``beside`` is added to ``own``, and there is no ``handover``. The model leaves out memory
bandwidth and caches that ranks share, uneven batches, queues that run dry.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hoptrain.benchmarks.study.table import PLACE, Row

GATHERS_IN_TRAINER = ("pyg", "dgl")
"""Systems whose trainer fetches the features itself, as their loaders are set up here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """Between ranks: bytes per second and seconds per message."""

    name: str
    bandwidth: float
    latency: float


LOOPBACK = Link(name="gloo on one machine", bandwidth=1e9, latency=1e-4)
NVLINK = Link(name="NVLink", bandwidth=2e11, latency=1e-5)
ETHERNET = Link(name="10 Gb/s Ethernet", bandwidth=1.25e9, latency=5e-5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """The costs of a step of one rank in seconds, and the size of an epoch.

    Attributes:
        beside: seconds of work that loader processes can do.
        own: seconds in which the trainer does not wait.
        cpu: core-seconds of ``own``.
        steps: steps of an epoch with one rank.
        gradient_bytes: bytes of the gradients that are averaged.
        handover: core-seconds of a step with workers in addition to these.
    """

    beside: float
    own: float
    cpu: float
    steps: int
    gradient_bytes: int
    handover: float = 0.0


def calibrate(known: Sequence[Row], cores: int) -> Costs:
    """From the measured cells of ``basis``, on a machine with ``cores``."""
    costs = _costs(known[0])
    if len(known) == 1:
        return costs
    fed = known[1]
    costs = replace(_costs(fed), beside=costs.beside)  # that of workers which share the cores would hold their waiting
    explained = predict(costs, ranks=1, workers=fed["workers"], cores=cores)
    return replace(costs, handover=max(0.0, fed["epoch_s"] - explained) / costs.steps * cores)


def _costs(row: Row) -> Costs:
    steps = row["steps"]
    gathers = row["gather_s"] if row["system"] in GATHERS_IN_TRAINER else 0.0
    own = row["train_s"] + row["copy_s"] + row["other_s"] + gathers
    beside = row["sample_s"] + row["gather_s"] - gathers
    # Without workers the trainer's core-seconds have the loader's among them.
    cpu = row["trainer_cpu_s"] - (beside if row["workers"] == 0 else 0.0)
    return Costs(beside=beside / steps, own=own / steps, cpu=max(own, cpu) / steps, steps=steps, gradient_bytes=row["gradient_bytes"])


def predict(costs: Costs, *, ranks: int, workers: int, cores: int, link: Link = LOOPBACK) -> float:
    """Seconds of an epoch with ``workers`` a rank, all ranks on a machine with ``cores``."""
    threads = max(1, cores // ranks)
    own = max(costs.own, costs.cpu / threads)
    alone = own + costs.beside if workers == 0 else max(own, costs.beside / workers)
    handover = costs.handover if workers else 0.0
    step = max(alone, ranks * (costs.cpu + costs.beside) / cores) + ranks * handover / cores
    send = 2 * (ranks - 1) * (costs.gradient_bytes / ranks / link.bandwidth + link.latency)
    return math.ceil(costs.steps / ranks) * (step + send)


def check(rows: Sequence[Row], cores: int) -> list[Row]:
    """The prediction beside each measured cell that it was not calibrated from: system, arch, ranks, workers, measured, predicted, error."""
    found = []
    for row in rows:
        known = basis(rows, row)
        if row["epoch_s"] is None or not known or any(row is one for one in known):
            continue
        predicted = predict(calibrate(known, cores), ranks=row["ranks"], workers=row["workers"], cores=cores)
        facts = {name: row[name] for name in ("system", "several_sets", "apart", *PLACE)}
        found.append(facts | {"measured_s": row["epoch_s"], "predicted_s": predicted, "error": predicted / row["epoch_s"] - 1})
    return found


def basis(rows: Sequence[Row], row: Row) -> list[Row]:
    """Return the cells that calibrate a system: one rank and the fewest workers; if these are 0, also the second fewest.

    Cells with as many threads as the row's trainer are chosen. Without such cells, or if the row has no number, those with the most threads are.
    """
    same = [
        other
        for other in rows
        if other["epoch_s"] is not None
        and other["ranks"] == 1
        and all(other[name] == row[name] for name in ("system", *PLACE) if name not in ("ranks", "workers"))
    ]
    threads = {other["threads"] for other in same}
    taken = row.get("threads") if row.get("threads") in threads else max(threads, default=None)
    same = [other for other in same if other["threads"] == taken]
    same.sort(key=lambda other: int(other["workers"]))
    return same[:2] if same and same[0]["workers"] == 0 else same[:1]


def typical_error(checked: Sequence[Row]) -> tuple[float, float] | None:
    """Median and largest absolute error; None if nothing could be checked."""
    errors = [abs(row["error"]) for row in checked]
    return (statistics.median(errors), max(errors)) if errors else None


def table(
    rows: Sequence[Row], measured: int, *, cores: int, link: Link = LOOPBACK, device_step_s: float | None = None
) -> list[dict[str, Any]]:
    """Predicted epochs of every system and architecture, ``epochs_s`` by 1 to 8 ranks, with 2 or 4 workers each on a machine with ``cores``.

    The study was made on one with ``measured`` cores. ``device_step_s`` is what a step takes on a GPU, one for each rank; None trains on the cores.
    """
    found = []
    for base in rows:
        known = basis(rows, base | {"threads": None})
        if not known or known[0] is not base:
            continue
        costs = calibrate(known, measured)
        if device_step_s is not None:
            gathers = base["gather_s"] / base["steps"] if base["system"] in GATHERS_IN_TRAINER else 0.0
            costs = replace(costs, own=device_step_s + gathers, cpu=gathers)
        for workers in (2, 4):
            epochs = {ranks: predict(costs, ranks=ranks, workers=workers, cores=cores, link=link) for ranks in (1, 2, 4, 8)}
            found.append({name: base[name] for name in ("system", *PLACE)} | {"workers": workers, "link": link.name, "epochs_s": epochs})
    return found
