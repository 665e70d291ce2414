"""Run one cell of ``hoptrain bench trainings``. The program's arguments are ``CELL DATA``; it prints the results."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.benchmarks.baselines import installed
from hoptrain.benchmarks.common.grid import FOUND, SKIPPED, with_tuples
from hoptrain.benchmarks.common.harness import HOPTRAIN
from hoptrain.benchmarks.common.trial import BEGIN, RAISED, say
from hoptrain.benchmarks.trainings.cell import SYSTEMS, Cell
from hoptrain.engine import Dataset, InputError
from hoptrain.engine.arrays import Array
from hoptrain.kernels.child_process import python


def command_of(cell: Cell, folder: Path) -> list[str]:
    """Return the command that runs a cell on the data set in ``folder``."""
    return python("-m", "hoptrain.benchmarks.trainings.program", json.dumps(asdict(cell)), folder)


def main(arguments: Sequence[str]) -> None:
    """Run a cell, and end the process without the shutdown of libraries, whose time does not matter."""
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    run(arguments)
    sys.stdout.flush()
    os._exit(0)


def run(arguments: Sequence[str]) -> None:
    """Run a cell and print the results, or why its system is not available."""
    cell = Cell(**with_tuples(json.loads(arguments[0])))
    say(BEGIN)
    reason = missing(cell)
    if reason is not None:
        say(f"{SKIPPED}{reason}")
        return
    try:
        found = train(cell, Path(arguments[1]))
    except BaseException as error:
        say(f"{RAISED}{type(error).__name__}: {error}")
        raise
    say(FOUND + json.dumps(found))


def missing(cell: Cell) -> str | None:
    """Return why the cell's system is not available (a missing package, or missing layers of hoptrain), or None if it is."""
    system = SYSTEMS[cell.system]
    if system.needs and not any(map(find_spec, system.needs)):
        return f"not installed: {' or '.join(system.needs)}"
    layers = system.arguments.get("layers", "")
    try:
        if system.script == "dgl":
            installed.dgl()
        if layers.startswith(HOPTRAIN):
            import_module(layers)
    except (ImportError, InputError) as error:
        return f"not available: {error}"
    return None


def train(cell: Cell, folder: Path) -> dict[str, Any]:
    """Run the system's script, and return the time of a step, the memory and the accuracy."""
    import torch

    from hoptrain.benchmarks.trainings.epochs import Epochs

    torch.set_num_threads(cell.threads)
    torch.manual_seed(cell.seed)
    data = with_seeds(Dataset.open(folder, verify=False), cell)
    system = SYSTEMS[cell.system]
    epochs = Epochs(cell.epochs, cell.device)
    score = import_module(f"hoptrain.benchmarks.trainings.{system.script}").train(cell, data, epochs, **system.arguments)
    steps = -(-len(data.split("train")) // cell.batch_size)
    return {
        "step_s": statistics.median(epochs.wall_s) / steps,
        "cpu_s": statistics.median(epochs.cpu_s) / steps,
        "first_epoch_s": epochs.first_s,
        "steps": steps,
        "accuracy": score,
        **epochs.used,
        "device": torch.cuda.get_device_name() if cell.device == "cuda" else "cpu",
    }


def with_seeds(data: Dataset, cell: Cell) -> Dataset:
    """Return the data set with the train and test nodes that the cell uses, which are the same for all systems."""
    splits = {"train": _some(data.split("train"), cell.steps * cell.batch_size), "test": _some(data.split("test"), cell.test_nodes)}
    return replace(data, splits=splits, validate=False)


def _some(nodes: Array, most: int) -> Array:
    """Return at most ``most`` of the nodes (N,), chosen at random."""
    return np.sort(np.random.default_rng(0).permutation(nodes)[:most]).astype(np.int64)


if __name__ == "__main__":
    main(sys.argv[1:])
