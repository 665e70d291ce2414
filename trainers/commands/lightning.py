"""``hoptrain fit|validate|test|predict``: LightningCLI with hoptrain's data, model and defaults."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

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
from hoptrain.trainers.callbacks.callbacks import NonFiniteLossMonitor, PredictionWriter, ProgressBar, Summary, ThroughputMonitor
from hoptrain.trainers.callbacks.interruption import raise_lost_interrupts
from hoptrain.trainers.callbacks.layer_options import LayerOption  # noqa: F401 - trainer.callbacks knows its subclasses by their names
from hoptrain.trainers.callbacks.rank_watch import RankWatch, watch_launch
from hoptrain.trainers.callbacks.run_folder import make_loggers
from hoptrain.trainers.callbacks.termination import Termination, say_terminated
from hoptrain.trainers.callbacks.timeline import BatchTraceCallback
from hoptrain.trainers.commands import short_help
from hoptrain.trainers.commands.parser import OptionParser, causes
from hoptrain.trainers.metrics import LOWER_IS_BETTER
from hoptrain.trainers.resume.checkpoints import BestAndLast, check_regular, keep_checkpoints_whole, last_checkpoint, resume_in_folders_of
from hoptrain.trainers.tasks import Task, TaskName, task_of
from hoptrain.trainers.tasks.options import check_folder, check_seed, check_share, check_trainer, check_trainer_options, no_room
from hoptrain.trainers.tasks.shared_data import share_of
from hoptrain.trainers.watchdog.restarts import rejoin_process_group

TRAINER_DEFAULTS: dict[str, Any] = {
    # The schedule gives each rank its own share already; a second sampler would divide it again.
    "use_distributed_sampler": False,
    # The sanity check would run exact inference over the whole graph before anything was learnt.
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 10,
    "default_root_dir": "runs",
}


class HoptrainCLI(LightningCLI):
    """Parses, builds data, model and trainer, and runs the subcommand."""

    def __init__(self, task: Task, command: str, about: str = "", *, all_options: bool = True, **options: Any) -> None:
        """As ``LightningCLI``, which runs the command here; ``task`` says which classes it is about, the others what its help shows."""
        self._task = task
        self._command = command
        self._help = about, all_options
        super().__init__(*task.classes(), **options)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The one that was typed: each takes a sixth of a second to describe."""
        known = LightningCLI.subcommands()
        return {self._command: known.get(self._command, known["predict"])}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Sizes that the model takes from the data, and the checkpoint to keep."""
        for source, target in self._task.from_data.items():
            parser.link_arguments(f"data.{source}", f"model.{target}", apply_on="instantiate")
        parser.add_lightning_class_args(BestAndLast, "checkpoint")
        parser.set_defaults({"checkpoint.monitor": f"val_{self._task.metric}", "checkpoint.mode": "max", "checkpoint.save_last": True})

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
        else:
            parser.add_argument(
                "--untrained", action="store_true", help="Run without a checkpoint, with weights that nothing was learnt by."
            )
        return parser

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """The options, after the help of the subcommand was made."""
        about, has_all = self._help
        if about:
            (short_help.describe if has_all else short_help.shorten)(
                parser._subcommands_action._name_parser_map[self._command], self._command, about
            )
        super().parse_arguments(parser, args)

    def _parse_ckpt_path(self) -> None:
        """Find the last one, or look whether the file is there. The model compares its sizes with the checkpoint's."""
        command, options = self.config.subcommand, self.config[self.config.subcommand]
        path, untrained = options.get("ckpt_path"), options.get("untrained", False)
        self._takes_last = False
        if command != "fit" and (path is None) != untrained:
            given = f"{command} with ckpt_path {path} and untrained" if untrained else f"{command} without a checkpoint"
            raise InputError(f"{given}: give --ckpt_path, a file or last; or --untrained alone, for weights that nothing was learnt by")
        if path == "last":
            options.ckpt_path, self._takes_last = None, True  # found once the loggers are made, since they name the folder
        elif path is not None:
            check_regular(path)

    def _take_last_checkpoint(self) -> None:
        """Resume from the newest ``last.ckpt`` of the runs below the trainer's and the logger's folder, and keep on writing beside it.

        Where there is none yet, fit starts a new run.
        """
        folders = {self.trainer.default_root_dir, *(logger.save_dir for logger in self.trainer.loggers[:1] if logger.save_dir)}
        if given := self.config[self.subcommand].checkpoint.dirpath:
            folders = {given}
        found = last_checkpoint(*folders, below="" if given else "**/checkpoints")
        where = " or ".join(sorted(folders))
        if found is None and self.subcommand != "fit":
            raise InputError(f"no last.ckpt is in {where}: give the path of a .ckpt file that a run has written")
        if found is None:
            _say(f"hoptrain: no last.ckpt is in {where} yet: training starts anew")
            return
        check_regular(found)
        self.config[self.subcommand].ckpt_path = self.config_init[self.subcommand].ckpt_path = found
        # In the folder of the run that is resumed, else its best checkpoint so far would be forgotten.
        for callback in self.trainer.checkpoint_callbacks:
            if self.subcommand == "fit" and isinstance(callback, ModelCheckpoint) and callback.dirpath is None:
                callback.dirpath = os.path.dirname(found)
                warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")

    def _set_seed(self) -> None:
        check_seed(self.config[self.config.subcommand].seed_everything)
        super()._set_seed()

    def before_instantiate_classes(self) -> None:
        """Take the timeline's file out of the configuration: the run's copy of it serves other commands, and must not write over the file.

        The best checkpoint is that of the model's score.
        """
        options = self.config[self.subcommand]
        self._timeline: str | None = options.pop("timeline", None)
        metric = options.model.get("metric")
        if metric not in (None, self._task.metric) and options.checkpoint.monitor == f"val_{self._task.metric}":
            options.checkpoint.monitor = f"val_{metric}"
            options.checkpoint.mode = "min" if metric in LOWER_IS_BETTER else "max"

    def instantiate_classes(self) -> None:
        """As ``LightningCLI``.

        Raises:
            InputError: a class needs a package that is not installed, as a logger its service's.
        """
        try:
            super().instantiate_classes()
        except InputError:
            raise
        except ValueError as error:
            missing = next((cause for cause in causes(error) if isinstance(cause, ImportError)), None)
            if missing is None:
                raise
            asked = re.search(r"class_path '([^']+)'", str(error))
            raise InputError(f"{asked[1] if asked else 'a class'} cannot be used: {' '.join(str(missing).split())}") from error
        if self._takes_last:
            self._take_last_checkpoint()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add the progress bar and the logs, unless they are switched off or given.

        Raises:
            InputError: what Lightning does not take.
        """
        options = self.config_init[self.subcommand].trainer
        check_trainer_options(options)
        check_folder("checkpoint.dirpath", self.config_init[self.subcommand].checkpoint.dirpath)
        # Of those that do something in a step the timeline comes first, lest a step's time hold that of the others.
        callbacks: list[Callback] = [
            Termination(),
            BatchTraceCallback(self._timeline),
            ThroughputMonitor(),
            NonFiniteLossMonitor(),
            PredictionWriter(),
            RankWatch(),
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
        ) as error:  # what it says of a device, an accelerator or a strategy that it does not have
            raise InputError(f"trainer: {' '.join(str(error).split())}") from error
        check_trainer(trainer)
        keep_checkpoints_whole(trainer)
        watch_launch(trainer)
        return trainer

    def before_fit(self) -> None:
        """Check before any process is started what would otherwise fail in all of them."""
        if self._timeline is not None:
            check_trace_path(trace_path(Path(self._timeline), 0, self.trainer.world_size))
        self.before_predict()
        self.datamodule.trainer = self.trainer
        self.datamodule.make_loader(0, share_of(self.trainer)[1], self.datamodule.seed)
        if "test" in self.datamodule.data.splits:
            check_share("limit_test_batches", self.trainer.limit_test_batches, len(self.datamodule.test_dataloader()), "test")
        self._resume_after_an_exception()
        kept = self._kept
        if kept is not None and kept.monitor == f"val_{self._task.metric}":  # nobody named a score: the data may have one
            kept.monitor = f"val_{self.model.score_name}"
        if "val" not in (splits := self.datamodule.data.splits):
            self._checkpoint().monitor = None
            _say(f"no split is named val (there are {', '.join(splits) or 'none'}): nothing is validated, and the last weights are kept")
            warnings.filterwarnings("ignore", message="Total length of `DataLoader` across ranks is zero")
        rejoin_process_group(self.trainer)

    def _resume_after_an_exception(self) -> None:
        """Name the file that Lightning resumes from where ``OnExceptionCheckpoint`` finds one and no checkpoint is given; keep the run's folder."""
        if self.config_init[self.subcommand].ckpt_path is not None:
            return
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, OnExceptionCheckpoint):
                warnings.filterwarnings("ignore", message=".*was called without a model|.*there is no last checkpoint available")
                if os.path.isfile(callback.ckpt_path):
                    _say(
                        f"hoptrain: the run resumes from {callback.ckpt_path}, which an exception left; remove the file to begin a new run"
                    )
                    resume_in_folders_of(callback.ckpt_path, self.trainer)
                    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")

    def before_predict(self) -> None:
        """Check whether a pipeline's plan can be carried out."""
        if (check := getattr(self.trainer.strategy, "check", None)) is not None:
            check(self.model, self.trainer)

    def before_export(self) -> None:
        """Tell how the configuration names the sampler."""
        sampler = self.config[self.subcommand].data.get("sampler")
        self.trainer.sampler = None if sampler is None else sampler.as_dict()  # type: ignore[attr-defined]

    def after_fit(self) -> None:
        """Test the best checkpoint and print the result as the last line."""
        trainer = self.trainer
        if trainer.loggers and trainer.global_step and not trainer.logged_metrics:
            _say(f"no step was left to train: the checkpoint is at step {trainer.global_step}, the end; --trainer.max_epochs asks for more")
        if self.trainer.interrupted or "test" not in self.datamodule.data.splits:
            return
        best = self._checkpoint().best_model_path or None
        if not trainer.global_step:
            remedy = "--trainer.limit_train_batches is 0" if trainer.limit_train_batches == 0 else "--trainer.max_epochs asks for more"
            _say(f"no step was trained: the score is of the weights that the model began with; {remedy}")
        results = self.trainer.test(self.model, datamodule=self.datamodule, ckpt_path=best, verbose=False, weights_only=True)
        if not results:
            _say("trainer.limit_test_batches is 0: nothing was tested")
        elif self.trainer.is_global_zero:
            print(f"test {self.model.score_title} {results[0][f'test_{self.model.score_name}']:.3f}", flush=True)

    @property
    def _kept(self) -> BestAndLast | None:
        """The checkpoints that the run's monitor chooses, whatever other callbacks write; None of a run that keeps none."""
        return next((callback for callback in self.trainer.checkpoint_callbacks if isinstance(callback, BestAndLast)), None)

    def _checkpoint(self) -> BestAndLast:
        if self._kept is None:
            raise InputError("trainer.enable_checkpointing is off: fit keeps the best weights for its test; leave it on")
        return self._kept


