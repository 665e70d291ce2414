"""``hoptrain data partition``: a data set in parts, one for each machine, and what ``hoptrain data info`` says of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hoptrain.engine.datasets.load import load_dataset
from hoptrain.engine.features.quantized import codes_of, format_of
from hoptrain.engine.partition.folder import GRAPHS, Partition, open_partition, part_folder, write_partition
from hoptrain.engine.partition.methods import METHODS
from hoptrain.trainers.commands.table import aligned


def add_action(actions: Any) -> argparse.ArgumentParser:
    """Add ``partition`` to the actions of ``hoptrain data``; returns its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "partition",
        help="write a data set in parts, one for each machine",
        description="Write a data set as a folder of parts: the graph for all machines (or parted too), and the features of each part apart. "
        "'hoptrain fit --data.partitions FOLDER' trains from them, on as many machines as parts, or on one that has all.",
    )
    parser.add_argument("--parts", type=int, required=True, help="how many parts: as many as machines")
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="stream",
        help="stream: few edges between parts, in little memory; metis: the same with all edges in memory; range: by id, at once",
    )
    parser.add_argument(
        "--graph",
        choices=GRAPHS,
        default="replicated",
        help="whole: all machines have the graph; parted: each has the edges into its own nodes",
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the parts and print what they are; returns 0."""
    data = load_dataset(args.name, root=args.root, scale=args.scale)
    write_partition(data, args.dest, args.parts, args.method, lambda line: print(line, flush=True), args.graph)
    print(aligned(facts(open_partition(Path(args.dest)))))
    return 0


def facts(partition: Partition, *, verify: bool = False) -> list[list[str]]:
    """Lines (what, value) about a data set in parts; ``verify`` compares the parts' checksums."""
    data, number = partition.data, partition.num_parts
    shared = sum(array.nbytes for array in data.arrays().values()) + partition.place.nbytes
    lines = [
        ["name", data.name],
        ["folder", str(partition.path)],
        ["parts", f"{number}, by {partition.method}"],
        ["cut", f"{partition.cut:.2%} of {data.graph.num_edges:,} edges join two parts"],
        [
            "every machine",
            f"{shared / 1e6:,.2f} MB: {'degrees' if partition.has_columns else 'graph'}, labels, splits, and where each node is",
        ],
    ]
    return lines + [[f"part {part}", _about(partition, part, verify)] for part in range(number)]


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
    return f"{rows:,} nodes, {codes_of(x).nbytes / 1e6:,.2f} MB of features ({format_of(x)}){columns}, {requests:.2f} of an even share of requests"
