"""``hoptrain fit|validate|test|predict|export``: a ``LightningCLI`` with hoptrain's data modules, models and defaults."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from lightning_fabric.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, ModelSummary, OnExceptionCheckpoint
from pytorch_lightning.callbacks import ProgressBar as AnyProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.utilities.exceptions import SIGTERMException

from hoptrain import samplers
from hoptrain.engine import InputError
from hoptrain.engine.errors import printable
from hoptrain.engine.trace import check_trace_path, trace_path
from hoptrain.trainers.callbacks.callbacks import ProgressBar, Summary, ThroughputMonitor
from hoptrain.trainers.callbacks.interruption import raise_lost_interrupts
from hoptrain.trainers.callbacks.layer_options import LayerOption  # noqa: F401 - so that trainer.callbacks finds its subclasses by name
from hoptrain.trainers.callbacks.predictions import PredictionWriter, read_nodes
from hoptrain.trainers.callbacks.rank_watch import RankWatch, watch_launch
from hoptrain.trainers.callbacks.run_folder import make_loggers
from hoptrain.trainers.callbacks.run_report import RunReport
from hoptrain.trainers.callbacks.termination import Termination, say_terminated
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback
from hoptrain.trainers.commands import short_help
from hoptrain.trainers.commands.configs import with_run_config
from hoptrain.trainers.commands.parser import OptionParser, causes
from hoptrain.trainers.lightning_package import ignore_wrong_advice
from hoptrain.trainers.resume.checkpoints import (
    BestAndLast,
    CheckpointFiles,
    check_regular,
    keep_checkpoints_whole,
    last_checkpoint,
    resume_in_folders_of,
)
from hoptrain.trainers.tasks import TASKS, Task, TaskName, task_of
from hoptrain.trainers.tasks.options import check_folder, check_seed, check_share, check_trainer, check_trainer_options, unwritable
from hoptrain.trainers.tasks.shared_data import share_of
from hoptrain.trainers.watchdog.restarts import rejoin_process_group

_TASKS = f"the task, which determines the options of data and model: {', '.join(get_args(TaskName))}."
TRAINER_DEFAULTS: dict[str, Any] = {
    # hoptrain's loaders already shard data across ranks; Lightning's distributed sampler would shard it again.
    "use_distributed_sampler": False,
    # The sanity check would run layer-wise inference over the whole graph before training.
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 10,
    "default_root_dir": "runs",
}


class HoptrainCLI(LightningCLI):
    """A command line that parses the options, builds data module, model and trainer, and runs the subcommand."""

    def __init__(self, task: Task, command: str, about: str = "", *, all_options: bool = True, **options: Any) -> None:
        """Parse the command line and run the subcommand.

        Args:
            task: task whose data module and model are built.
            command: subcommand, such as ``fit``.
            about: first line of the subcommand's help.
            all_options: include rare options in the help.
            options: further arguments of ``LightningCLI``.
        """
        self._task = task
        self._command = command
        self._help = about, all_options
        super().__init__(*task.classes(), **options)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return only the requested subcommand, since building a parser takes a sixth of a second for each."""
        known = LightningCLI.subcommands()
        return {self._command: known.get(self._command, known["predict"])}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the model options whose values come from the data module, and add the checkpoint callback."""
        for source, target in self._task.from_data.items():
            if self._command == "predict" and source in ("num_classes", "is_multilabel"):  # the data may have no labels
                parser.link_arguments("data", f"model.{target}", self._label_size(source, target), apply_on="instantiate")
            else:
                parser.link_arguments(f"data.{source}", f"model.{target}", apply_on="instantiate")
        parser.add_lightning_class_args(BestAndLast, "checkpoint")
        parser.set_defaults({"checkpoint.monitor": f"val_{self._task.metric}", "checkpoint.mode": "max", "checkpoint.save_last": True})

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        # A checkpoint may come from an untrusted source, so only tensors and plain values are read, no pickled code.
        parser.set_defaults({"weights_only": True})
        name = next(name for name, task in TASKS.items() if task is self._task)
        parser.add_argument("--task", type=TaskName, default=name, metavar="NAME", help=_TASKS)
        if subcommand == "fit":
            parser.add_argument(
                "--timeline",
                type=str | None,
                help="file to write the times of each batch to, for chrome://tracing or Perfetto.",
            )
        else:
            parser.add_argument("--untrained", action="store_true", help="run without a checkpoint, with random weights.")
        if subcommand == "predict":
            parser.add_argument(
                "--nodes", type=str | None, help="file with the ids of the nodes to predict: .npy, .csv, .txt or .parquet; by default all."
            )
            parser.add_argument(
                "--out", type=str | None, help="file to write: .npy, .csv or .parquet; by default predictions.npy in the run's folder."
            )
        return parser

    def _label_size(self, source: str, target: str) -> Callable[[Any], Any]:
        """Return a function that computes from the data module a model option that depends on labels. A checkpoint's value takes precedence."""

        def label_size(module: Any) -> Any:
            path = self.config[self.subcommand].ckpt_path
            found = {} if path is None else CheckpointFiles().load_checkpoint(path, "cpu", True).get("hyper_parameters", {})
            if self._takes_last and getattr(module.data, "y", module) is None:
                raise InputError(
                    f"--ckpt_path is last, and {module.data.name} has no labels: the number of classes is that of the checkpoint; give its file"
                )
            return found[target] if found.get(target) else getattr(module, source)

        return label_size

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Shorten the help of the subcommand, and parse the options."""
        about, has_all = self._help
        if about:
            (short_help.describe if has_all else short_help.shorten)(
                parser._subcommands_action._name_parser_map[self._command], self._command, about
            )
        super().parse_arguments(parser, args)

    def _parse_ckpt_path(self) -> None:
        """Check that the checkpoint exists; ``last`` is resolved later. The model itself checks that the checkpoint has its sizes."""
        command, options = self.config.subcommand, self.config[self.config.subcommand]
        path, untrained = options.get("ckpt_path"), options.get("untrained", False)
        self._takes_last = False
        if command != "fit" and (path is None) != untrained:
            given = f"{command} with ckpt_path {path} and untrained" if untrained else f"{command} without a checkpoint"
            raise InputError(f"{given}: give either --ckpt_path (a file, or last), or --untrained for random weights")
        if path == "last":
            options.ckpt_path, self._takes_last = None, True  # resolved after the loggers have been built, since these determine the folder
        elif path is not None:
            check_regular(path)

    def _take_last_checkpoint(self) -> None:
        """Resume from the newest ``last.ckpt`` below the folders of trainer and logger, and write new checkpoints into its folder.

        If there is no ``last.ckpt``, ``fit`` starts a new run.
        """
        folders = {self.trainer.default_root_dir, *(logger.save_dir for logger in self.trainer.loggers[:1] if logger.save_dir)}
        if given := self.config[self.subcommand].checkpoint.dirpath:
            folders = {given}
        found = last_checkpoint(*folders, below="" if given else "**/checkpoints")
        where = " or ".join(sorted(folders))
        if found is None and self.subcommand != "fit":
            raise InputError(f"--ckpt_path is last, but {where} has no last.ckpt: give the path of a .ckpt file")
        if found is None:
            _print_rank_zero(f"hoptrain: {where} has no last.ckpt to resume from: a new run starts")
            return
        check_regular(found)
        self.config[self.subcommand].ckpt_path = self.config_init[self.subcommand].ckpt_path = found
        # Checkpoints go into the folder of the resumed run, or else Lightning would forget its best checkpoint.
        for callback in self.trainer.checkpoint_callbacks:
            if self.subcommand == "fit" and isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                callback.dirpath = os.path.dirname(found)
                warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")

    def _set_seed(self) -> None:
        check_seed(self.config[self.config.subcommand].seed_everything)
        super()._set_seed()

    def before_instantiate_classes(self) -> None:
        """Remove the trace file from the configuration before classes are built.

        Other commands reuse the configuration that the run saves, and must not overwrite the run's trace file.
        """
        options = self.config[self.subcommand]
        self._timeline: str | None = options.pop("timeline", None)
        self._out: str | None = options.get("out") if self.subcommand == "predict" else None

    def instantiate_classes(self) -> None:
        """Build data module, model and trainer, and find the checkpoint for ``--ckpt_path last``.

        Raises:
            InputError: a class needs a package that is not installed, such as the one of a logger's service, or the data do not fit.
        """
        try:
            super().instantiate_classes()
        except InputError:
            raise
        except ValueError as error:
            if (inner := next((cause for cause in causes(error) if isinstance(cause, InputError)), None)) is not None:
                raise inner from None
            missing = next((cause for cause in causes(error) if isinstance(cause, ImportError)), None)
            if missing is None:
                raise
            asked = re.search(r"class_path '([^']+)'", str(error))
            raise InputError(
                f"{asked[1] if asked else 'a class'} cannot be imported ({' '.join(str(missing).split())}): install the package"
            ) from error
        if self._takes_last:
            self._take_last_checkpoint()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the trainer with hoptrain's callbacks. Add a progress bar and loggers unless they are configured or disabled.

        Raises:
            InputError: a trainer option is invalid.
        """
        options = self.config_init[self.subcommand].trainer
        check_trainer_options(options)
        check_folder("checkpoint.dirpath", self.config_init[self.subcommand].checkpoint.dirpath)
        if self._out is not None:
            check_folder("--out", str(Path(self._out).absolute().parent))
        # The timeline comes before all other callbacks that run in a step, so that the step time excludes them.
        self._report = RunReport()
        callbacks: list[Callback] = [
            Termination(),
            BatchTraceCallback(self._timeline),
            ThroughputMonitor(),
            PredictionWriter(self._out),
            RankWatch(),
            self._report,
        ]
        given = options.callbacks if isinstance(options.callbacks, list) else [options.callbacks]
        if options.enable_progress_bar is not False and not any(isinstance(callback, AnyProgressBar) for callback in given):
            callbacks.append(ProgressBar())
        if options.enable_model_summary is not False and not any(isinstance(callback, ModelSummary) for callback in given):
            callbacks.append(Summary())
        self.trainer_defaults["callbacks"] = callbacks
        if options.logger in (None, True):
            kwargs["logger"] = make_loggers(options.default_root_dir)
        try:
            trainer: Trainer = super().instantiate_trainer(**kwargs)
        except (InputError, MisconfigurationException):
            raise
        except (
            ValueError,
            TypeError,
            ImportError,
        ) as error:  # raised, for example, for a device, accelerator or strategy that does not exist
            raise InputError(f"trainer: {' '.join(str(error).split())}") from error
        check_trainer(trainer)
        keep_checkpoints_whole(trainer)
        watch_launch(trainer)
        return trainer

    def before_fit(self) -> None:
        """Run checks before any rank is started, so that an error appears once and not on every rank."""
        if self._timeline is not None:
            check_trace_path(trace_path(Path(self._timeline), 0, self.trainer.world_size))
        self._check_pipeline()
        self.datamodule.trainer = self.trainer
        self.datamodule.make_loader(0, share_of(self.trainer)[1], self.datamodule.seed)
        if "test" in self.datamodule.data.splits:
            check_share("limit_test_batches", self.trainer.limit_test_batches, len(self.datamodule.test_dataloader()), "test")
        self._resume_after_an_exception()
        self._monitor_metric()
        if "val" not in (splits := self.datamodule.data.splits):
            self._checkpoint().monitor = None
            _print_rank_zero(
                f"hoptrain: no validation, and the last weights are kept: the data has no split named val (it has {', '.join(splits) or 'none'})"
            )
            warnings.filterwarnings("ignore", message="Total length of `DataLoader` across ranks is zero")
        rejoin_process_group(self.trainer)

    def _monitor_metric(self) -> None:
        """Set ``checkpoint.monitor`` to the model's metric, unless it is given. The metric may be an object, or the default of the data set."""
        monitor, kept = f"val_{self.model.score_name}", self._kept
        if kept is not None and kept.monitor == f"val_{self._task.metric}" != monitor:
            kept.set_monitor(monitor, self.model.monitor_mode)
            options = self.config[self.subcommand].checkpoint  # the configuration that is saved with the run
            options.monitor, options.mode = kept.monitor, kept.mode

    def _resume_after_an_exception(self) -> None:
        """If Lightning will resume from a file of ``OnExceptionCheckpoint``, log that, and write checkpoints into the folder of the interrupted run."""
        if self.config_init[self.subcommand].ckpt_path is not None:
            return
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, OnExceptionCheckpoint):
                warnings.filterwarnings("ignore", message=".*was called without a model|.*there is no last checkpoint available")
                if os.path.isfile(callback.ckpt_path):
                    _print_rank_zero(
                        f"hoptrain: resuming from {callback.ckpt_path}, written at an exception; remove the file to start a new run"
                    )
                    resume_in_folders_of(callback.ckpt_path, self.trainer)
                    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")

    def before_predict(self) -> None:
        """Choose the nodes to predict, and check the plan if a pipeline predicts."""
        if (nodes := self.config[self.subcommand].nodes) is not None:
            self.datamodule.predict_ids = read_nodes(Path(nodes), self.datamodule.data)
            self.datamodule.items_to_predict()
        self._check_pipeline()

    def _check_pipeline(self) -> None:
        """Check the plan of a pipeline, if the strategy is one."""
        if (check := getattr(self.trainer.strategy, "check", None)) is not None:
            check(self.model, self.trainer)

    def before_export(self) -> None:
        """Pass the sampler of the configuration to the exporter."""
        sampler = self.config[self.subcommand].data.get("sampler")
        self.trainer.sampler = None if sampler is None else sampler.as_dict()  # type: ignore[attr-defined]

    def after_fit(self) -> None:
        """Test the best checkpoint, print its metric, and print which files were written."""
        self._test_best()
        self._report.print_files(self.trainer)

    def _test_best(self) -> None:
        trainer = self.trainer
        # if EarlyStopping had ended the resumed run, it has logged what to change
        if trainer.loggers and trainer.global_step and not trainer.logged_metrics and not trainer.should_stop:
            _print_rank_zero(
                f"hoptrain: nothing left to train: the checkpoint is at the last step ({trainer.global_step}); raise --trainer.max_epochs to train on"
            )
        if self.trainer.interrupted or "test" not in self.datamodule.data.splits:
            return
        best = self._checkpoint().best_model_path or None
        if not trainer.global_step:
            remedy = "trainer.limit_train_batches is 0" if trainer.limit_train_batches == 0 else "raise --trainer.max_epochs"
            _print_rank_zero(f"hoptrain: no step was trained, so the initial weights are tested; {remedy}")
        results = self.trainer.test(self.model, datamodule=self.datamodule, ckpt_path=best, verbose=False, weights_only=True)
        if not results:
            _print_rank_zero("hoptrain: nothing was tested: trainer.limit_test_batches is 0")
        elif self.trainer.is_global_zero:
            print(f"test {self.model.score_title} {results[0][f'test_{self.model.score_name}']:.3f}", flush=True)

    @property
    def _kept(self) -> BestAndLast | None:
        """The callback that saves the best and the last checkpoint; None if checkpoints are disabled."""
        return next((callback for callback in self.trainer.checkpoint_callbacks if isinstance(callback, BestAndLast)), None)

    def _checkpoint(self) -> BestAndLast:
        if self._kept is None:
            raise InputError("trainer.enable_checkpointing is false: it must be true, since fit tests its best checkpoint; leave it out")
        return self._kept


