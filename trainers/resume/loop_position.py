"""The position of a training in Lightning's loops: read from its counters, saved in checkpoints, and written back when a run resumes.

Lightning keeps its position in a dozen counters that it updates at different moments. On resume it guesses from them what was in progress, and some
guesses are wrong: after ``max_steps`` at the end of an epoch, or an exception within a step, the run would resume elsewhere. So checkpoints have
the position in plain values, and the counters are set from it when the checkpoint is read.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pytorch_lightning import Trainer

After = Literal["nothing", "batch", "validation", "epoch"]
"""The last completed action. It determines what Lightning still has to do before the next batch.

* After a batch: its validation, if one is due, and the schedulers that monitor a metric.
* After a validation: these schedulers.
* After an epoch: the schedulers that monitor a metric of epochs. If the epoch is still in progress, ``max_steps`` or a callback has ended it early.
"""


class LoopPosition(NamedTuple):
    """The position of a training.

    Attributes:
        epoch: number of the epoch in progress, or of the next one.
        step: number of batches of this epoch that are done.
        begun: True if the epoch is in progress.
        ended: True if all batches of the epoch are done, but not yet the actions at its end.
        after: last completed action.
        total: number of batches done in all epochs.
        counted: number of steps as loggers count them.
    """

    epoch: int
    step: int
    begun: bool
    ended: bool
    after: After
    total: int
    counted: int


def loop_position(trainer: Trainer, after: After) -> LoopPosition:
    """Return the current position. ``after`` is the last completed action within an epoch."""
    loop: Any = trainer.fit_loop
    epochs, progress = loop.epoch_progress.current, loop.epoch_loop.batch_progress
    done, counted = progress.current.processed, loop.epoch_loop._batches_that_stepped
    total = progress.total.processed
    if epochs.started > epochs.processed:
        return LoopPosition(epochs.processed, done, True, _is_whole(trainer), after, total, counted)
    if epochs.processed and _was_left_early(trainer):
        # max_steps or a callback ended the run within an epoch. Lightning has closed the epoch, but a longer run continues it.
        return LoopPosition(epochs.processed - 1, done, True, False, "epoch", total, counted)
    return LoopPosition(epochs.processed, 0, False, False, "epoch" if epochs.completed < epochs.processed else "nothing", total, counted)


def _is_whole(trainer: Trainer) -> bool:
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    batches = progress.current
    was_last = progress.is_last_batch and batches.processed == batches.ready > 0  # is_last_batch is set before the last batch is processed
    return bool(batches.processed >= trainer.num_training_batches or was_last)


def _was_left_early(trainer: Trainer) -> bool:
    asked_to_stop = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
    return asked_to_stop and not _is_whole(trainer)


def write_counters(loops: dict[str, Any], position: LoopPosition) -> None:
    """Set the counters in ``loops``, the state of Lightning's fit loop in a checkpoint, to ``position``, with no action in progress."""
    done = position.epoch
    begun = done + position.begun
    for part in loops["epoch_progress"].values():
        part.update(ready=begun, started=begun, processed=done, completed=done)
    batches = loops["epoch_loop.batch_progress"]
    batches["current"].update(dict.fromkeys(("ready", "started", "processed", "completed"), position.step))
    batches["total"].update(dict.fromkeys(("ready", "started", "processed", "completed"), position.total))
    batches["is_last_batch"] = position.ended
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = position.counted
    optimizer = loops["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    others = (
        optimizer["step"],
        optimizer["zero_grad"],
        loops["epoch_loop.scheduler_progress"],
        loops["epoch_loop.val_loop.batch_progress"],
    )
    for tracker in (other[part] for other in others for part in ("current", "total")):
        tracker.update(dict.fromkeys(tracker, tracker["completed"]))
    # The data module restores the position in the data. A loader's own state would count batches delivered, not batches trained on.
    loops["state_dict"].pop("combined_loader", None)
