"""``load_dataset`` and ``load_hetero_dataset``: the one registry of graphs, and the order in which a name is looked for."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets import diabetes, digits, mag, npz, pyg, synthetic
from hoptrain.engine.datasets.cache import is_folder, open_cached
from hoptrain.engine.datasets.npz import TYPED_REMEDY
from hoptrain.engine.datasets.ogb import hetero as ogb_typed
from hoptrain.engine.datasets.ogb import source as ogb
from hoptrain.engine.datasets.source import Source
from hoptrain.engine.datasets.tables.folders import is_tables, load_tables
from hoptrain.engine.errors import InputError, did_you_mean
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.store import HEADER, kind_of

REGISTRY: Mapping[str, Source] = (
    diabetes.SOURCES | digits.SOURCES | pyg.SOURCES | ogb.SOURCES | ogb_typed.SOURCES | synthetic.SOURCES | mag.SOURCES
)


def load_dataset(name: str, *, root: str | Path | None = None, scale: float = 1.0) -> Dataset:
    """Open a data set, memory-mapped; the first time it is downloaded, generated or converted into the cache.

    Looked for in this order: a path to a hoptrain folder, to one of tables (``tables/folders.py``) or to a ``.npz`` file; a hoptrain folder
    ``root/name`` or ``root`` itself;
    ``name.npz`` in ``root`` and in ``$HOPTRAIN_DATA``; the registry (see ``list_datasets``). Conversions are kept in
    ``$HOPTRAIN_CACHE/datasets`` or ``~/.cache/hoptrain/datasets``.

    Args:
        name: a name of the registry, of a file or folder in ``root``, or a path.
        root: a folder that holds data sets, or to which they are downloaded.
        scale: share of a ``synthetic:`` set to generate, in (0, 1].

    Raises:
        InputError: an unknown name, a root that does not exist, a scale that cannot be honoured, a file that cannot be read, a download
            that failed or that needs a licence to be accepted.

    Examples:
        >>> from hoptrain import load_dataset
        >>> data = load_dataset("digits-knn")
        >>> data
        Dataset(digits-knn, Graph(num_nodes=1,797, num_edges=19,858, is_sorted=True), num_features=64,
        num_classes=10, splits: test (360), train (1,078), val (359))
        >>> data.x.shape, data.y[:5].tolist()
        ((1797, 64), [0, 1, 2, 3, 4])
    """
    data = load_any(name, root=root, scale=scale)
    if isinstance(data, HeteroDataset):
        raise InputError(f"{name} is a heterogeneous graph (nodes of several kinds), not a homogeneous one: {TYPED_REMEDY}")
    return data


def load_hetero_dataset(
    name: str, *, root: str | Path | None = None, scale: float = 1.0, add_reverse: bool = False, seed_type: str | None = None
) -> HeteroDataset:
    """Open a data set on a heterogeneous graph; where it is looked for, and what is kept, as by ``load_dataset``.

    Args:
        name: a name of the registry, of a file or folder in ``root``, or a path.
        root: a folder that holds data sets, or to which they are downloaded.
        scale: share of a ``synthetic:`` set to generate, in (0, 1].
        add_reverse: turn each relation round as well (``HeteroGraph.with_reverse``), once: that is kept in the cache, too.
        seed_type: the type that is trained on, of a folder of tables where several types have labels; other data sets state theirs.

    Raises:
        InputError: as ``load_dataset``; or the data set has nodes of one kind only, or another ``seed_type``.

    Examples:
        >>> from hoptrain import load_hetero_dataset
        >>> data = load_hetero_dataset("synthetic:mag", scale=0.001)
        >>> data.seed_type, data.graph.num_nodes
        ('paper', {'paper': 736, 'author': 1135, 'institution': 9, 'field_of_study': 60})
    """
    data = load_any(name, root=root, scale=scale, seed_type=seed_type)
    if isinstance(data, Dataset):
        raise InputError(f"{name} has nodes of one kind: task: nodes trains on it; choose a data set with several ('hoptrain data list')")
    if seed_type not in (None, data.seed_type):
        raise InputError(f"seed_type is {seed_type!r}: {name} has labels of {data.seed_type} alone; leave it out")
    return _reversed(data) if add_reverse else data


def _reversed(data: HeteroDataset) -> HeteroDataset:
    """Return the data set with reverse relations, from the cache: named by what the folder's header holds, checksums included."""
    path = Path(str(data.path))
    headers = sorted(path.rglob(HEADER))  # folders of versions before have one for the graph too
    key = f"{path.name}-reverse-{zlib.crc32(b''.join(file.read_bytes() for file in headers)):08x}"
    return open_cached(HeteroDataset, key, lambda writer: data.with_reverse().write_to(writer))


