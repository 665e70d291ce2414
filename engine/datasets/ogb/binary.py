"""Reader of OGB's binary format (papers100M). It converts arrays in ``raw/data.npz`` on disk, since most machines cannot load them into memory."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, id_dtype, offset_dtype
from hoptrain.engine.dataset import Dataset
from hoptrain.engine.datasets.cache import check_disk_space
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import map_npy, read_npz
from hoptrain.engine.graph import Graph
from hoptrain.engine.store import FolderWriter
from hoptrain.kernels.cpu.csc import coo_into_csc, first_out_of_range, sort_columns


def write_binary(writer: FolderWriter, raw: Path, name: str, splits: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
    """Convert ``raw/data.npz`` and ``raw/node-label.npz`` into a new folder. Features keep their stored dtype.

    Args:
        writer: writer of the new folder.
        raw: folder that holds the two files.
        name: name of the data set.
        splits: node ids by split.
        meta: source, licence and other metadata.

    Raises:
        InputError: a file is missing, damaged or of another format.
    """
    try:
        with zipfile.ZipFile(raw / "data.npz") as archive, tempfile.TemporaryDirectory(dir=writer.folder.parent) as scratch:
            check_disk_space(writer.folder, sum(member.file_size for member in archive.infolist()) * 5 // 4)
            graph = _write_graph(writer, archive, Path(scratch))
            # a member of an .npz is a .npy file, which is also the format of the folder's arrays, so it is extracted directly
            x = _unpack(archive, "node_feat", writer.folder / "x.npy")
        y = np.nan_to_num(read_npz(raw / "node-label.npz")["node_label"].reshape(-1), nan=-1).astype(np.int64)
    except InputError:
        raise
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{raw} is missing a file or holds a damaged one ({one_line(error)}): remove it and download {name} again"
        ) from None
    data = Dataset(name=name, graph=graph, x=x, y=y, splits=splits, meta=meta)
    writer.add("y", y)
    for split, ids in splits.items():
        writer.add(f"split_{split}", ids)
    writer.meta.update(data.header())


def _write_graph(writer: FolderWriter, archive: zipfile.ZipFile, scratch: Path) -> Graph:
    num_nodes = int(_unpack(archive, "num_nodes_list", scratch / "num_nodes_list.npy")[0])
    src, dst = _unpack(archive, "edge_index", scratch / "edge_index.npy")
    for ids in (src, dst):
        bad = first_out_of_range(ids, num_nodes)
        if bad >= 0:
            raise InputError(
                f"edge {bad} of {archive.filename} has node {ids[bad]}: nodes must be 0 to {num_nodes - 1}; download the file again"
            )
    indptr = writer.create("indptr", offset_dtype(len(src)), (num_nodes + 1,))
    indices = writer.create("indices", id_dtype(num_nodes), (len(src),))
    coo_into_csc(src, dst, indptr, indices)
    sort_columns(indptr, indices)
    return Graph(indptr, indices, is_sorted=True, validate=False)


def _unpack(archive: zipfile.ZipFile, member: str, path: Path) -> Array:
    """Extract a member of an .npz file and return it memory-mapped."""
    with archive.open(f"{member}.npy") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 24)
    return map_npy(path)
