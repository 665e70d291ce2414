"""What a run shows and leaves behind."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import BasePredictionWriter, ModelSummary, RichProgressBar
from pytorch_lightning.callbacks.progress.rich_progress import CustomTimeColumn, ProcessingSpeedColumn, RichProgressBarTheme
from rich import get_console
from rich.progress import BarColumn, TimeElapsedColumn
from rich.table import Table

from hoptrain.engine.storage.filler import Filled
from hoptrain.samplers.loader.epochs import EpochLoader

_log = logging.getLogger(__name__)
_SHOWN = {
    "wait_%": ("wait", "{:.0f}%"),
    "hit_%": ("hit", "{:.0f}%"),
    "queue": ("queue", "{:.0f}"),
    "train_loss": ("loss", "{:.3g}"),
}
"""What the progress bar shows of what is logged, beside the validation's score: its name there, and how it is written."""
_EVERY_S = 0.1
"""Seconds between two figures of ``ThroughputMonitor``: Lightning's bookkeeping of one costs up to a millisecond, and the bar is drawn no more often."""


class ThroughputMonitor(Callback):
    """Shows whether data or computing is the bottleneck: sampled edges per second of this rank, and the share of time spent waiting.

    ``Medges/s`` counts the edges of the blocks trained on; ``wait_%`` is the time between asking for a batch and having it. Both are taken over
    an epoch so far, without the run's first batch, as by ``BatchTraceCallback``: its wait holds the start of the workers. ``queue``, with workers, is the
    number of batches that lay ready behind the last one when it was taken. ``hit_%``, with features beyond memory, is the share of the rows that did
    not have to be read from the disk. The figures are those of 0.1 s ago at most.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import ThroughputMonitor, NodeDataModule, NeighborSampler, NodeClassifier
        >>> data = NodeDataModule("digits-knn", NeighborSampler([5, 5]), num_workers=0, seed=1)
        >>> trainer = Trainer(callbacks=[ThroughputMonitor()], fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(NodeClassifier(data.num_features, data.num_classes, data.num_hops), data)
        >>> {"Medges/s", "wait_%"} <= set(trainer.callback_metrics)  # what the progress bar shows beside the loss
        True
    """

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start the clock: a run that goes on in the middle of an epoch does not start that one."""
        self._is_first, self._told_s = True, -math.inf
        self._begin = (time.perf_counter(), *self._feed(trainer))

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start the clock anew; an epoch's first batch is asked for after this."""
        self._begin = (time.perf_counter(), *self._feed(trainer))
        self._told_s = -math.inf  # Lightning forgets the figures of an epoch when it ends

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *args: Any) -> None:
        """Put the figures into the progress bar and the logs; other loaders than hoptrain's have none."""
        loader = trainer.train_dataloader
        if not isinstance(loader, EpochLoader):
            return
        if self._is_first:
            self._is_first = False
            self._begin = (time.perf_counter(), *self._feed(trainer))
            return
        now = time.perf_counter()
        if now - self._told_s < _EVERY_S:
            return
        self._told_s = now
        begin_s, begin_wait, begin_edges, begin_rows = self._begin
        wait, edges, rows = self._feed(trainer)
        elapsed = max(now - begin_s, 1e-9)
        figures = {"wait_%": 100 * (wait - begin_wait) / elapsed}
        if edges > begin_edges:
            figures["Medges/s"] = (edges - begin_edges) / elapsed / 1e6
        if loader.num_workers:
            figures["queue"] = float(loader.num_ready)
        if (used := (read := rows.minus(begin_rows)).num_used) > 0:
            figures["hit_%"] = 100 * (1 - read.num_missed / used)
        # Of numbers Lightning would make tensors on the model's device: a GPU would be waited for to write each of them, and to read it.
        module.log_dict({name: torch.tensor(figure, device="cpu") for name, figure in figures.items()}, prog_bar=True, batch_size=1)

    @staticmethod
    def _feed(trainer: Trainer) -> tuple[float, int, Filled]:
        loader = trainer.train_dataloader
        tier = getattr(loader, "tier", None)
        filled = Filled() if tier is None else tier.filled
        return (loader.wait_s, loader.num_sampled_edges, filled) if isinstance(loader, EpochLoader) else (0.0, 0, filled)


