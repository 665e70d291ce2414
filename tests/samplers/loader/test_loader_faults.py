"""Loaders whose workers are killed give the same batches as loaders without workers."""

import os
import signal

from hoptrain.samplers import NeighborSampler, SampleLoader


def contents(batches):
    return [(batch.node_ids.tolist(), batch.x.sum()) for batch in batches]


def loader_of(dataset, split, num_workers):
    return SampleLoader(dataset, NeighborSampler([4, 4]), split=split, batch_size=5, num_workers=num_workers, seed=2)


def test_two_loaders_at_once_with_a_killed_worker_each(dataset):
    """Two loaders at once, each with a killed worker, give the right batches, although training pauses during two validation epochs."""
    train, val = loader_of(dataset, "train", 2), loader_of(dataset, "val", 1)
    batches = iter(train)
    first = contents([next(batches), next(batches)])
    os.kill(train.pids()[0], signal.SIGKILL)
    for _ in range(2):
        evaluation = iter(val)
        checked = contents([next(evaluation)])
        os.kill(val.pids()[0], signal.SIGKILL)
        checked += contents(evaluation)
    assert first + contents(batches) == contents(loader_of(dataset, "train", 0))
    expected = loader_of(dataset, "val", 0)
    expected.set_epoch(1)
    assert checked == contents(expected)
    train.close()
    val.close()


def test_a_loop_that_is_left_and_a_new_epoch_with_killed_workers(dataset):
    """After two epochs that end early with killed workers, a new epoch is right.

    A worker may be killed again before it makes a batch; ``max_restarts`` bounds such failures in a row.
    """
    loader, expected = loader_of(dataset, "train", 2), loader_of(dataset, "train", 0)
    for _ in range(2):
        next(iter(loader))
        for pid in loader.pids():
            os.kill(pid, signal.SIGKILL)
    expected.set_epoch(2)
    assert contents(loader) == contents(expected)
    loader.close()
