"""``list_datasets``, which lists the registered data sets and those in files and folders on this machine, with their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets import npz
from hoptrain.engine.datasets.cache import is_folder
from hoptrain.engine.datasets.images.cifar10 import find_cifar10
from hoptrain.engine.datasets.load import REGISTRY, existing_root, open_either
from hoptrain.engine.datasets.source import Counts
from hoptrain.engine.datasets.tables.folders import is_tables
from hoptrain.engine.errors import one_line
from hoptrain.engine.features.checks import num_classes_of
from hoptrain.engine.files.untrusted import npz_shapes, read_npz

_TYPED = "a heterogeneous graph, for task: hetero"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An entry of ``list_datasets`` that describes one data set.

    Attributes:
        name: name to pass to ``load_dataset``, or to the loader of the task in ``about``.
        about: description in one line.
        origin: origin of the data; the path for a file or folder.
        counts: numbers of nodes, edges, features and classes; None if unknown before loading, or not applicable.
        is_present: True if the data set is available offline.
        is_found: True if the data set is a file or folder on this machine and not a registered data set.
    """

    name: str
    about: str
    origin: str
    counts: Counts | None = None
    is_present: bool = True
    is_found: bool = False


def list_datasets(root: str | Path | None = None) -> list[Entry]:
    """Return the registered data sets by name, then the ``.npz`` files and folders in ``root`` and ``$HOPTRAIN_DATA``.

    Raises:
        InputError: ``root`` is not a folder.
    """
    root = existing_root(root)
    known = [
        Entry(name=name, about=source.about, origin=source.origin, counts=source.counts, is_present=source.is_present(name, root))
        for name, source in REGISTRY.items()
    ]
    known.append(Entry(name="digits", about="1,797 images of digits, 8 x 8, for task: images", origin="scikit-learn, offline"))
    is_there = bool(find_cifar10(npz.places(root)))
    known.append(Entry(name="cifar10", about="60,000 images, 32 x 32, for task: images", origin="its archive in root", is_present=is_there))
    paths = [path for place in npz.places(root) for path in sorted(place.iterdir() if place.is_dir() else [])]
    found = [_described(path) for path in paths if path.suffix == ".npz" or is_folder(path) or is_tables(path)]
    return sorted(known, key=lambda entry: entry.name) + list({entry.name: entry for entry in reversed(found)}.values())[::-1]


def _described(path: Path) -> Entry:
    try:
        about, counts = _in_folder(path) if path.is_dir() else _in_file(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        about, counts = f"cannot be read ({one_line(error)[:80]})", None
    return Entry(name=path.stem if path.suffix == ".npz" else path.name, about=about, origin=str(path), counts=counts, is_found=True)


def _in_folder(path: Path) -> tuple[str, Counts | None]:
    if not is_folder(path):
        return "tables of nodes and edges", None
    data = open_either(path, verify=False)
    if isinstance(data, Dataset):
        return "a graph", Counts(data.graph.num_nodes, data.graph.num_edges, data.num_features, data.num_classes)
    return _TYPED, Counts(sum(data.graph.num_nodes.values()), data.graph.num_edges, 0, data.num_classes)


def _in_file(path: Path) -> tuple[str, Counts | None]:
    shapes = npz_shapes(path)
    if "train_x" in shapes and len(shapes["train_x"]) == 4:
        number, height, width, _ = shapes["train_x"]
        return f"{number + shapes['test_x'][0]:,} images, {height} x {width}, for task: images", None
    if npz.is_hetero(shapes):
        return _TYPED, None
    if (other := npz.other_kind(shapes)) is not None:
        return other[0], None
    num_nodes = shapes["indptr"][0] - 1
    labels = "graph_y" if "graph_y" in shapes else "y"
    small = read_npz(path, {labels, "x_shape", "node_label"} & shapes.keys())
    y = small.get(labels, np.zeros(0, np.int64))
    counts = Counts(num_nodes, shapes["indices"][0], _num_features(small, shapes, num_nodes), num_classes_of(y))
    return f"{len(y):,} small graphs, for task: graphs" if "graph_y" in shapes else "a graph", counts


def _num_features(small: dict[str, Array], shapes: dict[str, tuple[int, ...]], num_nodes: int) -> int:
    if "x" in shapes:
        return shapes["x"][1]
    if "x_shape" in shapes:
        return int(small["x_shape"][1])
    if "node_label" in shapes:
        return int(small["node_label"].max(initial=-1)) + 1
    return num_nodes if "y" in shapes and num_nodes <= npz.IDENTITY_LIMIT else 0
