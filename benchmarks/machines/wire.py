"""Training with ``hoptrain fit`` and torchrun across network namespaces: bytes that the interfaces send, compared with the counts of the plan."""

from __future__ import annotations

import bisect
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoptrain.benchmarks.machines.counts import EPOCHS, RANKS, Cluster
from hoptrain.benchmarks.machines.namespaces import INTERFACE, Network, joined
from hoptrain.benchmarks.machines.training import link_parts, outcome_of, tell_logs, weights_of, worst_difference
from hoptrain.benchmarks.machines.what_if_machines import gradients_sent, predict
from hoptrain.engine import Dataset
from hoptrain.engine.features.quantized import format_of
from hoptrain.engine.partition.folder import write_partition
from hoptrain.engine.storage.filler import FORESEEN_BYTES
from hoptrain.engine.storage.shared_rows import FORESEEN_SHARE
from hoptrain.kernels.child_process import import_path, python

_PORT = 29500
_MOST_MEMORY = 1 << 40


def cells(
    data: Dataset, machines: Sequence[int], ways: Sequence[tuple[str, str]], shares: Sequence[float], args: Any
) -> list[dict[str, Any]]:
    """Return a record of each run.

    ``ways`` are pairs of a partitioning method and a topology. ``rows`` are the bytes sent in addition to those of a run with all data on each machine.
    """
    # drops the evaluation splits, whose rows are not in the predicted counts
    data = replace(data, splits={"train": data.split("train")}, validate=False)
    fit = (
        *("--data.sampler", "NeighborSampler", "--data.sampler.fanouts", str(args.fanouts), "--data.batch_size", str(args.batch_size)),
        *("--data.num_workers", "1", "--data.seed", "0", "--seed_everything", "1", "--model.lr", "0.01", "--trainer.accelerator", "cpu"),
        *("--trainer.max_epochs", str(EPOCHS), "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
    )
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data.save(folder / "replicated")
        whole = ("--data.dataset", str(folder / "replicated"))
        parted = ("--data.dataset", data.name, "--data.scale", str(data.meta.get("scale", 1.0)), "--data.partitions", "parts")
        alone = _run(folder / "alone", 1, (*fit, *whole), args.rate_mbit)
        x: Any = data.x
        about = {"graph": data.name, "features": format_of(x)}
        records.append(about | {"topology": "replicated", "machines": 1, "parts": "", "share": None} | _facts(alone, alone, 0, 0))
        for number in machines:
            plain = _run(folder / f"plain{number}", number, (*fit, *whole), args.rate_mbit)
            told = {"topology": "replicated", "machines": number, "parts": "", "share": None}
            records.append(about | told | _facts(plain, alone, 0, 0) | _foretold(plain, alone, 0.0, args.rate_mbit))
            for method, topology in ways:
                parts = folder / f"{method}{number}{topology}"
                write_partition(data, parts, number, method, graph=topology)
                cluster = Cluster(data, number, parts, args)
                for share in shares:
                    memory, minimum = _memory_and_minimum(cluster, share)
                    options = (*fit, *parted, "--data.feature_cache", f"{memory}B")
                    run = _run(folder / f"{parts.name} {share}", number, options, args.rate_mbit, parts)
                    told = {"topology": topology, "machines": number, "parts": method, "share": share}
                    sent = minimum / number / EPOCHS / cluster.num_steps
                    foretold = _foretold(run, alone, sent, args.rate_mbit)
                    records.append(about | told | _facts(run, alone, sum(plain["sent"]), minimum) | foretold)
    return records


def _memory_and_minimum(cluster: Cluster, share: float) -> tuple[int, int]:
    """Return the ``feature_cache`` in bytes with which each machine has the slots of ``share``, and the bytes sent with this cache."""
    number = max(cluster.slots(share))
    memory = bisect.bisect_left(range(_MOST_MEMORY), number, key=lambda memory: min(table.num_slots for table in cluster.within(memory)[0]))
    tables, window = cluster.within(memory)
    most_foreseen = min(table.num_bytes for table in tables) // FORESEEN_SHARE // FORESEEN_BYTES
    return memory, cluster.planned([table.num_slots for table in tables], most_foreseen, window)


def _run(folder: Path, number: int, arguments: Sequence[str], rate_mbit: int, parts: Path | None = None) -> dict[str, Any]:
    """Train, and return the outcome, the weights, the bytes that each machine sent, and the seconds of the run and of a step."""
    print(f"{folder.name}: {number} machines", file=sys.stderr)
    each, processes = RANKS // number, []
    with joined(number, rate_mbit) as network:
        begin = time.perf_counter()
        for machine in range(number):
            own = folder / str(machine)
            own.mkdir(parents=True)
            link_parts(parts, machine, own / "parts")
            with (own / "log.txt").open("w") as told:
                processes.append(
                    subprocess.Popen(
                        [*torchrun(network, machine, number, each), *arguments, "--trainer.default_root_dir", str(folder / "runs")],
                        cwd=own, env=os.environ | import_path() | variables(machine), stdout=told, stderr=told, start_new_session=True,
                    )
                )  # fmt: skip
        outcome = outcome_of(processes)
        seconds, sent = time.perf_counter() - begin, network.sent()
    if outcome != "ended":
        tell_logs(folder)
    is_whole = outcome == "ended"
    weights, step_s = (weights_of(folder / "runs"), _step_seconds(folder / "runs")) if is_whole else (None, None)
    return {"outcome": outcome, "weights": weights, "sent": sent, "seconds": seconds, "step_s": step_s}


def _step_seconds(runs: Path) -> float:
    """Return the mean seconds of a step of the last epoch, including waits."""
    with (runs / "version_0/metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("time/step")]
    return float(rows[-1]["time/step"])


def _foretold(run: dict[str, Any], alone: dict[str, Any], sent: float, mbit: float) -> dict[str, Any]:
    """Return the predicted time of a step, from one machine's step and the counted bytes; empty if a run did not end."""
    if run["step_s"] is None or alone["step_s"] is None:
        return {}
    gradients = gradients_sent(sum(4 * tensor.numel() for tensor in alone["weights"].values()), RANKS)
    foretold = predict(alone["step_s"], sent=sent, gradients=gradients, mbit=mbit)
    return {"step_s": run["step_s"], "foretold_s": foretold, "error": foretold / run["step_s"] - 1}


def torchrun(network: Network, machine: int, number: int, ranks_each: int, *options: str) -> list[str]:
    """Return the command that starts a machine's ranks with ``hoptrain fit``. Append options of ``fit``; ``options`` are those of torchrun."""
    places = ("--nnodes", str(number), "--node-rank", str(machine), "--nproc-per-node", str(ranks_each))
    first = ("--master-addr", network.addresses[0], "--master-port", str(_PORT))
    sizes = ("--trainer.num_nodes", str(number), "--trainer.devices", str(ranks_each))
    run = python("-m", "torch.distributed.run", *places, *first, *options, "-m", "hoptrain.trainers.cli", "fit", *sizes)
    return [*network.inside(machine), *run]


def variables(machine: int) -> dict[str, str]:
    """Return the environment variables of a machine's processes."""
    return {"HOPTRAIN_MACHINE": str(machine), "GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}


def _facts(run: dict[str, Any], alone: dict[str, Any], plain: int, minimum: int) -> dict[str, Any]:
    sent = sum(run["sent"])
    return {
        "outcome": run["outcome"], "seconds": run["seconds"], "wire": sent, "rows": sent - plain if minimum else None, "minimum": minimum or None,
        "weight_difference": worst_difference(alone["weights"], run["weights"]),
    }  # fmt: skip
