"""A callback for bit-identical resuming. It adds state to checkpoints that Lightning leaves out, and restores it.

The added state is the position in the training (``loop_position.py``); for each rank its metric states of the epoch, the state that its model has in
addition to weights, and partly accumulated gradients; and the values that schedulers and ``EarlyStopping`` monitor. The data module adds this callback to
its trainer.
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
from hoptrain.trainers.resume.loop_position import After, LoopPosition, loop_position, write_counters

_KEY = "hoptrain"
_WeightAveraging: Any = getattr(pytorch_lightning.callbacks, "WeightAveraging", ())
"""Lightning's ``WeightAveraging``; an empty tuple with Lightning 2.5, which lacks it."""


@runtime_checkable
class Stateful(Protocol):
    """A model with state in addition to weights, such as metrics of the current epoch or memory that its batches update."""

    def commit(self) -> None:
        """Apply the state changes of the last batch. This is called when the batch is done, so that an interrupted batch changes nothing."""

    def rank_state(self) -> dict[str, Tensor]:
        """Return the state that this rank keeps in addition to weights, by name."""

    def load_rank_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state that ``rank_state`` returned."""


class ExactResume(Callback):
    """A callback that tracks the position in the training, completes checkpoints, and restores them.

    Attributes:
        is_swapped: whether callbacks that average weights have swapped in the averages, for a validation.
    """

    def __init__(self) -> None:
        """Create the callback; ``attach`` adds it to a trainer."""
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
        """Add this callback before the other callbacks, since they may write checkpoints, and a second callback after them, which resumes the run."""
        trainer.callbacks[:] = [self, *trainer.callbacks, _AfterOthers(self)]  # type: ignore[attr-defined]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check that callbacks that average weights leave out buffers that batches write to.

        Raises:
            InputError: a callback averages buffers, and the model has buffers that batches write to, such as the node memory of TGN.
        """
        tables = getattr(pl_module, "tables_of_rank", ())
        for callback in _weight_averages(trainer):
            if tables and callback._use_buffers:
                raise InputError(
                    f"{type(callback).__name__} has use_buffers: true: it must not average the buffer {tables[0]} of {type(pl_module).__name__}, which "
                    "batches write to; set use_buffers: false"
                )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the state of an earlier run."""
        self._forget()
        self._has_buffers = bool(_persistent_buffers(pl_module))
        self._counted = trainer.fit_loop.epoch_loop._batches_that_stepped
        self._asked_to_accumulate = trainer.accumulate_grad_batches

    def resume(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Resume at the position of the checkpoint. This runs after ``on_train_start`` of all callbacks, since some of them check values that are set here."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        position = LoopPosition(**saved["place"])
        trainer._logger_connector._callback_metrics.update(saved["watched"])
        asked, used = saved.get("accumulate", (None, None))
        if position.begun and asked == trainer.accumulate_grad_batches:  # if the values differ, the user gave this run a new one
            trainer.accumulate_grad_batches = used  # the value in use: a callback may have changed it at the start of the epoch
        self._load_rank_state(saved["ranks"], trainer, pl_module)
        is_stopped = _still_stops(self._patience) and saved["stopped"]
        is_done = is_stopped and trainer.fit_loop._can_stop_early
        if position.begun or not is_done:  # skipped if no epoch starts, since the callback would then average once too often
            _resume_averaging(trainer, pl_module)
        if is_done:
            _stay_stopped(position, trainer)
            return
        trainer.should_stop = is_stopped  # Lightning stops once min_epochs and min_steps are reached
        if position.begun:
            self._resume_within_epoch(position, trainer)
        else:
            _start_epoch(position, trainer)

    def _resume_within_epoch(self, position: LoopPosition, trainer: Trainer) -> None:
        """Make Lightning perform exactly the actions that were still to do after the last batch."""
        loop = trainer.fit_loop
        inner = loop.epoch_loop
        loop._restarting = False  # otherwise Lightning skips schedulers that monitor a metric at the end of the epoch
        fetcher: Any = loop._data_fetcher
        validates = inner._should_check_val_fx(fetcher)
        counts = not inner._should_accumulate()
        self._after = "nothing" if position.after == "epoch" else position.after
        if position.after == "batch" and validates:
            inner.val_loop._restart_stage = "restarted_mid_evaluation"
            inner.val_loop.batch_progress.current.reset()
        elif position.after == "batch" and counts:
            self._after = "nothing"
            inner.update_lr_schedulers("step", update_plateau_schedulers=True)
            inner._batches_that_stepped += 1
        elif position.after in ("nothing", "epoch") and validates:
            # Lightning repeats the actions after a validation, so they must change nothing.
            inner._batches_that_stepped -= counts
            self._schedulers = list(trainer.strategy.lr_scheduler_configs)
            trainer.strategy.lr_scheduler_configs.clear()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Run the final hooks of the training if the resumed run had no step left. Lightning skips them then, although the checkpoint precedes them."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        position = LoopPosition(**saved["place"])
        trainer._logger_connector._callback_metrics.update(saved["watched"])
        self._load_rank_state(saved["ranks"], trainer, pl_module)
        if position.begun:
            _finish_epoch(position, trainer)
        else:
            _start_epoch(position, trainer)
        trainer.strategy.on_train_end()
        for callback in (*_averages(trainer), *_weight_averages(trainer)):
            callback.on_train_end(trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Save what this batch will change in addition to weights: buffers and accumulated gradients."""
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
        """Record that weights may be partly updated from here to the end of the batch."""
        self._is_stepping = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Record that the batch is done. This callback runs before the others, which may write a checkpoint now."""
        self._after, self._is_stepping = "batch", False
        self._counted = trainer.fit_loop.epoch_loop._batches_that_stepped
        if isinstance(pl_module, Stateful):
            pl_module.commit()

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record that callbacks which average weights have put the trained weights back."""
        self.is_swapped = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record that the validation after a batch is done."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._after = "validation"

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give the trainer its schedulers back. This matters if the run resumed after the last batch of the epoch."""
        self._restore_schedulers(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Record whether this rank fails alone, and put back weights that averages have replaced. SIGTERM stops all ranks together, between two batches."""
        self._restore_schedulers(trainer)
        self._fails_alone = type(exception) is not SIGTERMException
        if self.is_swapped and trainer.state.fn == TrainerFn.FITTING:  # otherwise a checkpoint would contain averages as weights
            self.is_swapped = False
            for callback in _weight_averages(trainer):
                callback.on_validation_epoch_end(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the state that Lightning leaves out. This is a collective of all ranks, unless this rank fails alone."""
        position = self.position(trainer)
        is_torn = _is_within_a_batch(trainer)
        if is_torn:
            checkpoint["state_dict"].update(self._before)
        state = pl_module.rank_state() if isinstance(pl_module, Stateful) else {}
        state |= self._half_summed(trainer, pl_module, position, is_torn)
        checkpoint[_KEY] = {
            "place": position._asdict(),
            "world_size": trainer.world_size,
            "ranks": _gathered(state, trainer, alone=self._fails_alone),
            "watched": {name: figure.detach().cpu() for name, figure in trainer.callback_metrics.items()},
            "stopped": bool(trainer.should_stop),
            "accumulate": (self._asked_to_accumulate, trainer.accumulate_grad_batches),
            "half_stepped": is_torn and self._is_stepping,
        }

    def position(self, trainer: Trainer) -> LoopPosition:
        """Return the current position of the training."""
        inner = trainer.fit_loop.epoch_loop
        went_on = inner._batches_that_stepped > self._counted or _is_within_a_batch(trainer)
        return loop_position(trainer, "nothing" if went_on else self._after)

    def _half_summed(self, trainer: Trainer, module: LightningModule, position: LoopPosition, is_torn: bool) -> dict[str, Tensor]:
        """Return accumulated gradients that no optimiser step has used yet, by name."""
        if not position.begun or position.ended or position.step % trainer.accumulate_grad_batches == 0:
            return {}
        return self._gradients if is_torn else _gradients_of(module)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Read the added state, and correct the counters in the checkpoint, which Lightning reads afterwards.

        Raises:
            InputError: the checkpoint was written within an optimiser step, or by one of several ranks alone; or it is from the middle of an epoch, with
                another number of ranks.
        """
        saved = checkpoint.get(_KEY)
        if trainer.state.fn != TrainerFn.FITTING or saved is None:
            return
        if saved["half_stepped"]:
            raise InputError(
                "the checkpoint was written within an optimiser step (after an exception, or a second Ctrl-C), so its weights are partly updated; "
                "resume from another one, such as last.ckpt" + explain_hint("checkpoint")
            )
        position, ranks = LoopPosition(**saved["place"]), saved["ranks"]
        if len(ranks) < saved["world_size"]:
            raise InputError(
                f"the checkpoint has only the state of rank {min(ranks)} of {saved['world_size']}: that rank wrote it after an exception; resume from "
                "another one, such as last.ckpt" + explain_hint("checkpoint")
            )
        if position.begun and set(ranks) != set(range(trainer.world_size)):
            raise InputError(
                f"the checkpoint is from the middle of an epoch with {len(ranks)} ranks, and this run has {trainer.world_size}: "
                f"resume with {len(ranks)} ranks, or from a checkpoint of the end of an epoch" + explain_hint("checkpoint")
            )
        write_counters(checkpoint["loops"]["fit_loop"], position)
        self._saved = saved
        rules = (callback for callback in trainer.callbacks if isinstance(callback, EarlyStopping))  # type: ignore[attr-defined]
        self._patience = {rule: rule.patience for rule in rules}  # stored now, since loading the checkpoint overwrites the patience later

    def _load_rank_state(self, ranks: dict[int, dict[str, Tensor]], trainer: Trainer, module: LightningModule) -> None:
        for callback in _weight_averages(
            trainer
        ):  # makes up for an update that an exception skipped; a batch that was already averaged is not averaged again
            callback.on_train_batch_end(trainer, module, None, None, 0)
        # At the end of an epoch the number of ranks may change; a new rank takes the state of the first.
        state = dict(ranks.get(trainer.global_rank, ranks[min(ranks)]))
        for name, parameter in module.named_parameters():
            gradient = state.pop(f"gradient.{name}", None)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        if isinstance(module, Stateful):
            module.load_rank_state(state)


class _AfterOthers(Callback):
    """A callback that calls ``ExactResume`` after all other callbacks have run a hook."""

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
    """Return the buffers that a checkpoint includes, such as running means of BatchNorm."""
    kept = module.state_dict(keep_vars=True)
    return [(name, value) for name, value in kept.items() if not isinstance(value, torch.nn.Parameter)]


def _gradients_of(module: LightningModule, copied: bool = False) -> dict[str, Tensor]:
    found = {f"gradient.{name}": parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    return {name: gradient.clone() if copied else gradient for name, gradient in found.items()}


def _gathered(state: dict[str, Tensor], trainer: Trainer, *, alone: bool) -> dict[int, dict[str, Tensor]]:
    """Gather the states of all ranks on rank 0, which writes the checkpoint. With ``alone``, return only the state of this rank."""
    if trainer.world_size == 1 or alone:
        return {trainer.global_rank: state}
    parts: list[Any] | None = [None] * trainer.world_size if trainer.global_rank == 0 else None
    torch.distributed.gather_object({name: value.cpu() for name, value in state.items()}, parts)
    return dict(enumerate(parts or []))


def _start_epoch(position: LoopPosition, trainer: Trainer) -> None:
    """Make the run start a new epoch. With ``max_steps``, Lightning would continue the epoch of the checkpoint even if that epoch had ended."""
    loop = trainer.fit_loop
    super(type(loop), type(loop)).restarting.fset(loop, False)  # type: ignore[attr-defined]
    if position.after == "epoch":
        loop.epoch_progress.current.completed -= 1  # schedulers must see the epoch as not yet completed
        loop.epoch_loop.update_lr_schedulers("epoch", update_plateau_schedulers=True)
        loop.epoch_progress.current.completed += 1


def _finish_epoch(position: LoopPosition, trainer: Any) -> None:
    """Perform the actions that are still to do after the last batch of the training."""
    loop = trainer.fit_loop
    if position.after == "epoch":
        loop.epoch_progress.increment_processed()
        loop.epoch_progress.increment_completed()
        return
    loop._restarting = loop.epoch_loop._restarting = False
    loop.epoch_loop._skip_next_val = position.after == "validation"
    if position.after != "nothing":
        loop.epoch_loop.on_advance_end(loop._data_fetcher)
    loop.on_advance_end()


def _averages(trainer: Any) -> list[StochasticWeightAveraging]:
    """Return the ``StochasticWeightAveraging`` callbacks that have started."""
    return [each for each in trainer.callbacks if isinstance(each, StochasticWeightAveraging) and each._scheduler_state is not None]


def _weight_averages(trainer: Any) -> list[Any]:
    return [each for each in trainer.callbacks if isinstance(each, _WeightAveraging)]


def _resume_averaging(trainer: Any, module: LightningModule) -> None:
    """Resume stochastic weight averaging in this epoch. Lightning would resume it in the next epoch, and reset the learning rate."""
    for callback in _averages(trainer):
        if callback.swa_start <= trainer.current_epoch <= callback.swa_end:
            rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
            callback.on_train_epoch_start(trainer, module)
            for group, rate in zip(trainer.optimizers[0].param_groups, rates, strict=True):
                group["lr"] = rate


def _still_stops(asked: dict[EarlyStopping, int]) -> bool:
    """Return whether an ``EarlyStopping`` rule that stopped the run would still stop it. Set the patience of each rule to that of this run."""
    is_stopped = False
    for rule, patience in asked.items():
        kept, rule.patience = rule.patience, patience
        had_stopped = rule.wait_count >= kept or rule.stopped_epoch > 0 or getattr(rule, "stopping_reason_message", None) is not None
        is_stopped |= had_stopped and (patience <= kept or rule.wait_count >= patience)
    return is_stopped


def _stay_stopped(position: LoopPosition, trainer: Any) -> None:
    """Finish the epoch in which ``EarlyStopping`` ended the run, and do not train further."""
    rank_zero_info("EarlyStopping had ended this run, so it does not train further: raise the patience of EarlyStopping to continue")
    if position.begun:
        _finish_epoch(position, trainer)
    else:
        _start_epoch(position, trainer)
    trainer.should_stop = True
