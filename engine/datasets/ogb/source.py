"""Node data sets of the Open Graph Benchmark, read from OGB's own files on disk.

The layout is that of the ``ogb`` package (``ROOT/ogbn_arxiv/raw/...``), so what it has downloaded is used as it is, and it does the download
here too. Its loader is not used: it asks questions on the terminal and unpickles its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import converted, downloads, fingerprint, is_folder, open_cached
from hoptrain.engine.datasets.ogb.binary import write_binary
from hoptrain.engine.datasets.ogb.download import Release, download
from hoptrain.engine.datasets.source import Counts, Source
from hoptrain.engine.errors import InputError, reason_of
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter

_VERSION = 1
_ODC_BY = "ODC-BY (https://opendatacommons.org/licenses/by/1-0/)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What is particular to one data set.

    Attributes:
        release: what to download.
        split: folder of the split's files.
        write: (writer, folder, layout) converts the raw files.
        note: what was done to the graph; goes into ``meta``.
    """

    release: Release
    split: str
    write: Callable[[FolderWriter, Path, Layout], None]
    note: str


def load_ogb(name: str, root: Path | None, scale: float) -> Dataset:
    """Download under ``root`` (or the cache) if need be, convert once, open.

    Raises:
        InputError: the licence was not accepted, the download failed, or the files are of another release or damaged.
    """
    if root is None and is_folder(converted(_key(name, None))):
        return Dataset.open(converted(_key(name, None)))
    layout = LAYOUTS[name]
    folder = _raw_folder(name, root)
    if not (folder / "raw").is_dir():
        download(layout.release, folder)
    if not (folder / f"RELEASE_v{layout.release.version}.txt").exists():
        raise InputError(
            f"{folder} is not release {layout.release.version} of {name} (no RELEASE_v{layout.release.version}.txt): "
            "remove the folder, and it is downloaded again"
        )
    return open_cached(_key(name, root), lambda writer: layout.write(writer, folder, layout))


def write_csv(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """The layout with one kind of vertex and edge (arxiv, products)."""
    edges, num_nodes = _csv(folder / "raw" / "edge", np.int64), int(_csv(folder / "raw" / "num-node-list", np.int64)[0, 0])
    x = _csv(folder / "raw" / "node-feat", np.float32)
    y = _csv(folder / "raw" / "node-label", np.float64)
    _write(writer, layout, edges, num_nodes, x, y, folder / "split" / layout.split)


def write_papers_of_mag(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """The relation paper-cites-paper of the heterogeneous layout, with the papers' features, labels and splits."""
    raw = folder / "raw"
    edges = _csv(raw / "relations" / "paper___cites___paper" / "edge", np.int64)
    x = _csv(raw / "node-feat" / "paper" / "node-feat", np.float32)
    y = _csv(raw / "node-label" / "paper" / "node-label", np.float64)
    _write(writer, layout, edges, len(x), x, y, folder / "split" / layout.split / "paper")


def write_papers100m(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """The binary layout, piece by piece: its arrays are larger than most memories."""
    splits = _splits(folder / "split" / layout.split)
    write_binary(writer, folder / "raw", layout.release.name, splits, _meta(layout))


def _write(writer: FolderWriter, layout: Layout, edges: Array, num_nodes: int, x: Array, labels: Array, split_folder: Path) -> None:
    y = np.nan_to_num(labels[:, 0], nan=-1).astype(np.int64)
    data = Dataset(
        name=layout.release.name,
        graph=Graph.from_pairs(edges[:, 0], edges[:, 1], num_nodes),
        x=x,
        y=y,
        splits=_splits(split_folder),
        meta=_meta(layout),
    )
    data.write_to(writer)


def _meta(layout: Layout) -> dict[str, str]:
    release = layout.release
    return {"source": release.url, "licence": release.licence, "split": f"OGB's: {layout.split}", "note": layout.note}


def _splits(folder: Path) -> dict[str, Array]:
    files = {"train": "train", "val": "valid", "test": "test"}
    return {split: np.sort(_csv(folder / file, np.int64)[:, 0]) for split, file in files.items()}


def _csv(stem: Path, dtype: type[np.generic]) -> Array:
    """A table (N, columns) without a header."""
    import pandas  # type: ignore[import-untyped]

    path = stem.with_name(f"{stem.name}.csv.gz")
    try:
        table: Array = pandas.read_csv(path, header=None, dtype=dtype).to_numpy()
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is missing or damaged ({reason_of(error)}): remove the data set's folder, and it is downloaded again"
        ) from None
    return table


def _raw_folder(name: str, root: Path | None) -> Path:
    return downloads(root) / name.replace("-", "_")


def _key(name: str, root: Path | None) -> str:
    """Files under a ``root`` of the user's may change, so they are part of the key; those in the cache are ours."""
    if root is None:
        return f"{name}-ogb{_VERSION}"
    files = [file for part in ("raw", "split") for file in (_raw_folder(name, root) / part).rglob("*.[cn][sp][vz]*") if file.is_file()]
    return f"{name}-ogb{_VERSION}-{fingerprint(files)}"


def _is_present(name: str, root: Path | None) -> bool:
    return (_raw_folder(name, root) / "raw").is_dir() or is_folder(converted(_key(name, None)))


_REVERSED = "made undirected as in OGB's examples: reverse edges added, each edge once"

LAYOUTS = {
    "ogbn-arxiv": Layout(release=Release("ogbn-arxiv", 1, "arxiv", 0.08, _ODC_BY), split="time", write=write_csv, note=_REVERSED),
    "ogbn-products": Layout(
        release=Release("ogbn-products", 1, "products", 1.4, "Amazon licence (https://ogb.stanford.edu/docs/nodeprop/#ogbn-products)"),
        split="sales_ranking",
        write=write_csv,
        note="undirected as published: both directions stored, each edge once",
    ),
    "ogbn-papers100M": Layout(
        release=Release("ogbn-papers100M", 1, "papers100M-bin", 56.2, _ODC_BY),
        split="time",
        write=write_papers100m,
        note="directed as published: from the citing paper to the cited one",
    ),
    "ogbn-mag": Layout(
        release=Release("ogbn-mag", 2, "mag", 0.4, _ODC_BY),
        split="time",
        write=write_papers_of_mag,
        note=f"only papers and their citations of the heterogeneous graph; {_REVERSED}",
    ),
}


def _ogb(name: str, about: str, *counts: int) -> tuple[str, Source]:
    return name, Source(about=about, origin="download from OGB", load=load_ogb, counts=Counts(*counts), is_present=_is_present)


SOURCES = dict(
    [
        _ogb("ogbn-arxiv", "arXiv papers and their citations", 169_343, 2_315_598, 128, 40),
        _ogb("ogbn-mag", "papers of MAG and their citations", 736_389, 10_792_672, 128, 349),
        _ogb("ogbn-papers100M", "papers of MAG, directed citations", 111_059_956, 1_615_685_872, 128, 172),
        _ogb("ogbn-products", "Amazon products bought together", 2_449_029, 123_718_280, 100, 47),
    ]
)
