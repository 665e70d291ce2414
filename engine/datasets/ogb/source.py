"""OGB's node and link data sets, read from OGB's own files.

The folder layout is that of the ``ogb`` package (``ROOT/ogbn_arxiv/raw/...``), so existing downloads are used, and ``ogb`` downloads missing files. The
package's loaders are not used, because they ask questions on the terminal and unpickle their cache.
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
from hoptrain.engine.datasets.ogb.links import read_links
from hoptrain.engine.datasets.source import Counts, Source
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter

_VERSION = 1
_ODC_BY = "ODC-BY (https://opendatacommons.org/licenses/by/1-0/)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A description of how one data set is downloaded, split and converted.

    Attributes:
        release: archive to download.
        split: name of the split's folder.
        write: function (writer, folder, layout) that converts the raw files.
        note: description, for ``meta``, of changes to OGB's graph.
    """

    release: Release
    split: str
    write: Callable[[FolderWriter, Path, Layout], None]
    note: str


def load_ogb(name: str, root: Path | None, scale: float) -> Dataset:
    """Open a data set of OGB. The first call downloads it to ``root`` (or the cache) and converts it.

    Raises:
        InputError: the licence was not accepted, the download failed, or the files are of another release or damaged.
    """
    layout = LAYOUTS[name]
    key = ready_key(name, layout.release, root)
    return open_cached(Dataset, key, lambda writer: layout.write(writer, fetched(layout.release, root), layout))


def fetched(release: Release, root: Path | None) -> Path:
    """Return the folder of a release's files, downloaded if necessary.

    Raises:
        InputError: the licence was not accepted, the download failed, or the folder has another release.
    """
    folder = _raw_folder(release, root)
    if not (folder / "raw").is_dir():
        download(release, folder)
    if not (folder / f"RELEASE_v{release.version}.txt").exists():
        raise InputError(
            f"{folder} is not release {release.version} of {release.name} (no RELEASE_v{release.version}.txt): "
            "remove the folder, so that it is downloaded again"
        )
    return folder


def ready_key(name: str, release: Release, root: Path | None) -> str:
    """Return the cache key. With ``root``, first download the files there, since the key depends on them: a user may change them, unlike files in the cache."""
    if root is None:
        return f"{name}-ogb{_VERSION}"
    folder = fetched(release, root)
    files = [file for part in ("raw", "split") for file in (folder / part).rglob("*") if file.name.endswith((".csv.gz", ".npz", ".pt"))]
    return f"{name}-ogb{_VERSION}-{fingerprint(files)}"


def is_present(name: str, release: Release, root: Path | None) -> bool:
    """Return whether a data set is available offline."""
    return (_raw_folder(release, root) / "raw").is_dir() or is_folder(converted(ready_key(name, release, None)))


