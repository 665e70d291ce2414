"""Triples (head, relation, tail) of a knowledge graph, with splits, and loading from ``.npz`` files and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hoptrain.engine.arrays import Array, as_array, is_integer
from hoptrain.engine.datasets.npz import find_npz, not_found, places, read
from hoptrain.engine.datasets.pyg import TRIPLES, dataset_of, downloaded
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.features.splits import SPLITS
from hoptrain.engine.files.untrusted import open_regular
from hoptrain.engine.graph import Graph

Named = Literal["entities", "relations"]
_FILES = {"train": "train.txt", "val": "valid.txt", "test": "test.txt"}
_MEMBERS = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Triples:
    """Triples (head, relation, tail) of V entities and R relations, validated by the constructor. Arrays may be NumPy arrays or torch tensors.

    Triples are identified by their index in their split. Relation R + r is the inverse of relation r: (tail, R + r, head) is equivalent to
    (head, r, tail). So the head of a triple is predicted as the tail of its inverse.

    Attributes:
        splits: (N, 3) integers by split name, ``train`` and optionally ``val`` and ``test``: heads, relations and tails.
            Stored as int64. No triple is in two splits.
        num_nodes: number of entities V; by default 0, which means the largest entity plus one.
        num_relations: number of relations R; by default 0, which means the largest relation plus one.
        name: name of the data set in messages.

    Examples:
        >>> from hoptrain import Triples
        >>> triples = Triples(splits={"train": [(0, 0, 1), (1, 0, 2), (2, 1, 0)]})  # head, relation, tail
        >>> triples.num_nodes, triples.num_relations
        (3, 2)
    """

    splits: Mapping[str, Array] = field(default_factory=dict)
    num_nodes: int = 0
    num_relations: int = 0
    name: str = "triples"

    def __post_init__(self) -> None:
        taken = {split: self._taken(split, as_array(rows)) for split, rows in self.splits.items()}
        if not len(taken.get("train", ())):
            raise InputError(f"{self.name} has no triples to train on: its splits are {', '.join(taken) or 'none'}; add splits['train']")
        every = np.concatenate(list(taken.values()))
        number = self.num_nodes or int(every[:, [0, 2]].max()) + 1, self.num_relations or int(every[:, 1].max()) + 1
        for name, value in zip(("splits", "num_nodes", "num_relations"), (taken, *number), strict=True):
            object.__setattr__(self, name, value)
        for split, rows in taken.items():
            self._check_range(split, rows)
        self._check_distinct()

    def _taken(self, split: str, rows: Array) -> Array:
        if split not in SPLITS:
            raise InputError(f"{self.name} has a split {split!r}: splits must be named {', '.join(SPLITS)}; rename it")
        if rows.ndim != 2 or rows.shape[1] != 3 or not is_integer(rows.dtype):
            raise InputError(
                f"{self.name}: {split} is {rows.dtype} of shape {rows.shape}: triples must be rows of three integers, head, relation and tail; convert it"
            )
        return np.ascontiguousarray(rows, np.int64)

    def _check_range(self, split: str, rows: Array) -> None:
        limits = np.array([self.num_nodes, self.num_relations, self.num_nodes])
        wrong = np.argwhere((rows < 0) | (rows >= limits))
        if len(wrong):
            row, column = wrong[0]
            what, kinds = ("head", "relation", "tail")[column], ("entities", "relations", "entities")[column]
            raise InputError(
                f"{self.name}: the {what} of {split} triple {row} is {rows[row, column]}: {kinds} are 0 to {limits[column] - 1}; drop the triple, or "
                f"give a larger num_{'relations' if column == 1 else 'nodes'}"
            )

    def _check_distinct(self) -> None:
        every = np.concatenate(list(self.splits.values()))
        order = np.lexsort(every.T)
        again = np.flatnonzero((every[order[1:]] == every[order[:-1]]).all(1))
        if len(again):
            head, relation, tail = every[order[again[0]]]
            ends = np.cumsum([len(rows) for rows in self.splits.values()])
            one, other = (list(self.splits)[np.searchsorted(ends, order[again[0] + k], side="right")] for k in (0, 1))
            where = f"twice in {one}" if one == other else f"in {one} and in {other}"
            raise InputError(
                f"{self.name}: triple ({head}, {relation}, {tail}) is {where}: each triple must occur once, since a trained triple tests nothing; "
                f"drop one of them ({len(again):,} in all)"
            )

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} ({len(rows):,})" for split, rows in self.splits.items())
        return f"Triples({self.name}, {self.num_nodes:,} entities, {self.num_relations:,} relations, {splits})"

    def graph(self) -> Graph:
        """Return the T training triples as edges in both directions: triple k is edge k from head to tail, and edge T + k from tail to head."""
        heads, _, tails = self.splits["train"].T
        return Graph.from_edges(np.concatenate([heads, tails]), np.concatenate([tails, heads]), self.num_nodes)

    def relations_of_edges(self, graph: Graph) -> Array:
        """Return the relation (2 T,) int64 of each edge of ``graph()``, by CSC position. Edges from tail to head have the inverse relation."""
        relations = self.splits["train"][:, 1]
        found: Array = np.concatenate([relations, self.num_relations + relations])[graph.ids_of(np.arange(graph.num_edges))]
        return found

    def queries(self, split: str) -> Array:
        """Return the N triples of a split, each followed by its inverse, (2 N, 3)."""
        heads, relations, tails = self.splits[split].T
        both = np.stack([self.splits[split], np.stack([tails, self.num_relations + relations, heads], axis=1)], axis=1)
        return both.reshape(-1, 3)

    def unseen(self, what: Named = "entities") -> Array:
        """Return the entities (or relations) that occur in other splits but not in training, ascending."""
        columns = [0, 2] if what == "entities" else [1]
        train, *others = (np.unique(rows[:, columns]) for rows in (self.splits["train"], *self.splits.values()))
        return np.setdiff1d(np.concatenate(others), train)

    @classmethod
    def from_pyg(cls, train: Any, val: Any = None, test: Any = None, **others: Any) -> Triples:
        """Read PyG's ``Data`` with ``edge_index``, ``edge_type`` and ``num_nodes``: one per split (``FB15k_237``), or one with masks (``WordNet18RR``).

        ``others`` are further arguments of ``Triples``.

        Raises:
            InputError: an object has no edge_type, or the triples are invalid.
        """
        given = {split: data for split, data in zip(SPLITS, (train, val, test), strict=True) if data is not None}
        for data in given.values():
            if getattr(data, "edge_type", None) is None:
                raise InputError(
                    f"{type(data).__name__} has no edge_type: triples are edges with a relation each; give the PyG Data of a knowledge graph"
                )
        rows = {split: np.stack([*as_array(data.edge_index), as_array(data.edge_type)])[[0, 2, 1]].T for split, data in given.items()}
        masks = {split: getattr(train, f"{split}_mask", None) for split in SPLITS}
        if list(given) == ["train"] and masks["train"] is not None:
            rows = {split: rows["train"][as_array(mask)] for split, mask in masks.items() if mask is not None}
        return cls(splits=rows, **{"num_nodes": int(train.num_nodes)} | others)


def load_triples(name: str, *, root: str | Path | None = None) -> Triples:
    r"""Read triples from a ``.npz`` file with ``train``, ``valid`` and ``test`` (N, 3), or a folder with ``train.txt``, ``valid.txt`` and ``test.txt``.

    Each line of a text file has a head, a relation and a tail, separated by tabs. Entities and relations are numbered in alphabetical order. All splits
    except for training may be missing. If ``kg_fb15k237`` is not found, PyG downloads it.

    Args:
        name: name of the file without ``.npz``, or of the folder, in ``root`` or ``$HOPTRAIN_DATA``; or a path.
        root: folder that holds the file or folder, and to which it is downloaded.

    Raises:
        InputError: no file or folder is found, the file holds other data, or the triples are invalid.

    Examples:
        >>> import pathlib, tempfile
        >>> from hoptrain import load_triples
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "train.txt").write_text("Ada\tknows\tCharles\nCharles\tlives in\tLondon\n")
        ...     triples = load_triples(folder)
        >>> triples.splits["train"]  # numbered in the order of their names
        array([[0, 0, 1],
               [1, 1, 2]])
    """
    folder = None if root is None else Path(root).expanduser()
    candidates = (Path(name), *(place / name for place in places(folder)))
    text = next((path for path in candidates if (path / _FILES["train"]).is_file()), None)
    if text is not None:
        return _read_folder(text)
    path = Path(name) if name.endswith(".npz") else find_npz(name, folder)
    if path is None and name in TRIPLES:
        parts = downloaded(name, folder, lambda name, place: [dataset_of(name, place, split=split)[0] for split in SPLITS])
        return Triples.from_pyg(*parts, name=name)
    if path is None:
        raise not_found(
            name, folder, f"put {name}.npz, or a folder {name} with train.txt, into a folder and name that as root or in $HOPTRAIN_DATA"
        )
    arrays = read(path)
    splits = {split: arrays[key] for split, keys in _MEMBERS.items() for key in keys if key in arrays}
    if "train" not in splits:
        raise InputError(f"{path} has no train: it must have train, valid and test of shape (N, 3); choose another file")
    numbers = {number: arrays[number] for number in ("num_nodes", "num_relations") if number in arrays}
    for number, value in numbers.items():
        if value.size != 1 or value.dtype.kind not in "iu":
            raise InputError(f"{path}: {number} is {value.dtype} of shape {value.shape}: it must be an integer; convert it or leave it out")
    return Triples(splits=splits, **{number: int(value.item()) for number, value in numbers.items()}, name=path.stem)


def _read_folder(folder: Path) -> Triples:
    words = {split: _read_lines(folder / file) for split, file in _FILES.items() if (folder / file).is_file()}
    every = np.concatenate(list(words.values()))
    entities, ends = np.unique(every[:, [0, 2]], return_inverse=True)
    kinds, relations = np.unique(every[:, 1], return_inverse=True)
    heads, tails = ends.reshape(-1, 2).T
    rows = np.split(np.stack([heads, relations.reshape(-1), tails], axis=1), np.cumsum([len(own) for own in words.values()])[:-1])
    return Triples(splits=dict(zip(words, rows, strict=True)), num_nodes=len(entities), num_relations=len(kinds), name=folder.name)


def _read_lines(path: Path) -> Array:
    """Return the triples of a text file as strings, (N, 3)."""
    try:
        with open_regular(path) as file:
            lines = (
                file.read().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
            )  # not splitlines(): names may contain other Unicode line separators
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({one_line(error)}): it must be a text file with one triple per line; fetch it again"
        ) from None
    fields = [line.split("\t") for line in lines if line]
    wrong = next((row for row in fields if len(row) != 3), None)
    if wrong is not None:
        number = lines.index("\t".join(wrong)) + 1
        raise InputError(
            f"{path}, line {number}: {len(wrong)} fields: a line must be a head, a relation and a tail, separated by tabs; correct the line"
        )
    return np.array(fields, dtype=np.str_).reshape(-1, 3)
