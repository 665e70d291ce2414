"""Every rank has the same number of steps, and every seed comes exactly once, for any sizes."""

import itertools

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of

from hoptrain.engine import Schedule


def ranks(num_seeds, batch_size, world_size, **options):
    seeds = np.arange(num_seeds) * 3 + 1
    return [Schedule(items=seeds, batch_size=batch_size, rank=r, world_size=world_size, **options) for r in range(world_size)]


SIZES = [(n, b, w) for n, b, w in itertools.product((1, 2, 5, 7, 8, 9, 16, 17, 31, 100), (1, 2, 3, 8, 64), (1, 2, 3, 4)) if -(-n // b) >= w]


@pytest.mark.parametrize(("num_seeds", "batch_size", "world_size"), SIZES)
def test_every_seed_once_and_equal_steps(num_seeds, batch_size, world_size):
    schedules = ranks(num_seeds, batch_size, world_size, seed=5)
    steps = schedules[0].num_steps
    assert all(s.num_steps == steps for s in schedules)
    assert steps >= 1
    seen = []
    for step in range(steps):
        batches = [s.batch_items(2, step) for s in schedules]
        sizes = [len(batch) for batch in batches]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        # Only the last step may have one seed more than the batch size, if the remainder is too small for a step.
        assert max(sizes) <= batch_size + (step == steps - 1)
        assert sum(sizes) == schedules[0].num_step_items(step)
        seen += batches
    assert sorted(np.concatenate(seen)) == list(range(1, 3 * num_seeds + 1, 3))


def test_batch_numbers_are_distinct_over_ranks_and_steps():
    schedules = ranks(100, 8, 3)
    numbers = [s.batch_number(step) for s in schedules for step in range(s.num_steps)]
    assert sorted(numbers) == list(range(len(numbers)))


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        schedule = ranks(50, 50, 1, seed=seed)[0]
        return schedule.batch_items(epoch, 0).tolist()

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_one_rank_and_two_take_the_same_epoch_order():
    alone = ranks(40, 8, 1, seed=3)[0]
    pair = ranks(40, 4, 2, seed=3)
    for step in range(alone.num_steps):
        assert alone.batch_items(0, step).tolist() == [v for s in pair for v in s.batch_items(0, step)]


def test_without_shuffle_the_seeds_keep_their_order():
    schedule = ranks(10, 4, 1, shuffle=False)[0]
    assert [schedule.batch_items(7, s).tolist() for s in range(3)] == [[1, 4, 7, 10], [13, 16, 19, 22], [25, 28]]


def ten_seeds(**options):
    Schedule(**{"items": np.arange(10), "batch_size": 4} | options)


MISTAKES = {
    "batches of no seed": Mistake(lambda: ten_seeds(batch_size=0), value="0", rule="batch_size batch integer", remedy="1 or more"),
    "a seed as text": Mistake(lambda: ten_seeds(batch_size=2, seed="a"), value="'a'", rule="seed 64-bit", remedy="0 to 2**64"),
    "a rank beyond the ranks": Mistake(
        lambda: ten_seeds(rank=2, world_size=2), value="rank 2 of 2", rule="rank 0 to world_size", remedy="check RANK WORLD_SIZE"
    ),
    "a negative seed": Mistake(lambda: ten_seeds(seed=-1), value="-1", rule="seed 64-bit", remedy="0 to 2**64"),
    "a seed of more than 64 bits": Mistake(lambda: ten_seeds(seed=1 << 64), value=str(1 << 64), rule="seed 64-bit", remedy="0 to 2**64"),
    "more ranks than batches": Mistake(
        lambda: ten_seeds(world_size=4), value="4 ranks", rule="3 batches 10 seeds", remedy="3 devices batch size 2"
    ),
    "more ranks than seeds": Mistake(
        lambda: ten_seeds(world_size=11, batch_size=1),
        value="11 ranks",
        rule="10 batches 10 seeds",
        remedy="10 devices batch size 1",
    ),
    "a step beyond the epoch": Mistake(lambda: ranks(10, 4, 1)[0].batch_items(0, 3), value="step 3", rule="epoch 3 steps", remedy="0 to 2"),
    "an epoch of more than 20 bits": Mistake(
        lambda: ranks(10, 4, 1)[0].batch_items(1 << 20, 0), value="epoch 1048576", rule="epochs 20 bits", remedy="train fewer"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