def write_csv(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """Convert OGB's csv format with one node and edge type (arxiv, products)."""
    edges, num_nodes = read_csv(folder / "raw" / "edge", np.int64), int(read_csv(folder / "raw" / "num-node-list", np.int64)[0, 0])
    x = read_csv(folder / "raw" / "node-feat", np.float32)
    y = read_csv(folder / "raw" / "node-label", np.float64)
    _write(writer, layout, edges, num_nodes, x, y, folder / "split" / layout.split)


def write_papers_of_mag(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """Convert the papers of ogbn-mag: their citations, features, labels and splits."""
    raw = folder / "raw"
    edges = read_csv(raw / "relations" / "paper___cites___paper" / "edge", np.int64)
    x = read_csv(raw / "node-feat" / "paper" / "node-feat", np.float32)
    y = read_csv(raw / "node-label" / "paper" / "node-label", np.float64)
    _write(writer, layout, edges, len(x), x, y, folder / "split" / layout.split / "paper")


def write_papers100m(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """Convert OGB's binary format (papers100M) on disk, since most machines cannot load its arrays into memory."""
    splits = read_splits(folder / "split" / layout.split)
    write_binary(writer, folder / "raw", layout.release.name, splits, _meta(layout))


def write_links(writer: FolderWriter, folder: Path, layout: Layout) -> None:
    """Convert a link data set with OGB's negatives. Training links are stored in both directions, other links once."""
    num_nodes = int(read_csv(folder / "raw" / "num-node-list", np.int64)[0, 0])
    features = folder / "raw" / "node-feat"
    links = read_links(folder / "split" / layout.split)
    Dataset(
        name=layout.release.name,
        graph=Graph.from_edges(links.src, links.dst, num_nodes, times=links.times),
        x=read_csv(features, np.float32) if features.with_name("node-feat.csv.gz").is_file() else None,
        edge_splits=links.splits,
        negatives=links.negatives,
        meta=_meta(layout) | {"score": LINK_SCORES[layout.release.name], "shared_links": "keep"},
    ).write_to(writer)


def _write(writer: FolderWriter, layout: Layout, edges: Array, num_nodes: int, x: Array, labels: Array, split_folder: Path) -> None:
    y = np.nan_to_num(labels[:, 0], nan=-1).astype(np.int64)
    data = Dataset(
        name=layout.release.name,
        graph=Graph.from_pairs(edges[:, 0], edges[:, 1], num_nodes),
        x=x,
        y=y,
        splits=read_splits(split_folder),
        meta=_meta(layout),
    )
    data.write_to(writer)


def _meta(layout: Layout) -> dict[str, str]:
    release = layout.release
    return {"source": release.url, "licence": release.licence, "split": f"OGB's: {layout.split}", "note": layout.note}


def read_splits(folder: Path) -> dict[str, Array]:
    """Read the splits of a folder, with hoptrain's names of splits as keys."""
    files = {"train": "train", "val": "valid", "test": "test"}
    return {split: np.sort(read_csv(folder / file, np.int64)[:, 0]) for split, file in files.items()}


def read_csv(stem: Path, dtype: type[np.generic]) -> Array:
    """Read a compressed csv table (N, columns) without a header."""
    import pandas  # type: ignore[import-untyped]

    path = stem.with_name(f"{stem.name}.csv.gz")
    try:
        table: Array = pandas.read_csv(path, header=None, dtype=dtype).to_numpy()
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is missing or damaged ({one_line(error)}): remove the data set's folder, so that it is downloaded again"
        ) from None
    return table


def _raw_folder(release: Release, root: Path | None) -> Path:
    return downloads(root) / release.name.replace("-", "_")


MAG = Release("ogbn-mag", 2, "mag", 0.4, _ODC_BY)
_REVERSED = "made undirected as in OGB's examples: reverse edges added, each edge once"

LINK_SCORES = {"ogbl-citation2": "mrr", "ogbl-collab": "hits@50", "ogbl-ddi": "hits@20", "ogbl-ppa": "hits@100"}
"""Name of a link data set of OGB -> its official metric."""


def _of_links(name: str, archive: str, split: str) -> Layout:
    note = "messages pass along the training's links alone, in both directions as in OGB's examples"
    return Layout(release=Release(name, 1, archive, None, _ODC_BY, "linkproppred"), split=split, write=write_links, note=note)


LAYOUTS = {
    "ogbl-citation2": _of_links("ogbl-citation2", "citation-v2", "time"),
    "ogbl-collab": _of_links("ogbl-collab", "collab", "time"),
    "ogbl-ddi": _of_links("ogbl-ddi", "ddi", "target"),
    "ogbl-ppa": _of_links("ogbl-ppa", "ppassoc", "throughput"),
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
    "ogbn-mag-papers": Layout(
        release=MAG,
        split="time",
        write=write_papers_of_mag,
        note=f"only papers and their citations of the heterogeneous graph; {_REVERSED}",
    ),
}


def _ogb(name: str, about: str, *counts: int) -> tuple[str, Source]:
    def present(name: str, root: Path | None) -> bool:
        return is_present(name, LAYOUTS[name].release, root)

    return name, Source(
        about=about, origin="download from OGB", load=load_ogb, counts=Counts(*counts) if counts else None, is_present=present
    )


SOURCES = dict(
    [
        _ogb("ogbl-citation2", "papers of MAG and their citations"),
        _ogb("ogbl-collab", "authors and their collaborations"),
        _ogb("ogbl-ddi", "drugs and their interactions"),
        _ogb("ogbl-ppa", "proteins and their associations"),
        _ogb("ogbn-arxiv", "arXiv papers and their citations", 169_343, 2_315_598, 128, 40),
        _ogb("ogbn-mag-papers", "papers of ogbn-mag and their citations alone", 736_389, 10_792_672, 128, 349),
        _ogb("ogbn-papers100M", "papers of MAG, directed citations", 111_059_956, 1_615_685_872, 128, 172),
        _ogb("ogbn-products", "Amazon products bought together", 2_449_029, 123_718_280, 100, 47),
    ]
)
