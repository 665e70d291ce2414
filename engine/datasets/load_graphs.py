"""``load_small_graphs``, which finds and opens data sets of many small graphs."""

from __future__ import annotations

from pathlib import Path

from hoptrain.engine.datasets.cache import is_folder
from hoptrain.engine.datasets.load import existing_root, load_dataset
from hoptrain.engine.datasets.npz import find_npz, not_found
from hoptrain.engine.datasets.ogb.graphs import MOLECULES, load_molecules
from hoptrain.engine.datasets.pyg import TU, dataset_of, downloaded
from hoptrain.engine.datasets.small_graphs import SmallGraphs, check_fold, folds_of
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import npz_members, read_npz


def load_small_graphs(name: str, *, root: str | Path | None = None, fold: int = 0) -> SmallGraphs:
    """Open a data set of many small labelled graphs.

    The name is searched for in this order: as a folder that ``SmallGraphs.save`` wrote (``name`` itself or ``root/name``); as ``name.npz`` in ``root``
    or ``$HOPTRAIN_DATA``, with ``graph_ptr``, ``graph_y`` and optionally ``fold10`` in addition to the members that ``load_dataset`` reads; as one of
    OGB's molecules; as MUTAG, ENZYMES or PROTEINS, which PyG downloads.

    Args:
        name: name of the data set, for example ``tu_mutag`` or ``ogbg-molhiv``, or a path.
        root: folder that holds the file or OGB's files, and to which OGB's files are downloaded.
        fold: index of the fold for testing, from 0 to 9. The next fold is for validation, all others are for training. Without ``fold10`` in the
            file, hoptrain's permutation with seed 0 assigns graphs to folds. Folders and OGB's molecules have their own splits.

    Raises:
        InputError: the data set is not found, has no small graphs with features, has no such fold, or has its own splits and ``fold`` is given.
    """
    check_fold(fold)
    place = existing_root(root)
    folder = next((path for path in (Path(name), *([] if place is None else [place / name])) if is_folder(path)), None)
    if folder is not None:
        return _split_already(SmallGraphs.open(folder), fold)
    path = find_npz(name, place)
    if path is None and name in MOLECULES:
        return _split_already(load_molecules(name, place), fold)
    if path is None and name in TU:
        graphs = downloaded(name, place, lambda name, folder: list(dataset_of(name, folder, use_node_attr=True)))
        return SmallGraphs.from_pyg(graphs, fold=fold, name=name)
    if path is None:
        raise not_found(
            name, place, f"put {name}.npz into a folder and name that as root or in $HOPTRAIN_DATA, or use one of OGB's ogbg-mol sets"
        )
    return _of_npz(name, path, fold)


def _split_already(graphs: SmallGraphs, fold: int) -> SmallGraphs:
    if fold:
        raise InputError(f"fold is {fold} but {graphs.name} has its own splits, {', '.join(graphs.splits)}: leave fold out")
    return graphs


def _of_npz(name: str, path: Path, fold: int) -> SmallGraphs:
    nodes = load_dataset(name, root=path.parent)
    try:
        arrays = read_npz(path, ("graph_ptr", "graph_y", *({"fold10"} & npz_members(path).keys())))
        ptr, y, folds = arrays["graph_ptr"], arrays["graph_y"], arrays.get("fold10")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} holds no small graphs ({one_line(error)}): it needs graph_ptr and graph_y; use task: nodes for a single graph"
        ) from None
    if folds is not None and (folds.shape != (len(y),) or folds.dtype.kind not in "iu"):
        raise InputError(
            f"{path}: fold10 is {folds.dtype} of shape {folds.shape}: it must be one integer for each of the {len(y):,} graphs; convert it"
        )
    return SmallGraphs(name=name, nodes=nodes, ptr=ptr, y=y, splits=folds_of(str(path), folds, len(y), fold))
