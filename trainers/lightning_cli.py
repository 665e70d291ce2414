"""``hoptrain fit|validate|test|predict``: LightningCLI with hoptrain's data, model and defaults."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from lightning_fabric.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_info
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from hoptrain.engine import InputError
from hoptrain.engine.trace import check_trace_path, trace_path
from hoptrain.trainers.callbacks import FeedMonitor, PredictionWriter, ProgressBar
from hoptrain.trainers.pipeline.strategy import PipelineStrategy
from hoptrain.trainers.rank_watch import RankWatch
from hoptrain.trainers.restarts import last_checkpoint, meet_again
from hoptrain.trainers.tasks import Task, TaskName, task_of
from hoptrain.trainers.termination import Termination, say_terminated
from hoptrain.trainers.timeline import TimelineMonitor

TRAINER_DEFAULTS: dict[str, Any] = {
    # The schedule gives each rank its own share already; a second sampler would divide it again.
    "use_distributed_sampler": False,
    # The sanity check would run exact inference over the whole graph before anything was learnt.
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 10,
    "default_root_dir": "runs",
}


class _Parser(LightningArgumentParser):
    """Reports a wrong option or configuration in one line, and takes no abbreviations: they would hide typing errors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, allow_abbrev=False)

    def error(self, message: str, ex: Exception | None = None) -> Any:
        raise InputError(f"{' '.join(message.split())}; 'hoptrain COMMAND --help' shows what is accepted")


