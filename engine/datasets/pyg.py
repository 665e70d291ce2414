"""Data sets that PyTorch Geometric (PyG) downloads. PyG is imported only when needed.

PyG unpickles some of the downloaded files, which can execute code. To avoid that, provide a ``NAME.npz`` file, which takes precedence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import converted, downloads, fingerprint, is_folder, open_cached, unusable
from hoptrain.engine.datasets.npz import find_npz, not_found
from hoptrain.engine.datasets.source import RANDOM_SPLIT, Counts, Source, narrow_features
from hoptrain.engine.errors import one_line
from hoptrain.engine.features.splits import SPLITS, random_splits
from hoptrain.engine.graph import Graph

T = TypeVar("T")
_VERSION = 2
CLASSES = {
    "citeseer": ("Planetoid", "CiteSeer"),
    "coauthor_physics": ("Coauthor", "Physics"),
    "cora": ("Planetoid", "Cora"),
    "flickr": ("Flickr",),
    "kg_fb15k237": ("FB15k_237",),
    "pubmed": ("Planetoid", "PubMed"),
    "reddit": ("Reddit",),
    "temporal_jodie_wikipedia": ("JODIEDataset", "wikipedia"),
    "tu_enzymes": ("TUDataset", "ENZYMES"),
    "tu_mutag": ("TUDataset", "MUTAG"),
    "tu_proteins": ("TUDataset", "PROTEINS"),
}
"""Data set name -> name of PyG's class, followed by the arguments of the class after its folder."""
TU = {"tu_enzymes", "tu_mutag", "tu_proteins"}
"""Names of the data sets of small graphs, which ``load_small_graphs`` opens."""
TRIPLES = {"kg_fb15k237"}
"""Names of the knowledge graphs, which ``load_triples`` reads."""
EVENTS = {"temporal_jodie_wikipedia"}
"""Names of the temporal interaction graphs, which ``load_events`` reads."""


def load_pyg(name: str, root: Path | None, scale: float) -> Dataset:
    """Open a data set of PyG. The first call downloads it to ``root`` (or the cache) and converts it.

    Raises:
        InputError: the download failed; the message says where files were searched for.
    """
    if root is None and is_folder(converted(_key(name, None))):
        return Dataset.open(converted(_key(name, None)))
    parts = downloaded(name, root, fetch)
    return open_cached(Dataset, _key(name, root), lambda writer: convert_pyg(name, parts).write_to(writer))


def downloaded(name: str, root: Path | None, read: Callable[[str, Path], T]) -> T:
    """Return the result of ``read(name, folder)``, which makes PyG download the data set to ``folder`` if necessary.

    Raises:
        InputError: the download failed; the message says where files were searched for.
    """
    folder = downloads(root) / f"pyg-{name}"
    try:
        return read(name, folder)
    except PermissionError as error:
        raise unusable(downloads(root), "written", error) from error
    except Exception as error:  # urllib, aiohttp, fsspec, ssl and zipfile each raise their own exceptions
        reason = one_line(error)[:200]
        remedy = f"its download failed ({reason}): give {name}.npz, or run once where there is a network and copy {downloads(root)}"
        raise not_found(name, root, remedy) from error


def dataset_of(name: str, folder: Path, **options: Any) -> Any:
    """Return PyG's data set, downloaded to ``folder`` if necessary. ``options`` are further arguments of its class."""
    kind, *arguments = CLASSES[name]
    return getattr(importlib.import_module("torch_geometric.datasets"), kind)(str(folder), *arguments, **options)


def fetch(name: str, folder: Path) -> dict[str, list[Any]]:
    """Download a data set if necessary, and return PyG's ``Data`` objects by split, or all under the key ``""`` if masks define the splits."""
    if name == "ppi":
        datasets = importlib.import_module("torch_geometric.datasets")
        return {split: list(datasets.PPI(str(folder), split)) for split in SPLITS}
    return {"": [dataset_of(name, folder)[0]]}


def convert_pyg(name: str, parts: dict[str, list[Any]]) -> Dataset:
    """Join graphs into one block-diagonal graph, in the order of ``parts``. A key other than ``""`` is the split of all nodes of its graphs."""
    graphs = [data for part in parts.values() for data in part]
    begins = np.cumsum([0] + [int(data.num_nodes) for data in graphs])
    edges = [data.edge_index.cpu().numpy() + begin for data, begin in zip(graphs, begins[:-1], strict=True)]
    src, dst = np.concatenate(edges, axis=1)
    y = np.concatenate([data.y.cpu().numpy() for data in graphs])
    y = y.astype(np.uint8 if y.ndim == 2 else np.int64)
    splits, split_note = _splits(parts, begins, y)
    return Dataset(
        name=name,
        graph=Graph.from_edges(src, dst, int(begins[-1])),
        x=narrow_features(np.concatenate([data.x.cpu().numpy() for data in graphs])),
        y=y,
        splits=splits,
        meta={"source": "torch_geometric.datasets", "num_graphs": len(graphs), "split": split_note},
    )


def _splits(parts: dict[str, list[Any]], begins: Array, y: Array) -> tuple[dict[str, Array], str]:
    if "" not in parts:
        ends = np.cumsum([0] + [len(part) for part in parts.values()])
        ranges = zip(parts, begins[ends[:-1]], begins[ends[1:]], strict=True)
        return {split: np.arange(begin, end) for split, begin, end in ranges}, "by graph, as published"
    data = parts[""][0]
    masks = {split: getattr(data, f"{split}_mask", None) for split in SPLITS}
    if any(mask is None for mask in masks.values()):
        labelled = np.arange(len(y)) if y.ndim == 2 else np.flatnonzero(y >= 0)
        return random_splits(labelled), RANDOM_SPLIT
    return {split: mask.cpu().numpy() for split, mask in masks.items() if mask is not None}, "as published"


def _key(name: str, root: Path | None) -> str:
    """Return the cache key. It depends on the files in ``root``, since a user may change them; files in the cache do not change."""
    if root is None:
        return f"{name}-pyg{_VERSION}"
    files = [file for file in (root / f"pyg-{name}").rglob("*") if file.is_file()]
    return f"{name}-pyg{_VERSION}-{fingerprint(files)}"


def is_present(name: str, root: Path | None) -> bool:
    """Return whether a data set is available offline."""
    known = any((downloads(root) / f"pyg-{name}").rglob("processed/*.pt"))
    return known or is_folder(converted(_key(name, None))) or find_npz(name, root) is not None


def _pyg(about: str, *counts: int) -> Source:
    return Source(about=about, origin=".npz file or download by PyG", load=load_pyg, counts=Counts(*counts), is_present=is_present)


SOURCES = {
    "citeseer": _pyg("papers and their citations (Planetoid)", 3_327, 9_104, 3_703, 6),
    "coauthor_physics": _pyg("physicists and their joint papers (Coauthor)", 34_493, 495_924, 8_415, 5),
    "cora": _pyg("papers and their citations (Planetoid)", 2_708, 10_556, 1_433, 7),
    "flickr": _pyg("Flickr images that share something (GraphSAINT)", 89_250, 899_756, 500, 7),
    "ppi": _pyg("24 protein graphs, several labels (GraphSAGE)", 56_944, 1_587_264, 50, 121),
    "pubmed": _pyg("papers and their citations (Planetoid)", 19_717, 88_648, 500, 3),
    "reddit": _pyg("Reddit posts with common commenters (GraphSAGE)", 232_965, 114_615_892, 602, 41),
}
