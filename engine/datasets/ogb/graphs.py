"""Reader of OGB's molecules (Hu et al. 2020), data sets of many small graphs, from OGB's own files.

The files contain each edge once. As in OGB's loader, it is read in both directions with the same features.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hoptrain.engine.arrays import Array
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import convert_once, downloads, fingerprint
from hoptrain.engine.datasets.ogb.download import Release, download
from hoptrain.engine.datasets.ogb.source import read_csv, read_splits
from hoptrain.engine.datasets.small_graphs import SmallGraphs
from hoptrain.engine.datasets.source import narrow_features
from hoptrain.engine.errors import InputError
from hoptrain.engine.graph import Graph

_VERSION = 1
_ARCHIVES = {"mollipo": "lipophilicity"}
_NAMES = ("bace", "bbbp", "chembl", "clintox", "esol", "freesolv", "hiv", "lipo", "muv", "pcba", "sider", "tox21", "toxcast")
MOLECULES: Mapping[str, Release] = {
    f"ogbg-mol{name}": Release(
        f"ogbg-mol{name}", 1, _ARCHIVES.get(f"mol{name}", name), None, "MIT (MoleculeNet)", "graphproppred/csv_mol_download"
    )
    for name in _NAMES
}
"""Name of a data set of molecules -> its OGB release. All have 9 categorical features per atom, 3 per bond, and the scaffold split."""


def load_molecules(name: str, root: Path | None) -> SmallGraphs:
    """Open a data set of molecules. The first call downloads it to ``root`` (or the cache) and converts it.

    Raises:
        InputError: the licence was not accepted, the download failed, or the files are of another release or damaged.
    """
    release, folder = MOLECULES[name], downloads(root) / name.replace("-", "_")
    if not (folder / "raw").is_dir():
        download(release, folder)
    if not (folder / f"RELEASE_v{release.version}.txt").exists():
        raise InputError(
            f"{folder} is not release {release.version} of {name} (no RELEASE_v{release.version}.txt): remove the folder, so that it is downloaded again"
        )
    key = f"{name}-ogb{_VERSION}-{fingerprint(folder.rglob('*.csv.gz'))}"
    return SmallGraphs.open(convert_once(key, Dataset.kind, lambda writer: read_molecules(name, folder).write_to(writer)))


def read_molecules(name: str, folder: Path) -> SmallGraphs:
    """Read and validate the graphs of a folder in OGB's format, in memory.

    Raises:
        InputError: a file is missing or damaged, or contradicts other files.
    """
    raw, release = folder / "raw", MOLECULES[name]
    sizes, num_edges = (read_csv(raw / f"num-{what}-list", np.int64)[:, 0] for what in ("node", "edge"))
    x, y = read_csv(raw / "node-feat", np.float32), read_csv(raw / "graph-label", np.float32)
    edges, edge_attr = read_csv(raw / "edge", np.int64), read_csv(raw / "edge-feat", np.float32)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    found = {"node-feat": (len(x), ptr[-1]), "edge": (len(edges), num_edges.sum()), "edge-feat": (len(edge_attr), num_edges.sum())}
    for file, (rows, wanted) in found.items():
        if rows != wanted:
            raise InputError(
                f"{raw / file}.csv.gz has {rows:,} rows, but the graphs have {wanted:,}: remove the data set's folder, so that it is downloaded again"
            )
    src, dst = (edges + np.repeat(ptr[:-1], num_edges)[:, None]).T
    nodes = Dataset(
        name=name,
        graph=Graph.from_edges(np.concatenate([src, dst]), np.concatenate([dst, src]), int(ptr[-1])),
        x=narrow_features(x),
        edge_attr=_twice(narrow_features(edge_attr)),
        meta={"source": release.url, "licence": release.licence, "split": "OGB's: scaffold"},
    )
    return SmallGraphs(name=name, nodes=nodes, ptr=ptr, y=y, splits=read_splits(folder / "split" / "scaffold"))


def _twice(rows: Array) -> Array:
    return np.concatenate([rows, rows])