class HoptrainCLI(LightningCLI):
    """Parses, builds data, model and trainer, and runs the subcommand."""

    def __init__(self, task: Task, **options: Any) -> None:
        """As ``LightningCLI``, which runs the command here; ``task`` says which classes it is about."""
        self._task = task
        super().__init__(*task.classes(), **options)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Sizes that the model takes from the data, and the checkpoint to keep."""
        for source, target in self._task.from_data.items():
            parser.link_arguments(f"data.{source}", f"model.{target}", apply_on="instantiate")
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults({"checkpoint.monitor": "val_acc", "checkpoint.mode": "max", "checkpoint.save_last": True})

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        # A checkpoint may come from elsewhere: tensors and plain values are read from it, no pickled code.
        parser.set_defaults({"weights_only": True})
        parser.add_argument(
            "--task", type=TaskName, default="nodes", help="What the run is about; it decides the options of data and model."
        )
        if subcommand == "fit":
            parser.add_argument(
                "--timeline",
                type=str | None,
                help="Write where the time of each batch goes to this file, for chrome://tracing or Perfetto.",
            )
        return parser

    def _parse_ckpt_path(self) -> None:
        """Find the last one, or look whether the file is there. The model compares its sizes with the checkpoint's."""
        options = self.config[self.config.subcommand]
        path = options.get("ckpt_path")
        self._go_on_in: str | None = None
        if path == "last":
            options.ckpt_path, self._go_on_in = self._last_checkpoint(options)
        elif path not in (None, "best", "hpc", "registry") and not Path(path).is_file():
            raise InputError(f"checkpoint {path} is not there: give the path of a .ckpt file that a run has written")

    def _last_checkpoint(self, options: Any) -> tuple[str | None, str | None]:
        """The newest ``last.ckpt`` of the runs in the folder, and where it lies; for fit nothing, where there is none yet."""
        folder = options.checkpoint.dirpath or f"{options.trainer.default_root_dir}/**/checkpoints"
        found = last_checkpoint(folder)
        if found is None and self.config.subcommand != "fit":
            raise InputError(f"no last.ckpt is in {folder}: give the path of a .ckpt file that a run has written")
        if found is None:
            rank_zero_info(f"no last.ckpt is in {folder} yet: training starts anew")
            return None, None
        return found, os.path.dirname(found)

    def before_instantiate_classes(self) -> None:
        """Take the timeline's file out of the configuration: the run's copy of it serves other commands, and must not write over the file."""
        self._timeline: str | None = self.config[self.subcommand].pop("timeline", None)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add the progress bar and the logs, unless they are switched off or given."""
        options = self.config_init[self.subcommand].trainer
        # Of those that do something in a step the timeline comes first, lest a step's time hold that of the others.
        callbacks: list[Callback] = [Termination(), TimelineMonitor(self._timeline), FeedMonitor(), PredictionWriter(), RankWatch()]
        if options.enable_progress_bar is not False:
            callbacks.append(ProgressBar())
        self.trainer_defaults["callbacks"] = callbacks
        if options.logger in (None, True):
            table = CSVLogger(options.default_root_dir, name="")
            kwargs["logger"] = [table, TensorBoardLogger(options.default_root_dir, name="", version=table.version)]
        return super().instantiate_trainer(**kwargs)

    def before_fit(self) -> None:
        """Check before any process is started what would otherwise fail in all of them."""
        if self._timeline is not None:
            check_trace_path(trace_path(Path(self._timeline), 0, self.trainer.world_size))
        strategy, world_size = self.trainer.strategy, self.trainer.world_size
        if isinstance(strategy, PipelineStrategy):
            strategy.check(self.model, self.trainer)
            world_size = strategy.plan.data
        self.datamodule.trainer = self.trainer
        self.datamodule.make_loader(0, world_size, self.datamodule.seed)
        if "val" not in self.datamodule.data.splits:
            self._checkpoint().monitor = None
        if self._go_on_in is not None:  # in the folder of the run that goes on, else its best checkpoint so far would be forgotten
            self._checkpoint().dirpath = self._go_on_in
            warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
        meet_again(self.trainer)

    def after_fit(self) -> None:
        """Test the best checkpoint and print the result as the last line."""
        if self.trainer.interrupted or "test" not in self.datamodule.data.splits:
            return
        best = self._checkpoint().best_model_path or None  # none was written by a run of no epochs
        results = self.trainer.test(self.model, datamodule=self.datamodule, ckpt_path=best, verbose=False, weights_only=True)
        if self.trainer.is_global_zero:
            print(f"test {self.model.score_title} {results[0]['test_acc']:.3f}", flush=True)

    def _checkpoint(self) -> ModelCheckpoint:
        checkpoint = self.trainer.checkpoint_callback
        if not isinstance(checkpoint, ModelCheckpoint):
            raise InputError("trainer.enable_checkpointing is off: fit keeps the best weights for its test; leave it on")
        return checkpoint


def quieten() -> None:
    """Drop what Lightning says that a user of hoptrain can do nothing about."""
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # between Lightning and jsonargparse
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(lambda record: "litlogger" not in record.getMessage())
    for message in (
        "LightningCLI's args parameter",  # hoptrain's own dispatch passes them
        "`isinstance\\(treespec, LeafSpec\\)`",  # between Lightning and torch
        "The '.*_dataloader' does not have many workers",  # evaluation loaders hold one list of vertices
        "Couldn't infer the batch indices",  # predictions are written in vertex order, not by batch
        "The dirpath has changed",  # each run has a folder of its own
        "The number of training batches",  # epoch figures are logged all the same
        "It is recommended to use `self.log",  # scores are those of all ranks when they are logged, times those of rank 0
    ):
        warnings.filterwarnings("ignore", message=message)


def run(arguments: list[str]) -> HoptrainCLI:
    """Run a subcommand with its options; what it built is in the result."""
    quieten()
    try:
        return HoptrainCLI(
            task_of(arguments),
            trainer_class=Trainer,
            trainer_defaults=dict(TRAINER_DEFAULTS),
            seed_everything_default=1,
            auto_configure_optimizers=False,
            parser_class=_Parser,
            parser_kwargs={"prog": "hoptrain"},
            args=arguments,
        )
    except MisconfigurationException as error:
        raise InputError(" ".join(str(error).split())) from error
    except (SIGTERMException, RuntimeError) as error:
        if not isinstance(error, SIGTERMException) and not Termination.asked:
            raise
        say_terminated()
        raise SystemExit(128 + signal.SIGTERM) from None
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # Lightning has tidied up
            raise KeyboardInterrupt from None
        raise
    except UnpicklingError as error:
        raise InputError("the checkpoint is damaged or holds more than weights and plain values: give one that hoptrain wrote") from error
