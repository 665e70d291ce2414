"""Files of predictions: ``PredictionWriter`` writes outputs with the ids of their nodes, and ``read_nodes`` reads the ids of the nodes to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import BasePredictionWriter
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.arrays import Array, as_array
from hoptrain.engine.datasets.tables.bad_rows import BadRows
from hoptrain.engine.datasets.tables.plain import IDS
from hoptrain.engine.datasets.tables.rows import Table
from hoptrain.engine.errors import check_choice, one_line, printable
from hoptrain.engine.files.untrusted import map_npy
from hoptrain.trainers.metrics.labels import Kind, Labels, labels_of

_OUTPUTS = "all outputs"
"""Description of the outputs of a model that has none of its own in ``predicted``."""


class Predictions(NamedTuple):
    """Outputs of a model for N nodes.

    Attributes:
        ids: (N,) ids of the nodes, as in the user's tables.
        outputs: (N, C) float32.
        classes: (N,) class with the largest logit, by name if the checkpoint or the data set has class names; None if the outputs are not logits of classes.
        unit: what a column of the outputs is, such as logit. It begins the column's name.
        no_classes: why it is unknown whether the outputs are logits of classes; empty if this is known.
    """

    ids: Array
    outputs: Array
    classes: Array | None
    unit: str
    no_classes: str

    def table(self) -> Any:
        """Return a pandas DataFrame with a column ``id``, a column ``class`` if there are classes, and the outputs as columns ``logit_0``, ``logit_1``, ..."""
        import pandas  # type: ignore[import-untyped]

        own = {"id": self.ids} | ({} if self.classes is None else {"class": self.classes})
        return pandas.DataFrame(own | {f"{self.unit}_{number}": column for number, column in enumerate(self.outputs.T)})


def _write_npy(made: Predictions, path: Path) -> None:
    np.save(path, made.outputs, allow_pickle=False)
    np.save(path.with_name(f"{path.stem}_ids.npy"), made.ids if made.ids.dtype != object else made.ids.astype(str), allow_pickle=False)


FORMATS: dict[str, Callable[[Predictions, Path], None]] = {
    ".npy": _write_npy,
    ".csv": lambda made, path: made.table().to_csv(path, index=False, float_format="%.9g"),
    ".parquet": lambda made, path: made.table().to_parquet(path, index=False, engine="pyarrow"),
}
"""Functions that write predictions, by the suffix of the file."""


class PredictionWriter(BasePredictionWriter):
    """A callback that writes the outputs of ``trainer.predict``, with the ids of their nodes (or images, or graphs), from all ranks into one file.

    * ``.npy``: (N, C) float32 logits or embeddings; the ids (N,) are in a second file, ``NAME_ids.npy``.
    * ``.csv`` and ``.parquet``: columns ``id``, ``class`` (the class with the largest output, if outputs are logits of classes), and ``logit_0``,
      ``logit_1``, ..., or ``output_0``, ``output_1``, ... for other outputs and for a LightningModule of your own.

    Outputs are logits of classes if the model has learnt classes. Outputs of a LightningModule of your own are such logits if the data set has as
    many classes, or names of classes, as there are outputs. If this cannot be decided, a line says why there is no column ``class``.

    Ids are those of the tables that the data set was imported from, or else node numbers. Rows are in the order of the data module's ``predict_ids``,
    or else in the order of node numbers.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import PredictionWriter
        >>> trainer = Trainer(callbacks=[PredictionWriter("predictions.csv")], logger=False)  # trainer.predict(model, data) then writes the file
    """

    def __init__(self, path: str | None = None) -> None:
        """Create a writer that writes once, at the end of the epoch.

        Args:
            path: the file to write; by default ``predictions.npy`` in the folder of the run.

        Raises:
            InputError: the file has another suffix, or a package is missing.
        """
        super().__init__(write_interval="epoch")
        self._path = None if path is None else Path(path)
        if self._path is not None:
            check_choice("the suffix of the predictions' file", self._path.suffix, list(FORMATS))
            if self._path.suffix == ".parquet" and find_spec("pyarrow") is None:
                raise InputError(
                    f"{path} needs pyarrow, which is not installed: pip install 'hoptrain[parquet]', or give a .csv or .npy file"
                )

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Discard the ids of an earlier prediction."""
        self._ids: list[Array] = []

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the ids of a batch's seeds.

        Raises:
            InputError: ``predict_step`` did not return a tensor with one row per seed.
        """
        seeds = getattr(batch, "seeds", None)
        if not isinstance(outputs, Tensor) or (seeds is not None and len(outputs) not in (0, len(seeds))):
            found = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise InputError(
                f"predict_step of {type(pl_module).__name__} returned {found}: PredictionWriter needs a tensor with a row for each seed; return one"
            )
        if len(outputs):  # in a pipeline only the last stage has outputs
            before = sum(map(len, self._ids))
            self._ids.append(np.arange(before, before + len(outputs)) if seeds is None else np.array(as_array(seeds)))

    def write_on_epoch_end(self, trainer: Trainer, module: LightningModule, predictions: Sequence[Any], batch_indices: Any) -> None:
        """Gather the outputs of all ranks and write the file on rank 0."""
        mine = torch.cat([part for part in predictions if len(part)] or [torch.empty(0)]).float().cpu()
        own = mine, np.concatenate([np.empty(0, np.int64), *self._ids])
        parts: list[Any] = [own]
        if trainer.world_size > 1:
            parts = [None] * trainer.world_size
            torch.distributed.all_gather_object(parts, own)
        path = self._path or Path(trainer.log_dir or trainer.default_root_dir) / "predictions.npy"  # a collective: every rank must read it
        if trainer.is_global_zero:
            path.parent.mkdir(parents=True, exist_ok=True)
            made = _joined(trainer, module, [part for part in parts if len(part[0])] or parts[:1])
            FORMATS[path.suffix](made, path)
            some = "" if getattr(_data_module(trainer), "predict_ids", None) is None else f" of {len(made.ids):,} ids"
            print(f"{getattr(module, 'predicted', _OUTPUTS)}{some}, in order: {path}")
            if made.no_classes and path.suffix != ".npy":
                print(printable(f"the file has no column class: {made.no_classes}"))


def _data_module(trainer: Trainer) -> Any:
    return getattr(trainer, "datamodule", None)


def _joined(trainer: Trainer, module: LightningModule, parts: Sequence[tuple[Tensor, Array]]) -> Predictions:
    """Join the pairs (outputs, ids) of all ranks, and sort them in the order of the requested ids."""
    outputs, ids = torch.cat([rows for rows, _ in parts]).numpy(), np.concatenate([own for _, own in parts])
    data_module = _data_module(trainer)
    asked = data_module.items_to_predict() if hasattr(data_module, "items_to_predict") else ids
    if len(asked) == len(ids):
        order = np.argsort(ids, kind="stable")[np.argsort(np.argsort(asked, kind="stable"), kind="stable")]
        outputs, ids = outputs[order], ids[order]
    data = getattr(data_module, "data", None)
    kind, unit, why = _kind_of(module, data, outputs.shape[1] if outputs.ndim == 2 else 1)
    classes = outputs.argmax(1) if kind == "classes" and len(outputs) else None
    names = getattr(module, "classes_of_training", None) or getattr(data, "meta", {}).get("classes")
    if classes is not None and names and len(names) == outputs.shape[1]:
        classes = np.array(names, object)[classes]
    own = own_ids(data)
    return Predictions(ids if own is None else own[ids], outputs, classes, unit, why)


def _kind_of(module: LightningModule, data: Any, width: int) -> tuple[Kind | None, str, str]:
    """Return the kind of labels that outputs with ``width`` columns belong to, the unit of a column, and why the kind is unknown or empty text."""
    if getattr(module, "predicted", _OUTPUTS) != _OUTPUTS:  # embeddings
        return None, "output", ""
    learnt = next((own for name in ("labels", "labels_of_checkpoint") if isinstance(own := getattr(module, name, None), Labels)), None)
    labels = learnt or _labels_in(data)
    if labels is None:
        why = f"{getattr(data, 'name', 'the data')} has neither labels nor names of classes, so it is unknown whether outputs are logits of classes"
        return None, "output", why
    if labels.kind == "classes" and labels.number != width:
        return None, "output", f"outputs have {width} columns, and there are {labels.number} classes, so outputs are not their logits"
    return labels.kind, "output" if learnt is None or labels.kind == "targets" else "logit", ""


def _labels_in(data: Any) -> Labels | None:
    """Return the description of a data set's labels, or of its names of classes; None if it has neither."""
    y, names = getattr(data, "y", None), getattr(data, "meta", {}).get("classes")
    if isinstance(y, np.ndarray):
        return labels_of(y, data.num_classes)
    return Labels("classes", len(names)) if names else None


