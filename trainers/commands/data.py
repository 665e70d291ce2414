"""``hoptrain data``: lists, describes, converts, imports and partitions data sets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any

import numpy as np

from hoptrain.engine.arrays import as_float32
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets import Entry, list_datasets
from hoptrain.engine.datasets.load import load_any, open_either
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.encodings import Encoding, encodings_in
from hoptrain.engine.datasets.tables.folders import is_homogeneous, is_tables, read_tables_and_ids
from hoptrain.engine.datasets.tables.plain import IDS, copy_ids, write_ids
from hoptrain.engine.errors import InputError, join_limited, printable
from hoptrain.engine.features.checks import label_notes
from hoptrain.engine.features.quantized import FORMATS, Rows, format_of
from hoptrain.engine.features.splits import ALL_IN_TEST, SPLIT_WORDS, all_in_test
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.hetero_graph import relation_name
from hoptrain.engine.partition.folder import KIND as PARTITION
from hoptrain.engine.partition.folder import open_partition
from hoptrain.engine.store import kind_of
from hoptrain.trainers.commands import import_tables, partition
from hoptrain.trainers.commands.table import aligned, megabytes

_WIDTH = 120
"""Maximum width of a line of ``data info`` in characters."""
_MOST_COLUMNS = 20
"""Maximum number of feature columns for which the range of each column is printed."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand ``data``."""
    parser = subparsers.add_parser(
        "data",
        help="list, describe, convert, import and partition data sets",
        description="List, describe, convert, import and partition data sets.",
        epilog="'hoptrain data ACTION --help' describes an action and its options.",
    )
    actions = parser.add_subparsers(title="actions", dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list",
        help="list public data sets, and those on this machine",
        description="List the public data sets that hoptrain can load, and the data sets found on this machine.",
    )
    info = actions.add_parser(
        "info",
        help="print sizes, degrees and splits of a data set",
        description="Verify the checksums of a data set, and print its sizes, degrees and splits. "
        "With --feature-cache, also predict the reads of out-of-core training.",
    )
    import_tables.add_parser(actions)
    convert = actions.add_parser(
        "convert",
        help="write a data set as a memory-mapped folder",
        description="Write a data set, or a folder of tables (nodes/TYPE.csv and edges/TYPE__NAME__TYPE.csv), as a hoptrain folder. It is memory-mapped, "
        "so opening it takes no time.",
    )
    parts = partition.add_action(actions)
    for action in (info, convert, parts):
        action.add_argument("name", help="a name that 'hoptrain data list' shows, an .npz file, or a hoptrain folder")
    for action in (convert, parts):
        action.add_argument("dest", help="the folder to write; it must not exist")
    convert.add_argument(
        "--features", choices=FORMATS, help="store the features of nodes and edges in this smaller format (default: in their own)"
    )
    _add_tables(convert)
    for action in (listing, info, convert, parts):
        action.add_argument("--root", metavar="FOLDER", help="folder of data sets (default: $HOPTRAIN_DATA)")
    for action in (info, convert, parts):
        action.add_argument(
            "--scale",
            type=float,
            default=1.0,
            help="size of a synthetic:NAME data set as a fraction of the full size, in (0, 1] (default: 1)",
        )
    reads = info.add_argument_group(
        "out-of-core prediction", "Predict the reads and the seconds of an epoch whose features, and edges, are read from disk."
    )
    reads.add_argument("--feature-cache", metavar="SIZE", help="memory for the feature cache, such as 8GiB, or auto for what is free")
    reads.add_argument(
        "--fanouts",
        nargs="+",
        metavar="N,N",
        help="neighbours to sample at each hop, such as 15,10,5 (default: 10,10); on a heterogeneous graph also by relation: RELATION=15,10,5",
    )
    reads.add_argument("--weighted", action="store_true", default=None, help="draw edges in proportion to their weights")
    reads.add_argument("--split", help="split whose nodes are the seeds (default: train)")
    reads.add_argument("--batch-size", type=int, metavar="N", help="seeds per step (default: 1024)")
    for action, run in ((listing, run_list), (info, run_info), (convert, run_convert)):
        action.set_defaults(run=run)


