"""What does another sampler change in a whole training, algorithm by algorithm?

The same training script runs with hoptrain's sampler and with that of PyG, of DGL, or of the authors' own programs
(``hoptrain.benchmarks.study.peer_feeds``), on synthetic counterparts of the graphs of "The Case for Sampling on Very Large Graphs" (Serafini & Guan 2021)
and on real ones. It is the machinery of ``hoptrain bench scale``: fresh processes, a time limit, cells in turns, a report. Without workers the share
of sampling in an epoch is the paper's Table 2; the ratio to the best peer is its Table 3.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hoptrain.benchmarks import scale
from hoptrain.benchmarks.common.harness import Result

GLANCE: dict[str, Any] = {
    "rounds": 1,
    "limit": 60,
    "all": {
        "dataset": "synthetic:arxiv",
        "scale": 0.05,
        "hidden": 16,
        "epochs": 1,
        "workers": 0,
        "batch_size": 512,
        "layer_sizes": [512, 512],
    },
    "grids": [{"algorithm": ["ladies"], "system": ["hoptrain", "papers"]}, {"algorithm": ["neighbor"], "system": ["hoptrain", "dgl"]}],
}
"""Grid of ``--quick`` if none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    scale.add_arguments(parser)
    parser.add_argument("--root", type=Path, metavar="DIR", help="folder that holds data sets")


def run(args: argparse.Namespace) -> Result:
    """Run what is left of the grid, and write the report; see the module's docstring."""
    return scale.run_study(args, GLANCE, args.root)
