"""Data sets that PyTorch Geometric downloads. PyG is imported only when it is needed.

PyG unpickles some of the downloaded files. To avoid that, provide a ``NAME.npz`` file, which takes precedence.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import SPLITS, Dataset
from hoptrain.engine.datasets.cache import converted, downloads, fingerprint, is_folder, open_cached, unusable
from hoptrain.engine.datasets.npz import find_npz, not_found
from hoptrain.engine.datasets.source import RANDOM_SPLIT, Counts, Source, narrow_features, random_splits
from hoptrain.engine.errors import one_line
from hoptrain.engine.graph import Graph

_VERSION = 2
_PLANETOID = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
_CLASSES = {"reddit": "Reddit", "flickr": "Flickr"}


def load_pyg(name: str, root: Path | None, scale: float) -> Dataset:
    """Open a data set of PyG, downloaded to ``root`` (or the cache) and converted at the first call.

    Raises:
        InputError: the download failed; the message says where files were searched for.
    """
    if root is None and is_folder(converted(_key(name, None))):
        return Dataset.open(converted(_key(name, None)))
    try:
        parts = fetch(name, downloads(root) / f"pyg-{name}")
    except PermissionError as error:
        raise unusable(downloads(root), "written", error) from error
    except Exception as error:  # urllib, aiohttp, fsspec, ssl and zipfile each raise their own
        reason = one_line(error)[:200]
        remedy = f"its download failed ({reason}): give {name}.npz, or run once where there is a network and copy {downloads(root)}"
        raise not_found(name, root, remedy) from error
    return open_cached(Dataset, _key(name, root), lambda writer: convert_pyg(name, parts).write_to(writer))


def fetch(name: str, folder: Path) -> dict[str, list[Any]]:
    """Download if necessary and return PyG's ``Data`` objects by split, or all under ``""`` if masks define the splits."""
    datasets = importlib.import_module("torch_geometric.datasets")
    if name == "ppi":
        return {split: list(datasets.PPI(str(folder), split)) for split in SPLITS}
    if name in _PLANETOID:
        return {"": [datasets.Planetoid(str(folder), _PLANETOID[name])[0]]}
    return {"": [getattr(datasets, _CLASSES[name])(str(folder))[0]]}


def convert_pyg(name: str, parts: dict[str, list[Any]]) -> Dataset:
    """Join graphs into one block-diagonal graph, in the order of ``parts``. A key other than ``""`` is the split of all its nodes."""
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
    """Return the cache key. Files in a user's ``root`` may change, so the key depends on them; files in the cache do not change."""
    if root is None:
        return f"{name}-pyg{_VERSION}"
    files = [file for file in (root / f"pyg-{name}").rglob("*") if file.is_file()]
    return f"{name}-pyg{_VERSION}-{fingerprint(files)}"


def _is_present(name: str, root: Path | None) -> bool:
    known = any((downloads(root) / f"pyg-{name}").rglob("processed/*.pt"))
    return known or is_folder(converted(_key(name, None))) or find_npz(name, root) is not None


def _pyg(about: str, *counts: int) -> Source:
    return Source(about=about, origin=".npz file or download by PyG", load=load_pyg, counts=Counts(*counts), is_present=_is_present)


SOURCES = {
    "citeseer": _pyg("papers and their citations (Planetoid)", 3_327, 9_104, 3_703, 6),
    "cora": _pyg("papers and their citations (Planetoid)", 2_708, 10_556, 1_433, 7),
    "flickr": _pyg("Flickr images that share something (GraphSAINT)", 89_250, 899_756, 500, 7),
    "ppi": _pyg("24 protein graphs, several labels (GraphSAGE)", 56_944, 1_587_264, 50, 121),
    "pubmed": _pyg("papers and their citations (Planetoid)", 19_717, 88_648, 500, 3),
    "reddit": _pyg("Reddit posts with common commenters (GraphSAGE)", 232_965, 114_615_892, 602, 41),
}
