"""Sums of times over batches, and the rules that name the bottleneck."""

import pytest

from hoptrain.engine.timeline import STAGES, BatchTimes, Timeline, Totals, bottleneck


def times(begin, epoch=0, batch=0, num_ready=1):
    """Return the times of a batch: waited 1 s, copied 2 s, trained 3 s, and before that sampled 4 s and gathered 5 s."""
    return BatchTimes(
        epoch=epoch,
        batch=batch,
        pid=7,
        sample=(begin - 9, begin - 5),
        gather=(begin - 5, begin),
        wait=(begin, begin + 1),
        copy=(begin + 1, begin + 3),
        train=(begin + 3, begin + 6),
        num_ready=num_ready,
    )


def test_means_of_an_epoch():
    timeline = Timeline()
    for batch in range(2):
        timeline.add(times(10.0 * batch, batch=batch, num_ready=batch))
    seconds = {"time/sample": 4, "time/gather": 5, "time/wait": 1, "time/copy": 2, "time/train": 3}
    assert timeline.epoch.means() == seconds | {"time/step": 8, "queue_mean": 0.5}
    assert timeline.epoch.elapsed == 16  # includes 4 s between the steps
    timeline.new_epoch()
    assert timeline.epoch.means() == {}


def test_the_run_leaves_out_its_first_batch_and_the_time_between_epochs():
    timeline = Timeline()
    for begin, epoch in ((0.0, 0), (6.0, 0), (100.0, 1), (106.0, 1)):
        timeline.add(times(begin, epoch))
    assert timeline.run.num_batches == 3
    assert timeline.run.elapsed == 18
    assert timeline.run.first_waits == 1  # the first wait of the second epoch


def totals(first_waits=0.0, **shares):
    """Return the sums over a hundred batches in a hundred seconds; ``shares`` are the seconds of each stage."""
    return Totals(num_batches=100, elapsed=100.0, seconds=dict.fromkeys(STAGES, 0.0) | shares, first_waits=first_waits)


SLOW_SAMPLING = {"sample": 180.0, "gather": 14.0, "wait": 61.0, "train": 38.0}


@pytest.mark.parametrize(
    ("facts", "num_workers", "num_cores", "sentence"),
    [
        ({"sample": 50, "wait": 2, "train": 97}, 2, 16, "training (97% of the time); feeding waited 2%"),
        (
            SLOW_SAMPLING,
            2,
            16,
            "sampling (workers busy 97%, trainer waited 61% of the time): more num_workers (2 now, about 5 would keep up, 16 cores)",
        ),
        (
            SLOW_SAMPLING,
            2,
            2,
            "sampling (workers busy 97%, trainer waited 61% of the time): smaller fanouts, since no core is free for more num_workers",
        ),
        (
            {"sample": 20, "gather": 70, "wait": 40, "train": 60},
            1,
            1,
            "gathering features (workers busy 90%, trainer waited 40% of the time): "
            "narrower features (float16), since no core is free for more num_workers",
        ),
        (
            {"sample": 60, "wait": 40, "train": 60},
            2,
            16,
            "the queue (workers busy 30%, trainer waited 40% of the time): a larger prefetch evens out slow batches",
        ),
        (
            {"sample": 60, "wait": 40, "train": 60, "first_waits": 30},
            2,
            16,
            "the first batch of each epoch (trainer waited 40% of the time, 75% of it for these): a smaller batch_size has it ready sooner",
        ),
        ({"wait": 5, "copy": 60, "train": 30}, 2, 16, "copying to the device (60% of the time): narrower features (float16)"),
        (
            {"wait": 5, "train": 30},
            2,
            16,
            "between the steps (65% of the time: logging, callbacks, validation): a larger batch_size makes fewer steps",
        ),
        (
            {"sample": 50, "gather": 5, "wait": 55, "train": 40},
            0,
            16,
            "sampling in this process (55% of the time): num_workers 1 or more would work in parallel with training (0 now, 16 cores)",
        ),
        (
            {"sample": 50, "gather": 5, "wait": 55, "train": 40},
            0,
            1,
            "sampling in this process (55% of the time): smaller fanouts, since no core is free for more num_workers",
        ),
        (
            {"sample": 5, "gather": 20, "wait": 25, "train": 70},
            0,
            4,
            "training (70% of the time); gathering features took 25%: num_workers 1 would run it in parallel",
        ),
        ({"sample": 25, "wait": 25, "train": 70}, 0, 1, "training (70% of the time); feeding waited 25%"),
    ],
)
def test_the_sentence_follows_the_shares(facts, num_workers, num_cores, sentence):
    assert bottleneck(totals(**facts), num_workers, num_cores) == f"bottleneck: {sentence}"


def test_cores_are_shared_by_the_ranks_of_a_machine():
    assert "more num_workers" in bottleneck(totals(**SLOW_SAMPLING), 2, 16, num_ranks=4)
    assert "no core is free" in bottleneck(totals(**SLOW_SAMPLING), 2, 16, num_ranks=8)


def test_a_core_whose_trainer_waits_is_free_for_a_worker():
    facts = {"sample": 100.0, "wait": 90.0, "train": 10.0}
    assert "more num_workers (1 now, 2 cores)" in bottleneck(totals(**facts), 1, 2)


def test_waiting_beside_a_busy_gpu_does_not_count():
    """If the GPU is busy for 96 % of the time, training is the bottleneck, although the host waits for half of the time."""
    assert bottleneck(totals(wait=50, train=96, sample=150), 2, 16) == "bottleneck: training (96% of the time); feeding waited 4%"


def test_too_little_was_measured():
    timeline = Timeline()
    timeline.add(times(0.0))
    assert "unknown" in bottleneck(timeline.run, 2, 16)
