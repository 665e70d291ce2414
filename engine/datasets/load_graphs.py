"""``load_small_graphs``: the order in which a name of many small graphs is looked for."""

from __future__ import annotations

from pathlib import Path

from hoptrain.engine.datasets.cache import is_folder
from hoptrain.engine.datasets.load import existing_root, load_dataset
from hoptrain.engine.datasets.npz import find_npz, not_found
from hoptrain.engine.datasets.ogb.graphs import MOLECULES, load_molecules
from hoptrain.engine.datasets.small_graphs import SmallGraphs, check_fold, folds_of
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.files.untrusted import npz_members, read_npz


def load_small_graphs(name: str, *, root: str | Path | None = None, fold: int = 0) -> SmallGraphs:
    """Open many small graphs.

    Looked for in this order: a folder that ``SmallGraphs.save`` wrote, ``name`` itself or ``root/name``; ``name.npz`` in ``root`` or
    ``$HOPTRAIN_DATA``, as for ``load_dataset`` and with ``graph_ptr``, ``graph_y``, and ``fold10`` if it has folds; OGB's molecules.

    Args:
        name: for instance ``tu_mutag`` or ``ogbg-molhiv``.
        root: folder of the file, or where OGB's files are, or are downloaded to.
        fold: the one of the ten folds that is the test split; the one after it is for validation, all others for training. Where the file has no
            ``fold10``, folds are dealt out by hoptrain's permutation with seed 0. A folder and OGB's molecules have splits of their own.

    Raises:
        InputError: it is not there, or holds no small graphs with features; a fold that does not exist, or of data with splits of their own.
    """
    check_fold(fold)
    place = existing_root(root)
    folder = next((path for path in (Path(name), *([] if place is None else [place / name])) if is_folder(path)), None)
    if folder is not None:
        return _split_already(SmallGraphs.open(folder), fold)
    path = find_npz(name, place)
    if path is None and name in MOLECULES:
        return _split_already(load_molecules(name, place), fold)
    if path is None:
        raise not_found(
            name, place, f"put {name}.npz into a folder and name that as root or in $HOPTRAIN_DATA, or take one of OGB's ogbg-mol sets"
        )
    return _of_npz(name, path, fold)


def _split_already(graphs: SmallGraphs, fold: int) -> SmallGraphs:
    if fold:
        raise InputError(f"fold is {fold} and {graphs.name} has splits of its own, {', '.join(graphs.splits)}: leave it out")
    return graphs


def _of_npz(name: str, path: Path, fold: int) -> SmallGraphs:
    nodes = load_dataset(name, root=path.parent)
    try:
        arrays = read_npz(path, ("graph_ptr", "graph_y", *({"fold10"} & npz_members(path).keys())))
        ptr, y, folds = arrays["graph_ptr"], arrays["graph_y"], arrays.get("fold10")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} holds no small graphs ({one_line(error)}): it needs graph_ptr, graph_y; task: nodes reads one graph"
        ) from None
    if folds is not None and (folds.shape != (len(y),) or folds.dtype.kind not in "iu"):
        raise InputError(
            f"{path}: fold10 is {folds.dtype} of shape {folds.shape}: one integer for each of the {len(y):,} graphs; correct it"
        )
    return SmallGraphs(name=name, nodes=nodes, ptr=ptr, y=y, splits=folds_of(str(path), folds, len(y), fold))
