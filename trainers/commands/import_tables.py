"""``hoptrain data import``: your edges, features, labels and splits, from text files, Parquet or .npy, as a folder that opens at once."""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoptrain.engine.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoptrain.engine.dataset import Dataset
    from hoptrain.engine.datasets.tables.rows import Progress

_EXAMPLES = """\
for example:
  hoptrain data import --edges web-Google.txt.gz --out google
  hoptrain data import --edges edges.csv --features x.csv --labels y.csv --split split.csv --undirected --out mine
  hoptrain data import --edges events.tsv --columns src,dst,time,- --features x.npy --labels y.npy --split random --out events

then: hoptrain fit --data.dataset mine --data.sampler NeighborSampler --data.sampler.fanouts "[10, 10]"
"""


def add_parser(actions: Any) -> None:
    """Add ``import`` to the actions of ``hoptrain data``."""
    parser = actions.add_parser(
        "import",
        help="make a data set of your own tables: edge lists, CSV, Parquet, .npy",
        description="Make a data set of your own tables. Text may be compressed (.gz), with a header or without; lines that begin with # or % are comments.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--edges", required=True, type=Path, metavar="FILE", help="src, dst and perhaps weight, time and features, a row an edge")
    add("--out", required=True, type=Path, metavar="FOLDER", help="the new folder; it must not exist")
    add("--features", type=Path, metavar="FILE", help="id and features, a row a node; or .npy, row i for the node whose id is i")
    add("--labels", type=Path, metavar="FILE", help="id and label: classes as numbers from 0 on or as names, or targets; or .npy")
    add("--split", metavar="FILE", help="id and the name of a split: train, val, test; or 'random', 60/20/20 of the labelled nodes")
    add(
        "--undirected",
        action="store_true",
        help="add the reverse of each edge; two nodes are joined once, by the first row, unless edges have times",
    )
    add(
        "--columns",
        metavar="A,B,...",
        help="what the columns of the edges are: src, dst, weight, time, the name of a feature, or - for none",
    )
    add("--drop", default="", metavar="A,B,...", help="columns of any table that are left out")
    add("--delimiter", metavar="MARK", help="what parts cells: one character, 'tab' or 'space'; by default what the first line has")
    add("--header", action=argparse.BooleanOptionalAction, help="whether the first lines name the columns; by default that is looked at")
    add("--ids", choices=("auto", "text"), default="auto", help="text: take ids for names, also where they look like numbers")
    add("--skip-bad-rows", action="store_true", help="tell the rows that cannot be read, and leave them out")
    add("--name", help="of the data set; by default the folder's")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, check and write it; returns 0."""
    from hoptrain.engine.dataset import Dataset
    from hoptrain.engine.datasets.tables.bad_rows import BadRows
    from hoptrain.engine.datasets.tables.plain import IDS, read_plain, write_ids
    from hoptrain.engine.store import create_new_folder

    bad = BadRows(lambda line: print(printable(line), file=sys.stderr), skip=args.skip_bad_rows)
    split = args.split if args.split in (None, "random") else Path(args.split)
    with create_new_folder(args.out, Dataset.kind) as writer, _progress() as progress:
        data, ids = read_plain(
            args.edges,
            features=args.features,
            labels=args.labels,
            split=split,
            columns=_names(args.columns) if args.columns else None,
            drop=_names(args.drop),
            delimiter=_delimiter(args.delimiter),
            header=args.header,
            is_text=args.ids == "text",
            undirected=args.undirected,
            name=args.name or args.out.name,
            scratch=writer.folder,
            bad=bad,
            progress=progress,
        )
        data.write_to(writer)
        if ids is not None:
            write_ids(writer.folder, ids)
    left = {"rows left out": sum(bad.skipped.values()), "rows that join a pair again, left out": data.meta.get("repeated_rows", 0)}
    print(f"{args.out}: {data}{_of_edges(data)}" + "".join(f"; {what}: {number:,}" for what, number in left.items() if number))
    if ids is not None:
        print(f"{args.out / IDS} says which id each node has")
    print(f"hoptrain data info {args.out} tells more")
    return 0


def _of_edges(data: Dataset) -> str:
    """What edges have, so that a column that was taken for something else is seen."""
    graph, number = data.graph, data.num_edge_features
    features = [f"features ({number})"] if number else []
    found = [name for name in ("weights", "times") if getattr(graph, name) is not None] + features
    return f", edges with {', '.join(found)}" if found else ""


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _delimiter(given: str | None) -> str | None:
    mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(given or "", given)
    if mark is not None and len(mark) != 1:
        raise InputError(f"--delimiter is {given!r}: it is one character, 'tab' or 'space'; give one")
    return mark


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar for each file, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[Path, Any] = {}

        def show(path: Path, share: float, rows: int) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(path.name, total=1.0, rows=0)
            bars.update(tasks[path], completed=share, rows=rows)

        yield show
