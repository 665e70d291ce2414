"""Prediction of epoch times for numbers of ranks, workers, cores, GPUs and for links that were not measured.

The model of a system is calibrated per step from its cells with one rank. If the study has cells whose trainer has as many threads as the predicted ranks,
those are used, since other cells do not show the cost of fewer threads. The cell without workers gives

* ``beside``: the loader's work, which workers can do.

The cell with the fewest workers gives

* ``own``: the trainer's own time for a step, and ``cpu``: its core-seconds, both with loader work done by workers;
* ``handover``: core-seconds of a step that the other three do not explain, from passing batches between processes and from processes competing for cores.

A step with several ranks takes as long as the slowest of

* the trainer: ``own``, or ``cpu`` divided by a rank's threads if that is longer;
* its workers: ``beside`` divided by their number;
* the machine: the core-seconds of all ranks and workers divided by the number of cores.

Two terms are added: the ``handover`` of all ranks divided by the number of cores, and a ring all-reduce of 2 (N - 1) / N times the gradient's bytes over
the link's bandwidth plus 2 (N - 1) latencies. Without workers ``beside`` is added to ``own``, and there is no ``handover``. The model ignores shared
memory bandwidth and caches, uneven batches, and queues that run empty.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hoptrain.benchmarks.study.table import PLACE, Row

GATHERS_IN_TRAINER = ("pyg", "dgl")
"""Systems whose features are gathered in the trainer's process, since the study sets up their loaders so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A connection between ranks: bytes per second, and seconds per message."""

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
        cpu: core-seconds that the trainer uses in ``own``.
        steps: steps of an epoch with one rank.
        gradient_bytes: bytes of the gradients that are averaged.
        handover: core-seconds of a step with workers that ``beside``, ``own`` and ``cpu`` do not explain.
    """

    beside: float
    own: float
    cpu: float
    steps: int
    gradient_bytes: int
    handover: float = 0.0


def calibrate(known: Sequence[Row], cores: int) -> Costs:
    """Return the costs of a step, given one or two measured cells as ``basis`` returns them, from a machine with ``cores`` cores."""
    costs = _costs(known[0])
    if len(known) == 1:
        return costs
    fed = known[1]
    costs = replace(_costs(fed), beside=costs.beside)  # measured without workers, since workers' times include waiting for cores
    explained = predict(costs, ranks=1, workers=fed["workers"], cores=cores)
    return replace(costs, handover=max(0.0, fed["epoch_s"] - explained) / costs.steps * cores)


def _costs(row: Row) -> Costs:
    steps = row["steps"]
    gathers = row["gather_s"] if row["system"] in GATHERS_IN_TRAINER else 0.0
    own = row["train_s"] + row["copy_s"] + row["other_s"] + gathers
    beside = row["sample_s"] + row["gather_s"] - gathers
    # Without workers the trainer's core-seconds include the loader's.
    cpu = row["trainer_cpu_s"] - (beside if row["workers"] == 0 else 0.0)
    return Costs(beside=beside / steps, own=own / steps, cpu=max(own, cpu) / steps, steps=steps, gradient_bytes=row["gradient_bytes"])


def predict(costs: Costs, *, ranks: int, workers: int, cores: int, link: Link = LOOPBACK) -> float:
    """Return the seconds of an epoch with ``workers`` per rank, with all ranks on one machine with ``cores``."""
    threads = max(1, cores // ranks)
    own = max(costs.own, costs.cpu / threads)
    alone = own + costs.beside if workers == 0 else max(own, costs.beside / workers)
    handover = costs.handover if workers else 0.0
    step = max(alone, ranks * (costs.cpu + costs.beside) / cores) + ranks * handover / cores
    send = 2 * (ranks - 1) * (costs.gradient_bytes / ranks / link.bandwidth + link.latency)
    return math.ceil(costs.steps / ranks) * (step + send)


def check(rows: Sequence[Row], cores: int) -> list[Row]:
    """Return the prediction for each measured cell that was not used for calibration: system, arch, ranks, workers, measured, predicted, error."""
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

    Cells with the same number of trainer threads as the row are preferred. If there are none, or the row has no such number, cells with the most threads are
    used.
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
    """Return the median and the largest absolute error, or None if nothing could be checked."""
    errors = [abs(row["error"]) for row in checked]
    return (statistics.median(errors), max(errors)) if errors else None


def table(
    rows: Sequence[Row], measured: int, *, cores: int, link: Link = LOOPBACK, device_step_s: float | None = None
) -> list[dict[str, Any]]:
    """Return predicted epochs of every system and architecture: ``epochs_s`` for 1 to 8 ranks with 2 or 4 workers each, on a machine with ``cores``.

    The study was made on a machine with ``measured`` cores. ``device_step_s`` is the time of a step on a GPU, one for each rank; None trains on the CPU.
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
