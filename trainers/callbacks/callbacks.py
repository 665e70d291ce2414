"""Callbacks that show a run: throughput, progress bar and summary."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelSummary, RichProgressBar
from pytorch_lightning.callbacks.progress.rich_progress import CustomTimeColumn, ProcessingSpeedColumn, RichProgressBarTheme
from rich import get_console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.table import Table
from rich.text import Text

from hoptrain.engine.storage.filler import Filled
from hoptrain.samplers.loader.epochs import EpochLoader

_SHOWN = {
    "wait_%": ("wait", "{:.0f}%"),
    "hit_%": ("hit", "{:.0f}%"),
    "queue": ("queue", "{:.0f}"),
    "train_loss": ("loss", "{:.3g}"),
}
"""Values that the progress bar shows in addition to the validation metric: logged name -> (name in the bar, format)."""
_EVERY_S = 0.1
"""Seconds between two updates of ``ThroughputMonitor``. An update costs up to a millisecond in Lightning, and the progress bar is not redrawn more often."""


class ThroughputMonitor(Callback):
    """A callback that logs the throughput of sampling and the time spent waiting for batches, to show whether data or compute is the bottleneck.

    It logs these values for the current epoch, on each rank, and updates them every 0.1 s:

    * ``Medges/s``: millions of edges per second in the blocks trained on.
    * ``wait_%``: percentage of the time spent waiting for batches. The run's first batch is excluded, since its wait includes the start of workers.
    * ``queue``: with workers, the number of batches that were ready when the last batch was taken.
    * ``hit_%``: with out-of-core features, the percentage of feature rows that were found in the cache and not read from disk.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import ThroughputMonitor, NodeDataModule, NeighborSampler, NodeClassifier
        >>> data = NodeDataModule("digits-knn", NeighborSampler([5, 5]), num_workers=0, seed=1)
        >>> trainer = Trainer(callbacks=[ThroughputMonitor()], fast_dev_run=2, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(NodeClassifier(data.num_features, data.num_classes, data.num_hops), data)
        >>> {"Medges/s", "wait_%"} <= set(trainer.callback_metrics)  # shown in the progress bar in addition to the loss
        True
    """

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start the clock. If a run resumes in the middle of an epoch, Lightning does not call ``on_train_epoch_start`` for that epoch."""
        self._is_first, self._told_s = True, -math.inf
        self._begin = (time.perf_counter(), *self._feed(trainer))

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Restart the clock, before the epoch's first batch is requested."""
        self._begin = (time.perf_counter(), *self._feed(trainer))
        self._told_s = -math.inf  # Lightning drops the values of an epoch when it ends

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *args: Any) -> None:
        """Log the values and show them in the progress bar, if the loader is one of hoptrain's."""
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
        # CPU tensors, since Lightning would move plain numbers to the GPU and synchronise with it for each.
        module.log_dict({name: torch.tensor(figure, device="cpu") for name, figure in figures.items()}, prog_bar=True, batch_size=1)

    @staticmethod
    def _feed(trainer: Trainer) -> tuple[float, int, Filled]:
        loader = trainer.train_dataloader
        cache = getattr(loader, "feature_cache", None)
        filled = Filled() if cache is None else cache.filled
        return (loader.wait_s, loader.num_sampled_edges, filled) if isinstance(loader, EpochLoader) else (0.0, 0, filled)