@rank_zero_only
def _say(line: str) -> None:
    """A line for the user, whatever the level of the logs."""
    print(printable(line), file=sys.stderr, flush=True)


class _Teller(logging.Handler):
    """Tells on stderr what hoptrain's modules log: warnings, and of rank 0 also what is no more than news, such as what a cache brings."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.INFO or getattr(rank_zero_only, "rank", 0) == 0:
            print(printable(self.format(record), keep="\n\t"), file=sys.stderr, flush=True)


_TELLER = _Teller(logging.INFO)

_CHATTER = (
    "litlogger",  # an advertisement
    "Seed set to",  # stands in the configuration
    "GPU available: ",
    "TPU available: ",
    "HPU available: ",
    "Trainer already configured with model summary",  # hoptrain's own
    "Restoring states from the checkpoint path",  # "Restored all states" or "Loaded model weights" follow
    "` stopped: `max_",  # as it was told to; the line of the bottleneck follows
)
"""Parts of Lightning's messages that do not help; that a GPU lies idle is another one, a warning."""


def _is_news(record: logging.LogRecord) -> bool:
    return not any(part in record.getMessage() for part in _CHATTER)


def _is_lightnings(error: Exception) -> bool:
    """Return whether Lightning's own code raised the error, as it does for options that do not go with the data."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("pytorch_lightning.", "lightning_fabric."))


def quieten() -> None:
    """Drop what Lightning says that a user of hoptrain can do nothing about; let hoptrain's own messages be seen."""
    logger = logging.getLogger("hoptrain")
    logger.addHandler(_TELLER)  # the same one again is not added
    logger.setLevel(logging.INFO)
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # between Lightning and jsonargparse
    for name in ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.seed", "lightning_utilities.core.rank_zero"):
        logging.getLogger(name).addFilter(_is_news)  # the same one again is not added
    for message in (
        "LightningCLI's args parameter",  # hoptrain's own dispatch passes them
        "`isinstance\\(treespec, LeafSpec\\)`",  # between Lightning and torch
        "The '.*_dataloader' does not have many workers",  # evaluation loaders hold one list of nodes
        "Couldn't infer the batch indices",  # predictions are written in node order, not by batch
        "The dirpath has changed",  # each run has a folder of its own
        "The number of training batches",  # epoch figures are logged all the same
        "Precision .* is not supported by the model summary",  # which counts bytes as of float32 then
        "It is recommended to use `self.log",  # scores are those of all ranks when they are logged, times those of rank 0
    ):
        warnings.filterwarnings("ignore", message=message)