@rank_zero_only
def _print_rank_zero(line: str) -> None:
    """Print a line on stderr, only on rank 0, whatever the log level."""
    print(printable(line), file=sys.stderr, flush=True)


class _StderrHandler(logging.Handler):
    """A log handler that prints hoptrain's records on stderr: warnings of all ranks, and information of rank 0."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.INFO or getattr(rank_zero_only, "rank", 0) == 0:
            print(printable(self.format(record), keep="\n\t"), file=sys.stderr, flush=True)


_STDERR_HANDLER = _StderrHandler(logging.INFO)

_SUPPRESSED = (
    "litlogger",  # a message that advertises a product
    "Seed set to",  # the seed is in the configuration
    "GPU available: ",
    "TPU available: ",
    "HPU available: ",
    "Trainer already configured with model summary",  # hoptrain adds its own model summary
    "Restoring states from the checkpoint path",  # "Restored all states" or "Loaded model weights" follow
    "` stopped: `max_",  # the expected end of a run; the log line about the bottleneck follows
)
"""Texts that occur in the messages of Lightning to suppress. The warning about an unused GPU contains none of them, so it is shown."""


def _is_shown(record: logging.LogRecord) -> bool:
    return not any(part in record.getMessage() for part in _SUPPRESSED)


def _is_from_lightning(error: Exception) -> bool:
    """Return whether Lightning itself raised the error, for example because options conflict with the data."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("pytorch_lightning.", "lightning_fabric.", "lightning."))


