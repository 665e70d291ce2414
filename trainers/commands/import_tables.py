"""``hoptrain data import``: converts your own edges, features, labels and splits in text, Parquet or .npy files to a data set folder."""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hoptrain.engine.dataset import ONLY, BaseDataset, Dataset
from hoptrain.engine.datasets import list_datasets
from hoptrain.engine.datasets.load import load_any
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.encodings import Missing, encodings_in
from hoptrain.engine.datasets.tables.plain import LABEL_NAMES
from hoptrain.engine.datasets.tables.reading import Reading
from hoptrain.engine.errors import InputError, an, join_limited, printable
from hoptrain.engine.features.checks import label_notes
from hoptrain.engine.features.splits import SPLIT_WORDS, SPLITS
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import relation_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hoptrain.engine.datasets.tables.rows import Progress

_EXAMPLES = """\
examples:
  hoptrain data import --edges web-Google.txt.gz --out google
  hoptrain data import --edges edges.csv --features x.csv --labels y.csv \\
      --split split.csv --undirected --out mine
  hoptrain data import --edges events.tsv --columns src,dst,time,- \\
      --features x.npy --labels y.npy --split random --out events

then train on it:
  hoptrain fit --config own_data --data.dataset mine
"""


def add_parser(actions: Any) -> None:
    """Add ``import`` to the actions of ``hoptrain data``."""
    parser = actions.add_parser(
        "import",
        help="make a data set from your own tables (text, CSV, Parquet, .npy)",
        description="Make a data set from your own tables: edge lists, CSV, Parquet or .npy files.\n"
        "Text files may be compressed (.gz) and may have a header line. Lines that begin\nwith # or % are comments.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument_group("tables and output").add_argument
    add(
        "--edges",
        required=True,
        type=Path,
        metavar="FILE",
        help="one row per edge: source, destination, and optional weight, time and edge features",
    )
    add("--out", required=True, type=Path, metavar="FOLDER", help="the folder to write; it must not exist")
    add("--features", type=Path, metavar="FILE", help="one row per node: id and features; or an .npy file whose row i belongs to node i")
    add(
        "--labels",
        metavar="FILE",
        help="one row per node: id and label; classes are names or integers from 0, targets numbers; or an .npy file; or the name of a column of --features",
    )
    add(
        "--split",
        metavar="FILE",
        help="one row per node: id and train, val or test; or the word random: 60/20/20 of the labelled nodes; or the word test: all of them for a test",
    )
    add("--name", help="name of the data set (default: the name of the --out folder)")
    add = parser.add_argument_group("how edges become a graph").add_argument
    add(
        "--undirected",
        action="store_true",
        default=None,
        help="add the reverse of each edge; of several rows for one pair of nodes, keep the first, unless edges have times",
    )
    _add_reading(parser.add_argument_group("how tables are read").add_argument)
    parser.set_defaults(run=run)


def _add_reading(add: Any) -> None:
    """Add the options that control how tables are read."""
    add(
        "--columns",
        metavar="A,B,...",
        help="meaning of each column of --edges: src, dst, weight, time, the name of a feature, or - to ignore it (default: from the header)",
    )
    add_cells(add)
    add("--delimiter", metavar="CHAR", help="separator of cells: one character, tab or space (default: detected in the first line)")
    add("--header", action=argparse.BooleanOptionalAction, help="whether the first line names the columns (default: detected)")
    add("--ids", choices=("auto", "text"), default="auto", help="text: treat ids as text, even if all of them look like numbers")


def add_cells(add: Any) -> None:
    """Add the options for columns and their cells, and for rows that cannot be read."""
    add(
        "--categories",
        metavar="A,B,...",
        help="feature columns that are categories although their cells look like numbers or names",
    )
    add(
        "--like",
        metavar="FOLDER",
        help="data set from tables whose columns, categories, means, classes and options are reused, such as the one that a model was trained on",
    )
    add("--drop", metavar="A,B,...", help="names of columns to ignore, in any table")
    add(
        "--missing",
        choices=get_args(Missing),
        help="features and weights that are missing: report them (error, the default), or fill in the column's mean or 0; in a category they become one "
        "of its categories. With --like, categories that are unknown there count as missing, too",
    )
    add(
        "--skip-bad-rows",
        type=_share,
        nargs="?",
        const=0.05,
        metavar="SHARE",
        help="report rows that cannot be read and leave them out, at most this share of a file (default: 0.05), instead of stopping",
    )


def reading_of(args: argparse.Namespace, kind: type[BaseDataset]) -> Reading:
    """Return the options of ``add_cells``. ``kind`` is the class of the data set that is read, which ``--like`` must have, too.

    Raises:
        InputError: ``--like`` names no such data set.
    """
    like = None if args.like is None else load_any(args.like)
    if like is not None and not isinstance(like, kind):
        raise InputError(
            f"--like {args.like} is {an(type(like).__name__)}: the new data are {an(kind.__name__)}, and both must be of one kind; give another"
        )
    return Reading(args.missing, _names(args.categories), _names(args.drop), like)


def run(args: argparse.Namespace) -> int:
    """Read and check the tables, and write the data set; return 0."""
    from hoptrain.engine.datasets.tables.plain import IDS, read_plain, write_ids
    from hoptrain.engine.store import create_new_folder

    bad = BadRows(lambda line: print(printable(line), file=sys.stderr), skip=args.skip_bad_rows)
    reading = reading_of(args, Dataset)
    split = args.split if args.split in (None, *SPLIT_WORDS) else Path(args.split)
    with create_new_folder(args.out, Dataset.kind) as writer, _progress() as progress:
        data, ids = read_plain(
            args.edges,
            features=args.features,
            labels=_labels(args),
            split=split,
            columns=_names(args.columns) or None,
            delimiter=_delimiter(args.delimiter),
            header=args.header,
            is_text=args.ids == "text",
            undirected=args.undirected,
            reading=reading,
            name=args.name or args.out.name,
            scratch=writer.folder,
            bad=bad,
            progress=progress,
        )
        data.write_to(writer)
        if ids is not None:
            write_ids(writer.folder, ids)
    print(f"{args.out}: {data}{_of_edges(data)}")
    for line in left_out(bad):
        print(line)
    if repeated := data.meta.get("repeated_rows"):
        print(f"{args.edges.name}: {repeated:,} repeated edges are left out")
    for line in [*of_columns(data), *label_notes(data.y, data.num_classes)]:
        print(printable(line))
    if ids is not None:
        print(f"wrote the id that each node has in your tables: {args.out / IDS}")
    print("\n".join(next_steps(args.out, data, args.like)))
    return 0


def _labels(args: argparse.Namespace) -> Path | str | None:
    """Return the file of ``--labels``, or the name of a column of ``--features``."""
    has_table = args.features is not None and args.features.suffix != ".npy"
    return args.labels if args.labels is None or (has_table and not Path(args.labels).exists()) else Path(args.labels)


def left_out(bad: BadRows) -> list[str]:
    """Return lines that count the rows that were left out."""
    return [f"{name}: {count:,} of {number:,} rows cannot be read and are left out" for name, (count, number) in bad.counts.items()]


def of_columns(data: BaseDataset) -> list[str]:
    """Return lines that tell the user which columns are features, how texts became numbers, and which values fill missing cells."""
    own = data.contents()
    keys = [("x" if kind == "" else kind, kind or "nodes") for kind in own.num_nodes]
    for relation in own.relations:
        name = "" if relation == ONLY else relation_name(relation)
        keys += [(name or "edge_attr", name or "edges"), (f"known.{name}" if name else "known", name or "edges")]
    lines = []
    if data.y is None and any(encodings_in(data.meta, what) for what, _ in keys):
        remedy = "if one of the features of nodes is it, rename the column, or give --labels COLUMN to 'data import'"
        lines = [f"no labels: a column of labels must be named {LABEL_NAMES}; {remedy}"]
    for what, of in keys:
        columns = encodings_in(data.meta, what)
        lines += [f"features of {of}: {join_limited(columns)}"] if columns and what[:5] != "known" else []
        numbers = {name: own for name, own in columns.items() if own.kind == "number"}
        lines += [f"column {name} of {of}: {own.told()}" for name, own in columns.items() if name not in numbers and what[:5] != "known"]
        filled = [f"{name} ({own.missing:,} with {own.fill:g})" for name, own in numbers.items() if own.missing and own.fill is not None]
        lines += [f"missing cells of {of} filled: {join_limited(filled)}"] if filled else []
    return lines


def next_steps(out: Path, data: Dataset | HeteroDataset, like: str | None) -> list[str]:
    """Return the commands that describe a new data set, and that train or predict on it."""
    folder = (
        f"./{out}" if any(entry.name == str(out) for entry in list_datasets(None)) else str(out)
    )  # the name of a public data set takes precedence over a folder
    details = f"for details, run: hoptrain data info {folder}"
    if like is not None:
        return [details, *_prediction(folder, data, like)]
    return [details, _training(folder, data) if isinstance(data, Dataset) else _hetero_training(folder, data)]


def _prediction(folder: str, data: BaseDataset, like: str) -> list[str]:
    """Return the commands that predict and test on a data set that was read like ``like``."""
    options = f"--ckpt_path CHECKPOINT --data.dataset {folder}"
    where = f"with a CHECKPOINT of the training on {like} (RUN_FOLDER/checkpoints/last.ckpt)"
    steps = [f"predict, {where}: hoptrain predict {options} --out predictions.csv"]
    if data.y is not None:
        splits = " --data.splits null" * isinstance(data, HeteroDataset)
        test = f"test, with the same: hoptrain test {options}{splits}"
        steps.append(test if len(data.splits.get("test", ())) else "to test all labelled nodes, first make it again with --split test")
    return steps


def _training(folder: str, data: Dataset) -> str:
    """Return the command that trains on a homogeneous data set, or what is missing for it."""
    features = "" if data.num_features else " --data.features walks"
    if data.y is None:
        return f"train link prediction, which needs no labels: hoptrain fit --config own_links --data.dataset {folder}{features}"
    return _without_splits(data) or f"train: hoptrain fit --config own_data --data.dataset {folder}{features}{_metric(data)}"


def _hetero_training(folder: str, data: HeteroDataset) -> str:
    """Return the command that trains on a heterogeneous data set, or what is missing for it."""
    embeddings = "" if data.graph.num_nodes.keys() <= data.x.keys() else " --model.embeddings true"
    if data.y is None:
        relation = ",".join(next(iter(data.graph.relations)))
        return (
            "train prediction of the links of a relation, which needs no labels: hoptrain fit --config own_hetero_links "
            f"--data.dataset {folder} --data.sampler.relation '[{relation}]'{embeddings}"
        )
    has_none = not any(len(data.splits.get(split, ())) for split in SPLITS)
    splits = " --data.splits random" if has_none else ""
    command = f"train: hoptrain fit --config own_hetero --data.dataset {folder}{splits}{embeddings}{_metric(data)}"
    return command if has_none else _without_splits(data) or command


def _without_splits(data: BaseDataset) -> str:
    missing = [split for split in SPLITS if not len(data.splits.get(split, ()))]
    again = "to train, first make it again with --split random, or name the nodes of each split: it has no split"
    return f"{again} {', '.join(missing)}" if missing else ""


def _metric(data: BaseDataset) -> str:
    return " --model.metric r2" if data.is_regression else ""


def _of_edges(data: Dataset) -> str:
    """Return a description of the edge columns, so that the user notices a column that was misread."""
    graph, number = data.graph, data.num_edge_features
    features = [f"features ({number})"] if number else []
    found = [name for name in ("weights", "times") if getattr(graph, name) is not None] + features
    return f", edges with {', '.join(found)}" if found else ""


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be a share from 0 to 1; give for example 0.05")
    return share


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _delimiter(given: str | None) -> str | None:
    mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(given or "", given)
    if mark is not None and len(mark) != 1:
        raise InputError(f"--delimiter is {given!r}: it must be one character, tab or space; give for example ','")
    return mark


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Yield a function that updates a progress bar for each file; None if stderr is no terminal."""
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