def own_ids(data: Any) -> Array | None:
    """Return the ids (V,) that the nodes have in the tables of an imported data set: int64 or strings. None if the ids are the node numbers."""
    folder = getattr(data, "path", None)
    if folder is None or not (Path(folder) / IDS).is_file():
        return None
    ids = _texts(Table(Path(folder) / IDS, header=True), "id")
    return ids.astype(np.int64) if all(id.isdecimal() and str(int(id)) == id for id in ids) else ids


def read_nodes(path: Path, data: Any) -> Array:
    """Read the ids of nodes from a file, and return the node numbers (N,) int64 that the data set uses for them.

    Args:
        path: ``.npy`` (N,), or a table with the ids in its column ``id`` (or else its first column), as in the tables of the data set.
        data: the data set.

    Raises:
        InputError: the file cannot be read, or an id is unknown.
    """
    first, has_header = "", False
    try:
        if path.suffix == ".npy":
            given = np.array(map_npy(path))
        else:
            table = Table(path)
            column = "id" if "id" in table.names else table.names[0]
            first, has_header = table.doubted.get(column, ""), table.has_header
            given = _texts(table, column)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--nodes {path} cannot be read ({one_line(error)}): give a .npy, .csv, .txt or .parquet file of ids") from None
    return given if given.dtype != object and own_ids(data) is None else numbers_of(given, data, f"--nodes {path}", first, has_header)


