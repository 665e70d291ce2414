"""A run that goes on from a checkpoint goes on bit for bit: what Lightning's checkpoints lack is added to them, and put back.

Added are the place in the training (``place.py``), each rank's share of the epoch's figures and what its model keeps beside the weights, half-summed
gradients, and the figures that schedulers and stopping rules watch. The data module attaches this callback to its trainer.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import pytorch_lightning.callbacks
import torch
from lightning_utilities.core.rank_zero import rank_zero_info
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping, StochasticWeightAveraging
from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from hoptrain.engine import InputError
from hoptrain.engine.errors import explain_hint
from hoptrain.trainers.resume.place import After, Place, place_of, write_counters

_KEY = "hoptrain"
_WeightAveraging: Any = getattr(pytorch_lightning.callbacks, "WeightAveraging", ())
"""Lightning 2.5 has none."""


@runtime_checkable
class Stateful(Protocol):
    """A model with more than weights: figures of the epoch so far, tables that its batches fill."""

    def commit(self) -> None:
        """Take over what the last batch changed. Called when the batch is done, so that one that was interrupted leaves no trace."""

    def rank_state(self) -> dict[str, Tensor]:
        """What this rank keeps beside the weights, by name."""

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Take it back."""


class ExactResume(Callback):
    """Notes what is under way, and completes checkpoints by it.

    Attributes:
        is_swapped: whether callbacks that average weights have exchanged them for the averages, for a validation.
    """

    def __init__(self) -> None:
        """Know of no run."""
        self._saved: dict[str, Any] | None = None
        self._schedulers: list[Any] = []
        self._patience: dict[EarlyStopping, int] = {}
        self._asked_to_accumulate = 1
        self.is_swapped = False
        self._fails_alone = False
        self._has_buffers = False
        self._forget()

    def _forget(self) -> None:
        self._after: After = "nothing"
        self._counted = 0
        self._is_stepping = False
        self._before: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}

    def attach(self, trainer: Trainer) -> None:
        """Enter the trainer's callbacks: before the others, which may write checkpoints, and where a run is resumed also after them."""
        trainer.callbacks[:] = [self, *trainer.callbacks, _AfterOthers(self)]  # type: ignore[attr-defined]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse to average what is no weight.

        Raises:
            InputError: a callback is to average buffers that the batches fill, such as the nodes' memory.
        """
        tables = getattr(pl_module, "tables_of_rank", ())
        for callback in _weight_averages(trainer):
            if tables and callback._use_buffers:
                raise InputError(
                    f"{type(callback).__name__} averages buffers, and the buffer {tables[0]} of {type(pl_module).__name__} holds what batches "
                    "wrote, no weights: give it use_buffers: false"
                )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget an earlier run."""
        self._forget()
        self._has_buffers = bool(_persistent_buffers(pl_module))
        self._counted = trainer.fit_loop.epoch_loop._batches_that_stepped
        self._asked_to_accumulate = trainer.accumulate_grad_batches

    def resume(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on where the checkpoint was written. All callbacks have had ``on_train_start``, in which some check what is set here."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        place = Place(**saved["place"])
        trainer._logger_connector._callback_metrics.update(saved["watched"])
        asked, used = saved.get("accumulate", (None, None))
        if place.begun and asked == trainer.accumulate_grad_batches:  # else this run is to accumulate otherwise
            trainer.accumulate_grad_batches = used  # a callback may have set it when the epoch began
        self._load_rank_state(saved["ranks"], trainer, pl_module)
        is_stopped = _is_still_stopped(self._patience) and saved["stopped"]
        is_done = is_stopped and trainer.fit_loop._can_stop_early
        if place.begun or not is_done:  # else it would average for an epoch that does not begin
            _go_on_averaging(trainer, pl_module)
        if is_done:
            _close(place, trainer)
            return
        trainer.should_stop = is_stopped  # as soon as min_epochs and min_steps permit
        if place.begun:
            self._go_on_within(place, trainer)
        else:
            _begin_an_epoch(place, trainer)

    def _go_on_within(self, place: Place, trainer: Trainer) -> None:
        """Make Lightning do what was still to come after a batch, and no more."""
        loop = trainer.fit_loop
        inner = loop.epoch_loop
        loop._restarting = False  # else it leaves out the schedulers that watch a figure, at the epoch's end
        fetcher: Any = loop._data_fetcher
        validates = inner._should_check_val_fx(fetcher)
        counts = not inner._should_accumulate()
        self._after = "nothing" if place.after == "epoch" else place.after
        if place.after == "batch" and validates:
            inner.val_loop._restart_stage = "restarted_mid_evaluation"
            inner.val_loop.batch_progress.current.reset()
        elif place.after == "batch" and counts:
            self._after = "nothing"
            inner.update_lr_schedulers("step", update_plateau_schedulers=True)
            inner._batches_that_stepped += 1
        elif place.after in ("nothing", "epoch") and validates:
            # Lightning goes once more through what follows a validation: it must change nothing.
            inner._batches_that_stepped -= counts
            self._schedulers = list(trainer.strategy.lr_scheduler_configs)
            trainer.strategy.lr_scheduler_configs.clear()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Where nothing was left to train Lightning leaves out the end of a training, too: do what the checkpoint was written before."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        place = Place(**saved["place"])
        trainer._logger_connector._callback_metrics.update(saved["watched"])
        self._load_rank_state(saved["ranks"], trainer, pl_module)
        if place.begun:
            _end_the_epoch(place, trainer)
        else:
            _begin_an_epoch(place, trainer)
        trainer.strategy.on_train_end()
        for callback in (*_averages(trainer), *_weight_averages(trainer)):
            callback.on_train_end(trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep what the batch changes beside the weights while it is under way."""
        self._restore_schedulers(trainer)
        self._after, self._is_stepping = "nothing", False
        if self._has_buffers:
            self._before = {name: buffer.detach().clone() for name, buffer in _persistent_buffers(pl_module)}
        if batch_idx % trainer.accumulate_grad_batches:
            self._gradients = _gradients_of(pl_module, copied=True)

    def _restore_schedulers(self, trainer: Trainer) -> None:
        trainer.strategy.lr_scheduler_configs.extend(self._schedulers)
        self._schedulers = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """From here to the end of the batch the weights may be half changed."""
        self._is_stepping = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """The batch is done. Other callbacks, which may write a checkpoint now, come after this one."""
        self._after, self._is_stepping = "batch", False
        self._counted = trainer.fit_loop.epoch_loop._batches_that_stepped
        if isinstance(pl_module, Stateful):
            pl_module.commit()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Callbacks that average weights exchange them again."""
        self.is_swapped = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The validation after a batch is done."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._after = "validation"

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An epoch without a batch of its own, of which the rest was done before: its schedulers are there."""
        self._restore_schedulers(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Of a failure the other ranks know nothing; a SIGTERM all obey together, between two batches."""
        self._restore_schedulers(trainer)
        self._fails_alone = type(exception) is not SIGTERMException
        if self.is_swapped and trainer.state.fn == TrainerFn.FITTING:  # a checkpoint that is written now takes the weights for the averages
            self.is_swapped = False
            for callback in _weight_averages(trainer):
                callback.on_validation_epoch_end(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add what is lacking. Every rank takes part, but where it fails alone."""
        place = self.place(trainer)
        is_torn = _is_within_a_batch(trainer)
        if is_torn:
            checkpoint["state_dict"].update(self._before)
        state = pl_module.rank_state() if isinstance(pl_module, Stateful) else {}
        state |= self._half_summed(trainer, pl_module, place, is_torn)
        checkpoint[_KEY] = {
            "place": place._asdict(),
            "world_size": trainer.world_size,
            "ranks": _gathered(state, trainer, alone=self._fails_alone),
            "watched": {name: figure.detach().cpu() for name, figure in trainer.callback_metrics.items()},
            "stopped": bool(trainer.should_stop),
            "accumulate": (self._asked_to_accumulate, trainer.accumulate_grad_batches),
            "half_stepped": is_torn and self._is_stepping,
        }

    def place(self, trainer: Trainer) -> Place:
        """Where the training is."""
        inner = trainer.fit_loop.epoch_loop
        went_on = inner._batches_that_stepped > self._counted or _is_within_a_batch(trainer)
        return place_of(trainer, "nothing" if went_on else self._after)

    def _half_summed(self, trainer: Trainer, module: LightningModule, place: Place, is_torn: bool) -> dict[str, Tensor]:
        """Gradients that no step has used yet, by name."""
        if not place.begun or place.ended or place.step % trainer.accumulate_grad_batches == 0:
            return {}
        return self._gradients if is_torn else _gradients_of(module)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take what was added, and correct Lightning's counters, which are read after this."""
        saved = checkpoint.get(_KEY)
        if trainer.state.fn != TrainerFn.FITTING or saved is None:
            return
        if saved["half_stepped"]:
            raise InputError(
                "the checkpoint was written while the optimiser was changing the weights (an exception, or a second Ctrl-C): they are of no step; "
                "go on from another one, last.ckpt for instance" + explain_hint("checkpoint")
            )
        place, ranks = Place(**saved["place"]), saved["ranks"]
        if len(ranks) < saved["world_size"]:
            raise InputError(
                f"the checkpoint has the state of rank {min(ranks)} alone: an exception in one of {saved['world_size']} ranks wrote it; go on from "
                "another one, last.ckpt for instance" + explain_hint("checkpoint")
            )
        if place.begun and set(ranks) != set(range(trainer.world_size)):
            raise InputError(
                f"the checkpoint has the state of rank {', '.join(map(str, ranks))} in the middle of an epoch, and the run has {trainer.world_size} ranks: "
                "go on with as many, or from a checkpoint of an epoch's end" + explain_hint("checkpoint")
            )
        write_counters(checkpoint["loops"]["fit_loop"], place)
        self._saved = saved
        rules = (callback for callback in trainer.callbacks if isinstance(callback, EarlyStopping))  # type: ignore[attr-defined]
        self._patience = {rule: rule.patience for rule in rules}  # the checkpoint's comes over it when their state is loaded, after this

    def _load_rank_state(self, ranks: dict[int, dict[str, Tensor]], trainer: Trainer, module: LightningModule) -> None:
        for callback in _weight_averages(trainer):  # an exception may have come before it; what it has averaged already it leaves
            callback.on_train_batch_end(trainer, module, None, None, 0)
        # With other ranks than before, which an epoch's end permits, a new one takes what the first had.
        state = dict(ranks.get(trainer.global_rank, ranks[min(ranks)]))
        for name, parameter in module.named_parameters():
            gradient = state.pop(f"gradient.{name}", None)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        if isinstance(module, Stateful):
            module.load_rank_state(state)


class _AfterOthers(Callback):
    """Tells ``ExactResume`` when all other callbacks have had a hook."""

    def __init__(self, resume: ExactResume) -> None:
        self._resume = resume

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._resume.resume(trainer, pl_module)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._resume.is_swapped = True


def _is_within_a_batch(trainer: Trainer) -> bool:
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return bool(batches.ready > batches.processed)


def _persistent_buffers(module: LightningModule) -> list[tuple[str, Tensor]]:
    """Those that a checkpoint has, running means of a normalisation for instance; most models have none."""
    kept = module.state_dict(keep_vars=True)
    return [(name, value) for name, value in kept.items() if not isinstance(value, torch.nn.Parameter)]


def _gradients_of(module: LightningModule, copied: bool = False) -> dict[str, Tensor]:
    found = {f"gradient.{name}": parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    return {name: gradient.clone() if copied else gradient for name, gradient in found.items()}


def _gathered(state: dict[str, Tensor], trainer: Trainer, *, alone: bool) -> dict[int, dict[str, Tensor]]:
    """The ranks' states on rank 0, which writes."""
    if trainer.world_size == 1 or alone:
        return {trainer.global_rank: state}
    parts: list[Any] | None = [None] * trainer.world_size if trainer.global_rank == 0 else None
    torch.distributed.gather_object({name: value.cpu() for name, value in state.items()}, parts)
    return dict(enumerate(parts or []))


def _begin_an_epoch(place: Place, trainer: Trainer) -> None:
    """Lightning takes a run with ``max_steps`` for one that stands in an epoch, also at its end."""
    loop = trainer.fit_loop
    super(type(loop), type(loop)).restarting.fset(loop, False)  # type: ignore[attr-defined]
    if place.after == "epoch":
        loop.epoch_progress.current.completed -= 1  # schedulers count the epoch that ends
        loop.epoch_loop.update_lr_schedulers("epoch", update_plateau_schedulers=True)
        loop.epoch_progress.current.completed += 1


def _end_the_epoch(place: Place, trainer: Any) -> None:
    """What is still to come after the last batch, of which nothing more follows."""
    loop = trainer.fit_loop
    if place.after == "epoch":
        loop.epoch_progress.increment_processed()
        loop.epoch_progress.increment_completed()
        return
    loop._restarting = loop.epoch_loop._restarting = False
    loop.epoch_loop._skip_next_val = place.after == "validation"
    if place.after != "nothing":
        loop.epoch_loop.on_advance_end(loop._data_fetcher)
    loop.on_advance_end()


def _averages(trainer: Any) -> list[StochasticWeightAveraging]:
    """Those that have begun."""
    return [each for each in trainer.callbacks if isinstance(each, StochasticWeightAveraging) and each._scheduler_state is not None]


def _weight_averages(trainer: Any) -> list[Any]:
    return [each for each in trainer.callbacks if isinstance(each, _WeightAveraging)]


def _go_on_averaging(trainer: Any, module: LightningModule) -> None:
    """Lightning's averaging of weights begins anew in the next epoch only, and then sets the learning rate back."""
    for callback in _averages(trainer):
        if callback.swa_start <= trainer.current_epoch <= callback.swa_end:
            rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
            callback.on_train_epoch_start(trainer, module)
            for group, rate in zip(trainer.optimizers[0].param_groups, rates, strict=True):
                group["lr"] = rate


def _is_still_stopped(asked: dict[EarlyStopping, int]) -> bool:
    """Return whether a rule that had stopped a run would stop it now; give each the patience that this run asks for in place of the checkpoint's."""
    is_stopped = False
    for rule, patience in asked.items():
        kept, rule.patience = rule.patience, patience
        had_stopped = rule.wait_count >= kept or rule.stopped_epoch > 0 or getattr(rule, "stopping_reason_message", None) is not None
        is_stopped |= had_stopped and (patience <= kept or rule.wait_count >= patience)
    return is_stopped


def _close(place: Place, trainer: Any) -> None:
    """Train no further; what was still to come of the epoch is done."""
    rank_zero_info("EarlyStopping had ended the run that goes on here: a larger patience lets it train further")
    if place.begun:
        _end_the_epoch(place, trainer)
    else:
        _begin_an_epoch(place, trainer)
    trainer.should_stop = True
