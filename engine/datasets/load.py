"""``load_dataset`` and ``load_hetero_dataset``, and the registry of data sets that they know by name."""

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
from hoptrain.engine.datasets.tables.plain import IDS, copy_ids
from hoptrain.engine.errors import InputError, did_you_mean
from hoptrain.engine.hetero_dataset import HeteroDataset
from hoptrain.engine.store import HEADER, FolderWriter, kind_of

REGISTRY: Mapping[str, Source] = (
    diabetes.SOURCES | digits.SOURCES | pyg.SOURCES | ogb.SOURCES | ogb_typed.SOURCES | synthetic.SOURCES | mag.SOURCES
)


def load_dataset(name: str, *, root: str | Path | None = None, scale: float = 1.0) -> Dataset:
    """Open a data set, memory-mapped. The first call downloads, generates or converts it into the cache.

    The name is searched for in this order: as the path of a hoptrain folder, of a folder of tables (``tables/folders.py``) or of a ``.npz`` file; as
    a hoptrain folder ``root/name`` or ``root`` itself; as ``name.npz`` in ``root`` and in ``$HOPTRAIN_DATA``; in the registry (see ``list_datasets``).
    Conversions are kept in ``$HOPTRAIN_CACHE/datasets`` or ``~/.cache/hoptrain/datasets``.

    Args:
        name: name of a data set in the registry or of a file or folder in ``root``, or a path.
        root: folder that holds data sets, and to which they are downloaded.
        scale: size of a ``synthetic:`` data set relative to the original, in (0, 1].

    Raises:
        InputError: the name is unknown, ``root`` does not exist, ``scale`` is not possible for this data set, a file cannot be read, or a download
            failed or needs its licence to be accepted.

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
        raise InputError(f"{name} is a heterogeneous graph (several node types), not a homogeneous one: {TYPED_REMEDY}")
    return data


def load_hetero_dataset(
    name: str, *, root: str | Path | None = None, scale: float = 1.0, add_reverse: bool = False, seed_type: str | None = None
) -> HeteroDataset:
    """Open a data set with a heterogeneous graph; ``load_dataset`` describes where it is searched for and cached.

    A ``.npz`` file has the arrays ``rel_A__B_indptr`` and ``rel_A__B_indices`` for each relation (A, "to", B): its edges in CSC form, sorted by destination;
    ``rel_A__NAME__B_`` gives it another name. ``TYPE_x`` are the features of a type, and ``y`` (-1 for no label), ``train_mask``, ``val_mask`` and
    ``test_mask`` are those of the target type. The JSON text ``meta`` has ``node_types`` (the number of nodes of each type) and ``target``, that type.

    Args:
        name: name of a data set in the registry or of a file or folder in ``root``, or a path.
        root: folder that holds data sets, and to which they are downloaded.
        scale: size of a ``synthetic:`` data set relative to the original, in (0, 1].
        add_reverse: True to add a reverse of each relation (``HeteroGraph.with_reverse``); the result is cached, too.
        seed_type: node type to train on, for a folder of tables in which several types have labels. Other data sets define it.

    Raises:
        InputError: the data set cannot be loaded (see ``load_dataset``), has one node type only, or has another ``seed_type``.

    Examples:
        >>> from hoptrain import load_hetero_dataset
        >>> data = load_hetero_dataset("synthetic:mag", scale=0.001)
        >>> data.seed_type, data.graph.num_nodes
        ('paper', {'paper': 736, 'author': 1135, 'institution': 9, 'field_of_study': 60})
    """
    data = load_any(name, root=root, scale=scale, seed_type=seed_type)
    if isinstance(data, Dataset):
        raise InputError(
            f"{name} has one node type: task: nodes trains on it; choose a data set with several node types ('hoptrain data list')"
        )
    if seed_type not in (None, data.seed_type):
        raise InputError(f"seed_type is {seed_type!r}: {name} has labels of {data.seed_type} alone; leave it out")
    return _reversed(data) if add_reverse else data


def _reversed(data: HeteroDataset) -> HeteroDataset:
    """Return the data set with reverse relations from the cache. Its cache key is derived from the folder's header, which contains checksums, and its ids."""
    path = Path(str(data.path))
    headers = sorted(path.rglob(HEADER))  # folders of older versions have a second header for the graph
    content = b"".join(file.read_bytes() for file in (*headers, path / IDS) if file.is_file())

    def write(writer: FolderWriter) -> None:
        data.with_reverse().write_to(writer)
        copy_ids(path, writer.folder)

    return open_cached(HeteroDataset, f"{path.name}-reverse-{zlib.crc32(content):08x}", write)


