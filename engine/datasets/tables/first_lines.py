"""A check that the first line of a text file was rightly read as column names, or as a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.datasets.tables.nodes import NodeIndex, NodeTable
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import InputError


def check_first_lines(edges: Table, ends: Mapping[str, Array], nodes: Sequence[NodeTable], node_index: NodeIndex) -> None:
    """Compare the ids in the first lines of texts with those of all rows: ids of a row occur in other rows, and column names are not ids.

    Args:
        edges: edge table, with the columns ``src`` and ``dst``.
        ends: node numbers ``src`` and ``dst`` (E,) of the edges.
        nodes: all node tables.
        node_index: mapping from ids to node numbers, after ``close``.

    Raises:
        InputError: a file has no header, and an id in its first line is unknown, or all occur in no other row; or a column name is also the id of a node.
    """
    columns = [(edges, ("src", "dst")), *((each.table, ("id",)) for each in nodes)]
    firsts = [(table, [table.doubted[name] for name in names]) for table, names in columns if table.doubted]
    numbers = [node_index.numbers(np.array(texts, object)) for _, texts in firsts]
    times_first = Counter(n for (table, _), own in zip(firsts, numbers, strict=True) if not table.has_header for n in own.tolist())
    every = [ends["src"], ends["dst"], *(node_index.numbers(each.ids) for each in nodes)] if times_first else []

    def is_new(number: int) -> bool:
        return sum(int(np.count_nonzero(own == number)) for own in every) <= times_first[number]

    for (table, texts), own in zip(firsts, numbers, strict=True):
        if table.has_header and (own >= 0).any():
            _refuse(table, f"it was read as column names, but {texts[int(np.argmax(own >= 0))]} is also the id of a node")
        if not table.has_header and (own < 0).any():  # a bad row, which may be left out
            _refuse(table, f"{texts[int(np.argmax(own < 0))]} is the id of no node, so these may be column names")
        if not table.has_header and all(map(is_new, own.tolist())):
            _refuse(table, f"{' and '.join(texts)} occur{'s' * (len(texts) == 1)} in no other row, so these may be column names")


def _refuse(table: Table, why: str) -> None:
    raise InputError(
        f"{table.path} begins with {','.join(table.doubted.values())}: {why}; if it has column names, give --header; if it is a row, give --no-header "
        f"(both apply to all files), or write the line {','.join(table.doubted)} above it"
    )