def load_any(name: str, *, root: str | Path | None = None, scale: float = 1.0, seed_type: str | None = None) -> Dataset | HeteroDataset:
    """``load_dataset`` or ``load_hetero_dataset``, by what is found; ``seed_type`` is that of tables."""
    root, scale = existing_root(root), float(scale)
    source = REGISTRY.get(name)
    if source is None and _is_path(name):
        _check_unscaled(name, scale)
        return _open_path(Path(name), seed_type)
    if root is not None:
        folder = next((folder for folder in (root / name, root) if is_folder(folder)), None)
        if folder is not None:
            return _open_as(folder, name, scale)
    if source is None or not source.is_scalable:
        _check_unscaled(name, scale)
    if root is not None and source is None and is_tables(root / name):
        return load_tables(root / name, seed_type)
    file = npz.find_npz(name, root)
    if file is not None:
        return _open_path(file)
    if source is None:
        raise _unknown(name, root)
    return source.load(name, root, scale)


def existing_root(root: str | Path | None) -> Path | None:
    """The folder that holds the data sets, if one is given; it has to be there."""
    if root is None:
        return None
    root = Path(root).expanduser()
    if not root.is_dir():
        raise InputError(f"root {root} is not a folder: it holds the data sets; create it or name another")
    return root


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith(".npz") or is_folder(Path(name)) or is_tables(Path(name))


def _open_path(path: Path, seed_type: str | None = None) -> Dataset | HeteroDataset:
    if path.suffix == ".npz":
        return npz.load_npz(path)
    return load_tables(path, seed_type) if is_tables(path) and not is_folder(path) else open_either(path)


def open_either(folder: Path, *, verify: bool | None = None) -> Dataset | HeteroDataset:
    """Open a folder of a data set, typed or not; ``verify`` compares checksums."""
    kind = kind_of(folder)
    if kind not in (HeteroDataset.kind, Dataset.kind, None):
        raise InputError(
            f"{folder} holds {kind!r}, not a data set: name a folder that holds one, and a folder of 'hoptrain data partition' by data.partitions"
        )
    return (HeteroDataset if kind == HeteroDataset.kind else Dataset).open(folder, verify=verify)


def _open_as(folder: Path, name: str, scale: float) -> Dataset | HeteroDataset:
    """Open a folder that has to hold what was asked for."""
    data = open_either(folder)
    if data.name != name and folder.name != name:
        raise InputError(f"root {folder} holds {data.name!r}, not {name!r}: ask for what it holds or name another root")
    if data.meta.get("scale", 1.0) != scale:
        raise InputError(f"{folder} holds {name} at scale {data.meta.get('scale', 1.0)}, not {scale}: ask for that scale or drop root")
    return data


def _check_unscaled(name: str, scale: float) -> None:
    if scale != 1.0:
        raise InputError(f"scale is {scale}: {name} has one size, only synthetic: sets are scaled; leave scale at 1.0")


def _unknown(name: str, root: Path | None) -> InputError:
    if near := did_you_mean(name, list(REGISTRY)):
        return InputError(f"{name!r} is no data set that is known, nor a file or folder: {near}")
    looked = ", ".join(map(str, npz.places(root))) or "neither root nor $HOPTRAIN_DATA is given"
    return InputError(
        f"{name!r} is no data set that is known, nor a file or folder ({looked}): 'hoptrain data list' names what there is, "
        "'hoptrain data import' makes one of your tables"
    )