class ProgressBar(RichProgressBar):
    """A rich progress bar with few, short values, so that it fits on one line of 80 columns.

    In a notebook the bar is a line of text below the cell, since Rich's own bar needs ipywidgets there. If the output is not a terminal, for example a
    file, the callback prints one line per epoch.

    Examples:
        >>> from pytorch_lightning import Trainer
        >>> from hoptrain import ThroughputMonitor, ProgressBar
        >>> trainer = Trainer(callbacks=[ProgressBar(), ThroughputMonitor()], logger=False, enable_checkpointing=False)
        >>> type(trainer.progress_bar_callback).__name__  # replaces Lightning's; ThroughputMonitor adds Medges/s and wait_% to the line
        'ProgressBar'
    """

    def __init__(self) -> None:
        """Create the bar, with two spaces between values."""
        super().__init__(theme=RichProgressBarTheme(metrics_text_delimiter="  "))
        self._in_notebook = get_console().is_jupyter
        self._cell: Any = None  # handle of the line that is displayed in the notebook's cell
        self._told_s = self._begin_s = 0.0
        self._ended: tuple[int, float] | None = None  # number and seconds of an epoch whose metrics were not shown yet
        if self._in_notebook or not get_console().is_terminal:
            self.disable()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the bar and the epoch's clock. If a run resumes in the middle of an epoch, Lightning does not call ``on_train_epoch_start`` for that epoch."""
        super().on_train_start(trainer, pl_module)
        self._begin_s = time.monotonic()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the epoch's bar and clock."""
        self._show_epoch(trainer, pl_module)
        super().on_train_epoch_start(trainer, pl_module)
        self._begin_s = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Update the bar. In a notebook, update it only a few times a second and after the last batch of an epoch."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        done, total = batch_idx + 1, self.total_train_batches
        if self._in_notebook and trainer.is_global_zero and (done == total or time.monotonic() - self._told_s > 0.25):
            self._tell(self._line(trainer, pl_module, trainer.current_epoch, f"batch {done}/{total}"))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Update the bar. Lightning logs the epoch's loss only after this hook, so a notebook or a file shows it at the next hook."""
        super().on_train_epoch_end(trainer, pl_module)
        self._ended = trainer.current_epoch, time.monotonic() - self._begin_s

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Finish the bar and show the loss of the last epoch. A later ``fit`` in the same notebook cell starts a new line."""
        self._show_epoch(trainer, pl_module)
        self._update_metrics(trainer, pl_module)
        self.refresh()
        super().on_train_end(trainer, pl_module)
        self._cell = None

    def _show_epoch(self, trainer: Trainer, module: LightningModule) -> None:
        """Print the metrics of the epoch that has ended, if the output is a notebook or a file."""
        ended, self._ended = self._ended, None
        if ended is None or not trainer.is_global_zero:
            return
        epoch, seconds = ended
        if self._in_notebook:
            self._tell(self._line(trainer, module, epoch, "done"))
        elif self.is_disabled:
            print(self._line(trainer, module, epoch, f"{seconds:.1f} s"), flush=True)

    def _line(self, trainer: Trainer, module: LightningModule, epoch: int, place: str) -> str:
        figures = [f"{name}: {value}" for name, value in self.get_metrics(trainer, module).items()]
        return "  ".join([self._get_train_description(epoch).lower(), place, *figures])

    def _tell(self, text: str) -> None:
        from IPython.display import display  # IPython is installed wherever notebooks run

        line = {"text/plain": text}
        self._told_s = time.monotonic()
        if self._cell is None:
            self._cell = display(line, raw=True, display_id=True)
        else:
            self._cell.update(line, raw=True)

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """Return the columns of the bar, short enough to leave space for values. Terminals below 100 columns get batches and seconds, but no bar and speed."""
        is_narrow = get_console().width < 100
        columns = [_Times(is_narrow) if isinstance(column, CustomTimeColumn) else column for column in super().configure_columns(trainer)]
        if is_narrow:
            return [column for column in columns if not isinstance(column, (BarColumn, ProcessingSpeedColumn))]
        for column in columns:
            if isinstance(column, BarColumn):
                column.bar_width = 8
        return columns

    def _get_train_description(self, current_epoch: int) -> str:
        """Return the label of the epoch, counted from one: the last of two epochs is 2/2 (Lightning shows 1/1)."""
        last = self.trainer.max_epochs
        return f"Epoch {current_epoch + 1}" + (f"/{last}" if last is not None and last > 0 else "")

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the formatted values that the bar shows, by short name."""
        metrics = super().get_metrics(trainer, pl_module)
        score = getattr(pl_module, "score_name", "acc")
        shown = _SHOWN | {f"val_{score}": (f"val {score}", "{:.3f}")}
        left_out = "queue" if "hit_%" in metrics else ""  # a line has no space for both queue and hit_%
        return {name: text.format(metrics[key]) for key, (name, text) in shown.items() if key in metrics and key != left_out}


class _Times(ProgressColumn):
    """A column with the elapsed and the remaining time of the epoch. If the column is narrow, it shows only the remaining time until the epoch ends."""

    max_refresh = 0.5

    def __init__(self, is_narrow: bool) -> None:
        super().__init__()
        self._is_narrow = is_narrow

    def render(self, task: Task) -> Text:
        elapsed, left = task.finished_time if task.finished else task.elapsed, task.time_remaining
        times = {"elapsed": elapsed, "left": left}
        shown = ["elapsed" if task.finished else "left"] if self._is_narrow else [*times]
        return Text(", ".join(f"{_clock(times[name])} {name}" for name in shown))


def _clock(seconds: float | None) -> str:
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))


class Summary(ModelSummary):
    """A callback that prints a table of the model's modules. It omits Lightning's columns of sizes and FLOPs, which need an example input."""

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]], total_parameters: int, trainable_parameters: int, model_size: float, *_: Any, **__: Any
    ) -> None:
        """Print the table, without modules that have no parameters, and the number of parameters."""
        columns = {name: cells for name, cells in summary_data if name in ("Name", "Type", "Params")}
        table = Table(*columns)
        for row in zip(*columns.values(), strict=True):
            if row[-1].strip() != "0":  # leaves out metrics and other modules without parameters
                table.add_row(*row)
        get_console().print(table)
        fixed = total_parameters - trainable_parameters
        print(f"{total_parameters:,} parameters{f', {fixed:,} of them frozen' if fixed else ''}, {model_size:.3g} MB", flush=True)
