"""``from_pandas``, which builds data sets from pandas data frames by the rules of ``hoptrain data import``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.tables.encodings import Missing
from hoptrain.engine.datasets.tables.plain import read_plain
from hoptrain.engine.datasets.tables.reading import Reading

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]


def from_pandas(
    edges: DataFrame,
    nodes: DataFrame | None = None,
    *,
    split: str | None = None,
    undirected: bool | None = None,
    missing: Missing | None = None,
    categories: Sequence[str] = (),
    drop: Sequence[str] = (),
    like: Dataset | None = None,
    name: str = "data",
) -> Dataset:
    """Build a data set from data frames, whose columns have the names and rules of the tables of ``hoptrain data import``.

    Args:
        edges: one row per edge, with columns ``src`` and ``dst`` (or ``source`` and ``target``, or another usual pair of names; otherwise the first two
            columns) and optionally ``weight`` and ``time``. All other columns are edge features.
        nodes: one row per node, with columns ``id`` (otherwise the first column) and optionally ``label``, and ``split`` or ``train_mask``, ``val_mask``
            and ``test_mask``. All other columns are features. Without this table, nodes are the ids in ``edges``, in ascending order.
        split: "random" divides the labelled nodes 60/20/20 at random, "test" puts all of them into a test split.
        undirected: True to add the reverse of each edge; by default as in ``like``.
        missing: treatment of missing feature cells: "error" raises, "mean" fills in the mean of the column, "zero" fills in 0. By default as in ``like``,
            else "error".
        categories: columns to treat as categories although they contain numbers or many different texts.
        drop: columns to leave out.
        like: a data set from tables whose columns, categories, means, classes and options are used, such as the one that a model was trained on.
        name: name of the data set.

    Raises:
        InputError: a cell is invalid; the message names column, row, value and rule.

    Examples:
        >>> import pandas as pd
        >>> from hoptrain import from_pandas
        >>> people = pd.DataFrame({"name": ["ann", "bob", "cid"], "age": [31, None, 27], "town": ["Rome", "Oslo", "Rome"], "label": ["x", "y", "x"]})
        >>> knows = pd.DataFrame({"who": ["ann", "bob"], "whom": ["bob", "cid"]})
        >>> data = from_pandas(knows, people, missing="mean")
        >>> data.x.tolist(), data.y.tolist(), data.meta["columns"]["x"]["town"]["categories"]
        ([[31, 1], [29, 0], [27, 1]], [0, 1, 0], ['Oslo', 'Rome'])
    """
    reading = Reading(missing, categories, drop, like)
    return read_plain(edges, features=nodes, split=split, undirected=undirected, reading=reading, name=name)[0]
