"""The number of steps that exchange rows together, which the feature cache's memory limits, and the number of these rows."""

import numpy as np
import pytest

from hoptrain.engine import Schedule, load_dataset
from hoptrain.engine.storage.shared_rows import bytes_for
from hoptrain.samplers import LaborSampler, NeighborSampler, RandomWalk, Workspace
from hoptrain.samplers.loader.memory_left import Messages, num_asked
from hoptrain.samplers.loader.task import SampleTask


class Rows:
    """Features of 2,000 nodes, of which another machine holds all rows except the first 500."""

    row_bytes, num_elsewhere = 396, 1_500

    def __len__(self):
        return 2_000

    def elsewhere(self, ids):
        return ids[ids >= 500]


PLACES, TABLES, OF_STEP = 4 * 2_000, bytes_for(0, 2_000, 396), 2 * 100 * 400


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (100 * OF_STEP, (8, 8 * OF_STEP)),
        (16 * OF_STEP, (8, 8 * OF_STEP)),
        (7 * OF_STEP, (3, 7 * OF_STEP // 2)),  # three steps fit into half of the remaining memory
        (OF_STEP, (1, OF_STEP // 2)),  # one step needs more than half, but gets only half
        (-1, (1, 0)),
    ],
)
def test_messages_take_half_of_what_tables_leave(free, expected):
    messages, feature_cache = Messages(2_000, 396, 100, 8), PLACES + TABLES + free
    assert (messages.window(feature_cache), messages.num_bytes(feature_cache) - PLACES) == expected


@pytest.mark.parametrize(
    ("sampler", "num_ranks", "expected"),
    [
        (NeighborSampler([2, 1]), 1, 10 * 3 * 2 * 3 // 4),  # three quarters lie elsewhere
        (LaborSampler([2, 1]), 2, 2 * (10 * 3 * 2 * 3 // 4)),
        (RandomWalk(length=3, num_walks=2), 1, 10 * 7 * 3 // 4),
        (NeighborSampler([2, -1]), 1, 1_500),  # the number is unknown, so all rows count
        (NeighborSampler([2, 0.5]), 1, 1_500),
        (NeighborSampler([90, 90]), 1, 1_500),
    ],
)
def test_rows_asked_for_where_the_graph_is_in_parts(sampler, num_ranks, expected):
    task = SampleTask(graph=None, stores={}, sampler=sampler, schedule=Schedule(items=np.arange(100), batch_size=10), workspace=Workspace())
    assert num_asked(task, Rows(), range(num_ranks), is_graph_whole=False) == expected


def test_rows_asked_for_where_each_has_the_graph_are_those_of_a_batch():
    graph, schedule = load_dataset("digits-knn").graph, Schedule(items=np.arange(100), batch_size=10, seed=3)
    task = SampleTask(graph=graph, stores={}, sampler=NeighborSampler([5, 5]), schedule=schedule, workspace=Workspace())
    ids = task.sampled(0, 0).node_ids.copy()
    number = int((ids >= 500).sum())
    assert 0 < number < len(ids)
    assert num_asked(task, Rows(), range(2), is_graph_whole=True) == 2 * number