def _add_tables(convert: argparse.ArgumentParser) -> None:
    """Add the options of ``convert`` for folders of tables."""
    tables = convert.add_argument_group("folders of tables")
    import_tables.add_cells(tables.add_argument)
    tables.add_argument("--seed-type", metavar="TYPE", help="node type to train on, if several types or none have labels")
    tables.add_argument(
        "--split",
        choices=SPLIT_WORDS,
        help="if the tables name no splits: random splits the labelled nodes 60/20/20, test puts all of them into the split test",
    )


def run_list(args: argparse.Namespace) -> int:
    """Print the public data sets and those on this machine; return 0."""
    entries = list_datasets(args.root)
    found = [entry for entry in entries if entry.is_found]
    print(aligned([["name", *_COUNTS, "state", "from", "what"], *map(_known, (e for e in entries if not e.is_found))], right=_NUMBERS))
    print(
        "\nabsent: hoptrain downloads the data set on first use, to --root or $HOPTRAIN_CACHE/downloads\ngraphs: use them with --task nodes, links and hops"
    )
    if found:
        print("\ndata sets on this machine, in --root or $HOPTRAIN_DATA:")
        print(aligned([["name", *_COUNTS, "what"], *([e.name, *_counts(e), e.about] for e in found)], right=_NUMBERS))
    return 0


_COUNTS = ("nodes", "edges", "features", "classes")
_NUMBERS = range(1, 1 + len(_COUNTS))


def _known(entry: Entry) -> list[str]:
    return [entry.name, *_counts(entry), "present" if entry.is_present else "absent", entry.origin, entry.about]


def _counts(entry: Entry) -> list[str]:
    return ["-"] * len(_COUNTS) if entry.counts is None else [f"{count:,}" if count else "-" for count in entry.counts]


def run_info(args: argparse.Namespace) -> int:
    """Verify the checksums of a data set, print its contents and, with ``--feature-cache``, the predicted reads; return 0."""
    for option in ("fanouts", "batch_size", "split", "weighted"):
        if args.feature_cache is None and (given := getattr(args, option)) is not None:
            name, value = option.replace("_", "-"), " ".join(given) if isinstance(given, list) else "on" if given is True else given
            raise InputError(
                f"--{name} is {value}, but --feature-cache is not given: it is for the prediction of reads; give --feature-cache, or leave it out"
            )
    fanouts = _fanouts(args.fanouts or ["10,10"])
    if args.feature_cache is not None:
        from hoptrain.samplers.loader.memory_left import memory_bytes  # imported here, so that other commands do not wait for the import
        from hoptrain.trainers.commands.memory_facts import memory_facts

        memory_bytes(args.feature_cache)  # raises for an invalid size before all files are read
    if kind_of(Path(args.name)) == PARTITION:
        return _print_partition(args)
    path = load_any(args.name, root=args.root, scale=args.scale).path
    data = open_either(Path(str(path)), verify=True)
    print(aligned(_wrapped(facts(data) if isinstance(data, Dataset) else hetero_facts(data))))
    for what, rows in data.stores().items():
        if what != "y":
            print(f"\n{_ranges(what, rows, encodings_in(data.meta, what.partition('.')[2] or what))}")
    for note in label_notes(data.y, data.num_classes):
        print(f"\n{note}")
    print("checksums ok")
    if args.feature_cache is not None:
        batch_size = 1024 if args.batch_size is None else args.batch_size
        print(aligned(memory_facts(data, args.feature_cache, fanouts, batch_size, args.split or "train", bool(args.weighted))))
    return 0


