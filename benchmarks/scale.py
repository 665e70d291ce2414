"""How does training scale with ranks, workers and batch sizes, with the loaders of hoptrain, PyG and DGL?

With the grid of other sampling algorithms (configs/bench/end_to_end.yaml) the study shows the effect of the sampler on the same training, as in "The Case
for Sampling on Very Large Graphs" (Serafini & Guan 2021). The fraction of an epoch spent on sampling, without workers, corresponds to the paper's Table 2;
the ratio to the best baseline corresponds to its Table 3.

A cell is one combination of the grid's values. Each cell runs in its own processes with a time limit, and cells run in turn, round after round.
``hoptrain.benchmarks.study.run`` describes what a cell does, and ``hoptrain.benchmarks.study.peer_feeds`` how each loader is set up. Systems differ only
in their loader: model, optimiser, training loop and evaluation are the same code.

To continue a study that was interrupted, start it again with the same --out. The report is written next to the results, as Markdown and as one HTML page.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hoptrain.benchmarks import report
from hoptrain.benchmarks.baselines.installed import tcmalloc
from hoptrain.benchmarks.common.grid import Grid, parse_grid, read_grid, run_grid
from hoptrain.benchmarks.common.harness import Result
from hoptrain.benchmarks.common.options import warn_if_busy
from hoptrain.benchmarks.study.cell import SYSTEMS, Cell
from hoptrain.benchmarks.study.run import command_of
from hoptrain.benchmarks.study.table import rows_of, summarize
from hoptrain.engine import InputError, load_dataset

GLANCE: dict[str, Any] = {
    "rounds": 3,
    "limit": 60,
    "all": {"dataset": "synthetic:reddit", "scale": 0.02, "hidden": 16, "batch_size": 512, "epochs": 1},
    "grids": [{"system": ["hoptrain", "pyg", "dgl"], "workers": [2]}],
}
"""Grid that ``--quick`` uses if no file is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML file of the grid, such as those in configs/bench. With --quick it runs three rounds; without a file, a small built-in grid",
    )
    add("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="systems to run (default: all)")
    add("--again", action="store_true", help="also repeat cells that hung, failed or were skipped before")
    add("--root", type=Path, metavar="DIR", help="folder that holds data sets")


def run(args: argparse.Namespace) -> Result:
    """Run the rest of the grid, and write the report; see the module's docstring.

    Raises:
        InputError: no grid was given, or it is invalid.
    """
    grid = read(args)
    warn_if_busy()
    places = dict.fromkeys((cell.dataset, cell.scale) for cell in grid.cells)
    folders = {(name, scale): load_dataset(name, root=args.root, scale=scale).path for name, scale in places}

    def command(cell: Cell) -> Sequence[str]:
        folder = folders[cell.dataset, cell.scale]
        if folder is None:
            raise InputError(
                f"{cell.dataset} has not been saved: ranks and workers read it from files; convert it ('hoptrain data convert')"
            )
        preload = ["env", f"LD_PRELOAD={tcmalloc()}"] if cell.allocator == "tcmalloc" and tcmalloc() else []
        return [*preload, *command_of(cell, folder)]

    lines = run_grid(grid, command, args.out, again=args.again)
    report.write(args.out)
    rows = rows_of(lines)
    return Result(records=rows, summary=summarize(rows), seeds=sorted({cell.seed for cell in grid.cells}))


def read(args: argparse.Namespace) -> Grid[Cell]:
    """Return the grid that the options name, or ``GLANCE`` if only ``--quick`` is given.

    Raises:
        InputError: no grid was given, or it is invalid.
    """
    if args.config is None and not args.quick:
        raise InputError("no grid is named: give --config FILE, for example one of configs/bench, or --quick")
    grid = parse_grid(GLANCE, Cell, "--quick") if args.config is None else read_grid(args.config, Cell)
    return Grid(
        cells=[cell for cell in grid.cells if cell.system in args.systems], rounds=3 if args.quick else grid.rounds, limit=grid.limit
    )