def run(arguments: list[str], about: str = "train, then test the best checkpoint") -> HoptrainCLI:
    """Run a subcommand with its options; what it built is in the result. ``about`` is what its help begins with."""
    quieten()
    raise_lost_interrupts()
    for name in samplers.__all__:  # the parser takes the short name of a class that was imported
        getattr(samplers, name)
    trainer_class = Trainer
    if arguments[0] == "export":
        from hoptrain.trainers.commands.export import Exporter, with_run_config  # what it needs of torch takes a second to import

        trainer_class, arguments = Exporter, with_run_config(arguments)
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
            save_config_kwargs={"overwrite": True},  # without a logger runs share a folder
            args=["--help" if argument == short_help.ALL else argument for argument in arguments],
        )
    except (MisconfigurationException, ValueError) as error:
        if isinstance(error, InputError) or not _is_lightnings(error):
            raise
        text = " ".join(str(error).split())
        if "but you have set Trainer(max_epochs" in text:
            text = f"{text.rstrip('.')}: give --trainer.max_epochs of the checkpoint's epoch or more, or another checkpoint"
        raise InputError(text) from error
    except KeyError as error:
        if "checkpoint contains only the model" not in str(error):
            raise
        raise InputError(
            "the checkpoint holds the weights alone, as checkpoint.save_weights_only asks for: resume from another one"
        ) from error
    except (SIGTERMException, RuntimeError) as error:
        if "Early stopping conditioned on metric" in str(error):  # Lightning learns what is logged in the first epoch
            raise InputError(" ".join(str(error).split())) from error
        if not isinstance(error, SIGTERMException) and not Termination.asked:
            raise
        say_terminated()
        raise SystemExit(128 + signal.SIGTERM) from None
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):  # Lightning has tidied up
            raise KeyboardInterrupt from None
        raise
    except OSError as error:
        raise no_room(error) or error from error