def _fanouts(words: list[str]) -> list[int | float] | dict[str, list[int | float]]:
    """Parse fanouts: one list for all relations, or a list by relation, with "" for the relations that are not named."""
    found = dict[str, list[int | float]]()
    for name, _, numbers in (word.rpartition("=") for word in words):
        if name in found:
            raise InputError(
                f"--fanouts is {' '.join(words)}: {name or 'the value for all relations'} is given twice; leave one of them out"
            )
        try:
            found[name] = [float(number) if "." in number else int(number) for number in numbers.strip("[]").split(",")]
        except ValueError:
            raise InputError(
                f"--fanouts is {' '.join(words)}: it must be integers or fractions separated by commas; give for example 15,10,5 or 0.5,10, or "
                "for one relation author:writes:paper=15,10,5"
            ) from None
    return found[""] if set(found) == {""} else found


def _print_partition(args: argparse.Namespace) -> int:
    if args.feature_cache is not None:
        raise InputError(
            f"--feature-cache is {args.feature_cache}, but {args.name} is partitioned: reads are predicted only for data sets that are not; "
            "leave --feature-cache out"
        )
    print(aligned(partition.facts(open_partition(args.name, verify=True), verify=True)))
    print("checksums ok")
    return 0


_OF_TABLES = ("categories", "like", "drop", "missing", "skip_bad_rows", "seed_type", "split")
"""Options of ``convert`` for folders of tables."""


def run_convert(args: argparse.Namespace) -> int:
    """Write a data set as a folder; return 0."""
    if is_tables(Path(args.name)):
        return _convert_tables(args)
    for option in _OF_TABLES:
        if (given := getattr(args, option)) is not None:
            name = option.replace("_", "-")
            raise InputError(
                f"--{name} is {given}, but {args.name} is not a folder of tables: it is for tables that are read; leave it out"
            )
    data = load_any(args.name, root=args.root, scale=args.scale)
    data.save(args.dest, features=args.features)
    copy_ids(data.path, Path(args.dest))
    number = sum(data.contents().num_nodes.values())
    print(f"{args.name}: {number:,} nodes, {data.graph.num_edges:,} edges written to {args.dest}")
    if isinstance(data, HeteroDataset) and is_tables(Path(args.name)):
        options = ("" if data.splits else " --data.splits random") + (" --model.metric r2" if data.is_regression else "")
        print(f"train: hoptrain fit --config own_hetero --data.dataset {args.dest}{options}")
    return 0


def _convert_tables(args: argparse.Namespace) -> int:
    """Read a folder of tables, reporting each column with bad rows, and write it as a folder; print what it has, and the next step. Return 0."""
    folder, out = Path(args.name), Path(args.dest)
    bad = BadRows(lambda line: print(printable(line), file=sys.stderr), skip=args.skip_bad_rows)
    reading = import_tables.reading_of(args, Dataset if is_homogeneous(folder) else HeteroDataset)
    data, ids = read_tables_and_ids(folder, args.seed_type, name=out.name, reading=reading, bad=bad)
    if args.split is not None:
        if data.splits:
            raise InputError(
                f"--split {args.split}, and a table of {folder} has the splits {', '.join(data.splits)}: only one may; leave --split out"
            )
        data = data.with_random_splits() if args.split == "random" else _with_test_alone(data)
    data.save(out, features=args.features)
    if ids is not None:
        write_ids(out, ids)
    what = str(data) if isinstance(data, Dataset) else aligned(_wrapped([["folder", str(out)], *_of_types(data), *_split_facts(data)]))
    print(printable(f"{out}: {what}" if isinstance(data, Dataset) else what, keep="\n"))
    lines = [*import_tables.left_out(bad), *import_tables.of_columns(data), *label_notes(data.y, data.num_classes)]
    lines += [] if isinstance(data, Dataset) else _without_features(data, args.like)
    of = "" if isinstance(data, Dataset) else f" of type {data.seed_type}"
    lines += [] if ids is None else [f"wrote the id that each node{of} has in your tables: {out / IDS}"]
    print("\n".join(map(printable, [*lines, *import_tables.next_steps(out, data, args.like)])))
    return 0