class ProgressBar(RichProgressBar):
    """Lightning's bar, with few figures in few characters: one line on 80 columns.

    In a notebook it is a line of text in the cell, which needs no widgets: rich's own bar shows nothing there without them.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import ThroughputMonitor, ProgressBar
        >>> trainer = Trainer(callbacks=[ProgressBar(), ThroughputMonitor()], logger=False, enable_checkpointing=False)
        >>> type(trainer.progress_bar_callback).__name__  # in place of Lightning's; ThroughputMonitor adds Medges/s and wait_% to the line
        'ProgressBar'
    """

    def __init__(self) -> None:
        """Two blanks stand between figures."""
        super().__init__(theme=RichProgressBarTheme(metrics_text_delimiter="  "))
        self._in_notebook = get_console().is_jupyter
        self._cell: Any = None  # the line in the notebook's cell
        self._told_s = 0.0
        if self._in_notebook:
            self.disable()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """As Lightning's; in a notebook a new line a few times a second, and for the last batch of an epoch."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        done, total = batch_idx + 1, self.total_train_batches
        if self._in_notebook and trainer.is_global_zero and (done == total or time.monotonic() - self._told_s > 0.25):
            self._tell(trainer, pl_module, f"batch {done}/{total}")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """As Lightning's; in a notebook the line with the epoch's scores."""
        super().on_train_epoch_end(trainer, pl_module)
        if self._in_notebook and trainer.is_global_zero:
            self._tell(trainer, pl_module, "done")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """As Lightning's; the next training has a line of its own."""
        super().on_train_end(trainer, pl_module)
        self._cell = None

    def _tell(self, trainer: Trainer, module: LightningModule, place: str) -> None:
        from IPython.display import display  # there in every notebook

        figures = "  ".join(f"{name}: {value}" for name, value in self.get_metrics(trainer, module).items())
        line = {"text/plain": f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  {place}  {figures}"}
        self._told_s = time.monotonic()
        if self._cell is None:
            self._cell = display(line, raw=True, display_id=True)
        else:
            self._cell.update(line, raw=True)

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """A short bar leaves room for figures; where these had none, it goes, and the speed, since batches and seconds tell both."""
        columns = list(super().configure_columns(trainer))
        if not get_console().encoding.startswith(
            "utf"
        ):  # Lightning writes a dot between two times that ASCII lacks; rich's bars are ASCII there
            columns = [TimeElapsedColumn() if isinstance(column, CustomTimeColumn) else column for column in columns]
        if get_console().width < 100:
            return [column for column in columns if not isinstance(column, (BarColumn, ProcessingSpeedColumn))]
        for column in columns:
            if isinstance(column, BarColumn):
                column.bar_width = 8
        return columns

    def _get_train_description(self, current_epoch: int) -> str:
        """Epochs are counted from one, as ``max_epochs`` does: Lightning's last of two is 1/1."""
        last = self.trainer.max_epochs
        return f"Epoch {current_epoch + 1}" + (f"/{last}" if last is not None and last > 0 else "")

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """The figures as they are shown."""
        metrics = super().get_metrics(trainer, pl_module)
        shown = _SHOWN | {f"val_{getattr(pl_module, 'score_name', 'acc')}": ("val", "{:.3f}")}
        left_out = "queue" if "hit_%" in metrics else ""  # a line has no room for both
        return {name: text.format(metrics[key]) for key, (name, text) in shown.items() if key in metrics and key != left_out}


class NonFiniteLossMonitor(Callback):
    """Says once that the training's loss is no number any more. It looks where loggers read the loss anyway, and at an epoch's end."""

    def setup(self, trainer: Trainer, module: LightningModule, stage: str) -> None:
        """Nothing was said yet."""
        self._has_said = False

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Look at the step's loss, at the steps that are logged."""
        every = getattr(trainer, "log_every_n_steps", 0)  # which its stubs do not know
        if every and trainer.global_step % every == 0:
            self._look(trainer, "train_loss_step")

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Look at the loss of the epoch before."""
        self._look(trainer, "train_loss")

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Look at the last epoch's loss."""
        self._look(trainer, "train_loss")

    def _look(self, trainer: Trainer, name: str) -> None:
        loss = None if self._has_said else trainer.callback_metrics.get(name)
        if loss is not None and not math.isfinite(loss):
            self._has_said = True
            _log.warning(
                f"the loss is no finite number at step {trainer.global_step}: the weights are lost; give a lower lr, or "
                "trainer.gradient_clip_val, and look for features and targets that are very large"
            )


class Summary(ModelSummary):
    """Lightning's table of the model's parts, without operations: it counts those of an example input, which a model on blocks has not."""

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]], total_parameters: int, trainable_parameters: int, model_size: float, *_: Any, **__: Any
    ) -> None:
        """Print it."""
        columns = {name: cells for name, cells in summary_data if name in ("Name", "Type", "Params")}
        table = Table(*columns)
        for row in zip(*columns.values(), strict=True):
            if row[-1].strip() != "0":  # metrics and the like
                table.add_row(*row)
        get_console().print(table)
        fixed = total_parameters - trainable_parameters
        print(f"{total_parameters:,} parameters{f', {fixed:,} of them fixed' if fixed else ''}, {model_size:.3g} MB", flush=True)


class PredictionWriter(BasePredictionWriter):
    """Writes ``predictions.npy``: (N, C) float32 scores of all nodes (or images, or graphs), or their vectors, in their order."""

    def __init__(self) -> None:
        """Write once, at the end."""
        super().__init__(write_interval="epoch")

    def write_on_epoch_end(self, trainer: Trainer, module: LightningModule, predictions: Sequence[Any], batch_indices: Any) -> None:
        """Collect the ranks' shares, which are contiguous and in order; rank 0 writes."""
        mine = torch.cat([part for part in predictions if len(part)] or [torch.empty(0)])
        parts: list[Any] = [mine]
        if trainer.world_size > 1:
            parts = [None] * trainer.world_size
            torch.distributed.all_gather_object(parts, mine)
        folder = Path(trainer.log_dir or trainer.default_root_dir)  # asked for on every rank, since it is broadcast
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / "predictions.npy", torch.cat([part for part in parts if len(part)]).numpy(), allow_pickle=False)
            print(f"{getattr(module, 'predicted', 'all scores')}, in order: {folder / 'predictions.npy'}")
