"""Where a training is: what a checkpoint has to say so that a run can go on from it bit for bit, and Lightning's counters for it.

Lightning keeps its place in a dozen counters that are written at different moments, and guesses from them, when it goes on, what was under way.
Some guesses are wrong: a run that ended by ``max_steps`` at an epoch's end, or by an exception within a step, goes on elsewhere. So the place
is noted in plain words when a checkpoint is written, and the counters are set from it when the checkpoint is read.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pytorch_lightning import Trainer

After = Literal["nothing", "batch", "validation", "epoch"]
"""What was done last, of which the rest of Lightning's round is still to come: after a batch its validation (where one is due) and the schedulers
that watch a figure; after the validation these schedulers; after an epoch those that watch a figure of epochs. An epoch that is under way and
was closed all the same is one that a rule ended early."""


class Place(NamedTuple):
    """Where a training is.

    Attributes:
        epoch: the epoch under way, or the next one.
        step: how many of its batches are done.
        begun: whether it is under way.
        ended: whether all of its batches are done; what follows an epoch is then still to come.
        after: what was done last.
        total: batches done in all epochs.
        counted: steps as the loggers count them.
    """

    epoch: int
    step: int
    begun: bool
    ended: bool
    after: After
    total: int
    counted: int


def place_of(trainer: Trainer, after: After) -> Place:
    """Where the training is now; ``after`` tells what was done last, where an epoch is under way."""
    loop: Any = trainer.fit_loop
    epochs, progress = loop.epoch_progress.current, loop.epoch_loop.batch_progress
    done, counted = progress.current.processed, loop.epoch_loop._batches_that_stepped
    total = progress.total.processed
    if epochs.started > epochs.processed:
        return Place(epochs.processed, done, True, _is_whole(trainer), after, total, counted)
    if epochs.processed and _was_left_early(trainer):
        # max_steps or a callback ended the run in mid-epoch; Lightning has closed the epoch, but a longer run has more of it to do.
        return Place(epochs.processed - 1, done, True, False, "epoch", total, counted)
    return Place(epochs.processed, 0, False, False, "epoch" if epochs.completed < epochs.processed else "nothing", total, counted)


def _is_whole(trainer: Trainer) -> bool:
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    batches = progress.current
    was_last = progress.is_last_batch and batches.processed == batches.ready > 0  # it is set before the last batch is processed
    return bool(batches.processed >= trainer.num_training_batches or was_last)


def _was_left_early(trainer: Trainer) -> bool:
    asked_to_stop = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
    return asked_to_stop and not _is_whole(trainer)


def write_counters(loops: dict[str, Any], place: Place) -> None:
    """Set the counters in ``loops``, a checkpoint's state of Lightning's fit loop, to ``place``: nothing is half done."""
    done = place.epoch
    begun = done + place.begun
    for part in loops["epoch_progress"].values():
        part.update(ready=begun, started=begun, processed=done, completed=done)
    batches = loops["epoch_loop.batch_progress"]
    batches["current"].update(dict.fromkeys(("ready", "started", "processed", "completed"), place.step))
    batches["total"].update(dict.fromkeys(("ready", "started", "processed", "completed"), place.total))
    batches["is_last_batch"] = place.ended
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = place.counted
    optimizer = loops["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    others = (
        optimizer["step"],
        optimizer["zero_grad"],
        loops["epoch_loop.scheduler_progress"],
        loops["epoch_loop.val_loop.batch_progress"],
    )
    for tracker in (other[part] for other in others for part in ("current", "total")):
        tracker.update(dict.fromkeys(tracker, tracker["completed"]))
    # The data module knows the place in its data; a loader's own state would be that of the batches delivered, not of those trained on.
    loops["state_dict"].pop("combined_loader", None)