def _with_test_alone(data: Dataset | HeteroDataset) -> Dataset | HeteroDataset:
    """Return a copy whose only split is ``test``, with all labelled nodes."""
    return replace(data, splits=all_in_test(data.name, data.y), meta={**data.meta, "split": ALL_IN_TEST}, validate=False)


def _without_features(data: HeteroDataset, like: str | None) -> list[str]:
    """Return a line for each node type without features, whose nodes the model knows by their numbers."""
    how = "the model learns embeddings of its nodes, so it cannot predict on others; to avoid this, give the table a feature, such as a constant"
    if like is not None:
        how = f"embeddings are those of the training, so its table must have the rows of {like}, in the same order"
    return [f"type {kind} has no features: {how}" for kind in data.graph.num_nodes if kind not in data.x]


def facts(data: Dataset) -> list[list[str]]:
    """Return (name, value) rows that describe a data set."""
    graph, degrees = data.graph, data.graph.in_degrees()
    lines = [
        ["name", data.name],
        ["folder", str(data.path)],
        ["nodes", f"{graph.num_nodes:,}"],
        ["edges", f"{graph.num_edges:,}"],
        ["features", f"{data.num_features:,}{_as_format(data.x)}"],
        *([] if data.edge_attr is None else [["edge features", f"{data.num_edge_features:,}{_as_format(data.edge_attr)}"]]),
        ["classes", f"{data.num_classes:,}{' (several per node)' if data.is_multilabel else ''}"],
        ["in-degree", f"min {degrees.min()}, mean {degrees.mean():.2f}, max {degrees.max()}" if len(degrees) else "-"],
        ["isolated", f"{count_isolated(data):,}"],
        ["self loops", f"{count_self_loops(data):,}"],
        ["sorted", "yes" if graph.is_sorted else "no"],
    ]
    lines += _split_facts(data)
    lines += [[f"array {name}", f"{array.dtype} {array.shape}, {megabytes(array.nbytes)}"] for name, array in data.arrays().items()]
    lines.append(["on disk", megabytes(sum(array.nbytes for array in data.arrays().values()))])
    return lines + _meta_facts(data)


def _as_format(rows: Rows | None) -> str:
    return "" if rows is None else f" ({format_of(rows)})"


def hetero_facts(data: HeteroDataset) -> list[list[str]]:
    """Return (name, value) rows that describe a heterogeneous data set."""
    return [["name", data.name], ["folder", str(data.path)], *_of_types(data), *_split_facts(data), *_meta_facts(data)]


def _of_types(data: HeteroDataset) -> list[list[str]]:
    """Return (name, value) rows that describe node types, relations and labels."""
    lines = []
    for kind, number in data.graph.num_nodes.items():
        lines.append([f"type {kind}", f"{number:,} nodes, {_named_features(data, kind, data.x.get(kind)) or 'no features'}"])
    for relation, columns in data.graph.relations.items():
        features = _named_features(data, relation_name(relation), data.edge_attr.get(relation))
        known = [name for name in ("weights", "times") if getattr(columns, name) is not None]
        lines.append(
            [f"relation {relation_name(relation)}", ", ".join([f"{columns.num_edges:,} edges", *known, *([features] if features else [])])]
        )
    return [*lines, ["labels", f"of {data.seed_type}: {_classes(data)}"]]


def _classes(data: HeteroDataset) -> str:
    if data.y is None:
        return "none"
    names = data.meta.get("classes")
    return f"{data.num_classes:,} {'targets' if data.is_regression else 'classes'}{f' ({join_limited(names)})' if isinstance(names, list) else ''}"