def load_any(name: str, *, root: str | Path | None = None, scale: float = 1.0, seed_type: str | None = None) -> Dataset | HeteroDataset:
    """Open the data set ``name``, which may be homogeneous or heterogeneous. ``seed_type`` is used for tables only."""
    if "\n" in name:  # jsonargparse replaces the name of a text file by its contents
        raise InputError(
            f"data set {name.partition(chr(10))[0][:60]}...: this is the text of a file, and must be a name or a folder; make a folder of a table with "
            "'hoptrain data import', or for a trained model with 'hoptrain data import --like'"
        )
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
    """Return ``root`` as a path, or None. Raise InputError if it is not a folder."""
    if root is None:
        return None
    root = Path(root).expanduser()
    if not root.is_dir():
        raise InputError(f"root {root} is not a folder: root must be the folder of the data sets; create it or name another")
    return root


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith(".npz") or is_folder(Path(name)) or is_tables(Path(name))


def _open_path(path: Path, seed_type: str | None = None) -> Dataset | HeteroDataset:
    if path.suffix == ".npz":
        return npz.load_npz(path)
    return load_tables(path, seed_type) if is_tables(path) and not is_folder(path) else open_either(path)


def open_either(folder: Path, *, verify: bool | None = None) -> Dataset | HeteroDataset:
    """Open the folder of a homogeneous or heterogeneous data set. ``verify`` tells whether to compare checksums."""
    kind = kind_of(folder)
    if kind not in (HeteroDataset.kind, Dataset.kind, None):
        raise InputError(
            f"{folder} holds {kind!r}, not a data set: name a data set's folder; use data.partitions for a folder of 'hoptrain data partition'"
        )
    return (HeteroDataset if kind == HeteroDataset.kind else Dataset).open(folder, verify=verify)


def _open_as(folder: Path, name: str, scale: float) -> Dataset | HeteroDataset:
    """Open a folder. Raise InputError if it holds a data set with another name or scale."""
    data = open_either(folder)
    if data.name != name and folder.name != name:
        raise InputError(f"root {folder} holds {data.name!r}, not {name!r}: give this name, or another root")
    if data.meta.get("scale", 1.0) != scale:
        raise InputError(f"{folder} holds {name} at scale {data.meta.get('scale', 1.0)}, not {scale}: give this scale, or leave root out")
    return data


def _check_unscaled(name: str, scale: float) -> None:
    if scale != 1.0:
        raise InputError(f"scale is {scale}: only synthetic: data sets can be scaled, not {name}; leave scale at 1.0")


def _unknown(name: str, root: Path | None) -> InputError:
    if remedy := npz.NO_DOWNLOAD.get(name):
        return npz.not_found(name, root, f"hoptrain cannot download it: {remedy}")
    if near := did_you_mean(name, list(REGISTRY)):
        return InputError(f"{name!r} is not a known data set, file or folder: {near}")
    looked = ", ".join(map(str, npz.places(root))) or "neither root nor $HOPTRAIN_DATA is given"
    return InputError(
        f"{name!r} is not a known data set, file or folder ({looked}): 'hoptrain data list' lists the known data sets, "
        "'hoptrain data import' makes one from your tables"
    )