def configure_logging() -> None:
    """Show hoptrain's log records on stderr, and suppress messages of Lightning that a user of hoptrain cannot act on."""
    logger = logging.getLogger("hoptrain")
    logger.addHandler(_STDERR_HANDLER)  # a second call does not add the handler again
    logger.setLevel(logging.INFO)
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # these warnings concern Lightning, not the user
    for name in ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.seed", "lightning_utilities.core.rank_zero"):
        logger = logging.getLogger(import_module(name).__name__)  # the logger of lightning.pytorch, if that package is in use
        logger.addFilter(_is_shown)  # a second call does not add the filter again
    ignore_wrong_advice()
    for message in (
        "LightningCLI's args parameter",  # hoptrain itself passes the arguments
        "The dirpath has changed",  # each run has its own folder
        "The number of training batches",  # advice about the logging interval; metrics of epochs are logged in any case
        "Precision .* is not supported by the model summary",  # the summary then counts 4 bytes per parameter
    ):
        warnings.filterwarnings("ignore", message=message)


def run(arguments: list[str], about: str = "train a model, then test its best checkpoint") -> HoptrainCLI:
    """Run a subcommand and return the command line object with everything it built. ``about`` is the first line of its help."""
    configure_logging()
    raise_lost_interrupts()
    for name in samplers.__all__:  # imports the class: the parser accepts short names of imported classes only
        getattr(samplers, name)
    trainer_class = Trainer
    arguments = with_run_config(arguments)
    if arguments[0] == "export":
        from hoptrain.trainers.commands.export import Exporter, check_export  # torch.export takes a second to import

        check_export(arguments)
        trainer_class = Exporter
    try:
        return HoptrainCLI(
            task_of(arguments),
            arguments[0],
            about,
            all_options=short_help.ALL in arguments,
            trainer_class=trainer_class,
            trainer_defaults=dict(TRAINER_DEFAULTS),
            seed_everything_default=1,
            auto_configure_optimizers=False,
            parser_class=OptionParser,
            parser_kwargs={"prog": "hoptrain"},
            save_config_kwargs={"overwrite": True},  # needed without a logger, since runs then share a folder
            args=["--help" if argument == short_help.ALL else argument for argument in arguments],
        )
    except (MisconfigurationException, ValueError) as error:
        if isinstance(error, InputError) or not _is_from_lightning(error):
            raise
        text = " ".join(str(error).split())
        if "but you have set Trainer(max_epochs" in text:
            text = f"{text.rstrip('.')}: raise --trainer.max_epochs to the checkpoint's epoch or more, or give another checkpoint"
        raise InputError(text) from error
    except KeyError as error:
        if "checkpoint contains only the model" not in str(error):
            raise
        raise InputError(
            "the checkpoint has only weights, no training state (checkpoint.save_weights_only): give another checkpoint to resume from"
        ) from error
    except (SIGTERMException, RuntimeError) as error:
        if "Early stopping conditioned on metric" in str(error):  # Lightning detects an unknown metric only after the first epoch
            raise InputError(" ".join(str(error).split())) from error
        if not isinstance(error, SIGTERMException) and not Termination.asked:
            raise
        say_terminated()
        raise SystemExit(128 + signal.SIGTERM) from None
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # Ctrl+C: Lightning has cleaned up
            raise KeyboardInterrupt from None
        raise
    except OSError as error:
        raise unwritable(error) or error from error