def _named_features(data: HeteroDataset, what: str, rows: Rows | None) -> str:
    """Return the number, the format and the columns of features as text; "" without features."""
    names = join_limited(encodings_in(data.meta, what))
    return "" if rows is None else f"{rows.shape[1]:,} features{_as_format(rows)}{f': {names}' if names else ''}"


def _wrapped(rows: list[list[str]]) -> list[list[str]]:
    """Divide long values of (name, value) rows over several rows, so that a printed line has at most ``_WIDTH`` characters."""
    width = _WIDTH - 2 - max(len(name) for name, _ in rows)
    return [[name if not i else "", line] for name, value in rows for i, line in enumerate(wrap(value, max(width, 20)) or [""])]


def _ranges(what: str, rows: Rows, encodings: Mapping[str, Encoding]) -> str:
    """Return a table with the range of each feature column, read in blocks of rows. Of columns after the first ``_MOST_COLUMNS`` only the names are listed."""
    names = [f"{name} {i}" if own.width > 1 else name for name, own in encodings.items() for i in range(own.width)]
    has_names = len(names) == rows.shape[1]
    names = names if has_names else [str(i) for i in range(rows.shape[1])]
    low, high, total = np.full(len(names), np.inf), np.full(len(names), -np.inf), np.zeros(len(names))
    for begin in range(0, len(rows), 1 << 16):
        block = as_float32(take_rows(rows, np.arange(begin, min(begin + (1 << 16), len(rows)))))
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        total += block.sum(axis=0, dtype=np.float64)
    if not len(rows) or not names:
        return f"{what}: no values"
    shown = len(names) if len(names) <= _MOST_COLUMNS else _MOST_COLUMNS - 1
    lines = [[what, "min", "mean", "max", ""]]
    for i, name in enumerate(names[:shown]):
        what_it_is = "constant" if low[i] == high[i] else shorten(encodings.get(name, Encoding()).told(), 48, placeholder=" ...")
        lines.append([name[:32], *(f"{value:.6g}" for value in (low[i], total[i] / len(rows), high[i])), what_it_is])
    if shown < len(names):
        low, total, high = low[shown:], total[shown:], high[shown:]
        numbers = (f"{value:.6g}" for value in (low.min(), total.mean() / len(rows), high.max()))
        lines.append([f"{len(low):,} more", *numbers, f"{(low == high).sum():,} constant" if (low == high).any() else ""])
    named = f"{len(names) - shown:,} more: {', '.join(names[shown:])}" if has_names and shown < len(names) else ""
    return "\n".join([aligned(lines, right=(1, 2, 3)), *map(printable, wrap(named, _WIDTH, break_on_hyphens=False))])


def _split_facts(data: Dataset | HeteroDataset) -> list[list[str]]:
    order = {split: position for position, split in enumerate(("train", "val", "test"))}
    splits = sorted(data.splits, key=lambda split: (order.get(split, len(order)), split))
    return [[f"split {split}", f"{len(data.splits[split]):,}"] for split in splits]


def _meta_facts(data: Dataset | HeteroDataset) -> list[list[str]]:
    return [[f"meta {key}", value if isinstance(value, str) else json.dumps(value)] for key, value in data.meta.items() if key != "columns"]


def count_isolated(data: Dataset) -> int:
    """Return the number of nodes without any edge, in or out."""
    is_joined = data.graph.in_degrees() > 0
    is_joined[data.graph.indices] = True
    return int((~is_joined).sum())


def count_self_loops(data: Dataset) -> int:
    """Return the number of edges from a node to itself. Nodes are processed in ranges, to keep memory small."""
    indptr, indices = data.graph.indptr, data.graph.indices
    total = 0
    for begin in range(0, data.graph.num_nodes, 1 << 20):
        ends = indptr[begin : begin + (1 << 20) + 1]
        columns = np.repeat(np.arange(begin, begin + len(ends) - 1), np.diff(ends))
        total += int((indices[ends[0] : ends[-1]] == columns).sum())
    return total