def numbers_of(ids: Array, data: Any, source: str, first: str = "", has_header: bool = False) -> Array:
    """Return the node numbers (N,) int64 that a data set uses for ids (N,), which may be strings.

    Args:
        ids: ids as in the tables of the data set, or node numbers if it has no other ids.
        data: the data set.
        source: where the ids are from, for messages.
        first: first cell of a file, if it may be a column name or an id.
        has_header: True if ``first`` was read as a column name.

    Raises:
        InputError: an id is unknown, or ``first`` was read as a column name and is an id.
    """
    own = own_ids(data)
    number_of: Callable[[str], int | None] = _whole_number if own is None else {str(id): number for number, id in enumerate(own)}.get
    numbers = [number_of(str(id)) for id in ids]
    if has_header and number_of(first) is not None:
        raise InputError(
            f"{source} begins with {first}: it was read as a column name, but is also the id of a node; write the line id above it"
        )
    if None in numbers:
        wrong = str(ids[numbers.index(None)])
        remedy = "if it is a column name, replace it by id; else drop it" if wrong == first else "drop it"
        raise InputError(f"{source} has {wrong}: {data.name} has no node with this id; {remedy}")
    return np.array(numbers, np.int64)


def _whole_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _texts(table: Table, column: str) -> Array:
    """Return the values (N,) of a column as strings."""
    table.leave_out([name for name in table.names if name != column])
    return np.concatenate([np.empty(0, object), *(piece.columns[column] for piece in table.pieces({column: "key"}, BadRows()))])
