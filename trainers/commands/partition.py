"""``hoptrain data partition``: writes a partitioned data set, and describes one for ``hoptrain data info``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hoptrain.engine import Dataset, InputError
from hoptrain.engine.datasets.load import load_any
from hoptrain.engine.features.quantized import codes_of, format_of
from hoptrain.engine.partition.folder import GRAPHS, Partition, open_partition, part_folder, write_partition
from hoptrain.engine.partition.methods import METHODS
from hoptrain.trainers.commands.table import aligned


def add_action(actions: Any) -> argparse.ArgumentParser:
    """Add ``partition`` to the actions of ``hoptrain data``, and return its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "partition",
        help="partition a data set, one partition for each machine",
        description="Partition a data set: write a folder with one partition of the features for each machine, and with "
        "--graph partitioned one of the graph. "
        "Train with 'hoptrain fit --data.partitions FOLDER', on one machine per partition, or on one machine that has all partitions.",
    )
    parser.add_argument("--parts", type=int, required=True, metavar="N", help="number of partitions, one for each machine")
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="stream",
        help="stream (default): few edges between partitions, in little memory; metis: few edges, but with all edges in memory; "
        "range: contiguous ranges of node ids, fastest",
    )
    parser.add_argument(
        "--graph",
        choices=GRAPHS,
        default="replicated",
        help="replicated (default): each machine has the whole graph; partitioned: each machine has the edges into the nodes of its partition",
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the partitions and print a description of them; return 0."""
    data = load_any(args.name, root=args.root, scale=args.scale)
    if not isinstance(data, Dataset):
        raise InputError(
            f"{args.name} is a heterogeneous graph: only homogeneous graphs can be partitioned; give each machine a copy of the whole folder"
        )
    write_partition(data, args.dest, args.parts, args.method, lambda line: print(line, flush=True), args.graph)
    print(aligned(facts(open_partition(Path(args.dest)))))
    return 0


def facts(partition: Partition, *, verify: bool = False) -> list[list[str]]:
    """Return (name, value) rows that describe a partitioned data set; ``verify`` checks the checksums of its partitions."""
    data, number = partition.data, partition.num_parts
    shared = sum(array.nbytes for array in data.arrays().values()) + partition.place.nbytes
    lines = [
        ["name", data.name],
        ["folder", str(partition.path)],
        ["partitions", f"{number}, by {partition.method}"],
        ["edge cut", f"{partition.cut:.2%} of {data.graph.num_edges:,} edges are between two partitions"],
        [
            "every machine",
            f"{shared / 1e6:,.2f} MB: {'degrees' if partition.has_columns else 'graph'}, labels, splits, and the partition of each node",
        ],
    ]
    return lines + [[f"partition {part}", _about(partition, part, verify)] for part in range(number)]


def _about(partition: Partition, part: int, verify: bool) -> str:
    if not part_folder(partition.path, part).is_dir():
        return "not on this machine"
    rows, mean = int(partition.bounds[part + 1] - partition.bounds[part]), 1 / partition.num_parts
    x = partition.rows(part, verify=verify)
    requests = partition.requests[part] / mean
    columns = (
        ""
        if not partition.has_columns
        else f", {sum(own.nbytes for own in partition.columns(part).graph.arrays().values()) / 1e6:,.2f} MB of edges"
    )
    return (
        f"{rows:,} nodes, {codes_of(x).nbytes / 1e6:,.2f} MB of features ({format_of(x)}){columns}, requests {requests:.2f} times the mean"
    )
