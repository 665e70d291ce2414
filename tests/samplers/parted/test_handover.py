"""A batch goes from the process that samples to the one that makes it ready, and is the same to the bit."""

import numpy as np
import pytest

from hoptrain import LaborSampler, NeighborSampler, RandomWalk, load_dataset
from hoptrain.engine import InputError
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, tag_of
from hoptrain.samplers.parted.handover import Handed, boxes_of, read, written


@pytest.mark.parametrize(
    "sampler", [NeighborSampler([3, 2]), NeighborSampler([3, 2], expand="new"), LaborSampler([3, 2]), RandomWalk(length=3)]
)
def test_there_and_back(sampler):
    batch = sampler.sample(load_dataset("digits-knn").graph, range(20), seed=1)
    [boxes] = boxes_of(2, 0, [0], None)
    boxes[1].put(7, written(batch))
    found = read(boxes[1].get()[1])
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.arrays().items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in batch.arrays().items()
    }
    assert [b.num_src for b in found.blocks] == [b.num_src for b in batch.blocks]
    assert (found.num_seeds, found.nested) == (batch.num_seeds, batch.nested)


def test_a_sample_of_another_step_is_none():
    batch = NeighborSampler([2]).sample(load_dataset("digits-knn").graph, np.arange(4))
    [boxes] = boxes_of(2, 0, [0], None)
    shared = SharedRows.make([CachedTable(10, 4, 10, 10_000)], 1)
    shared.publish(tag_of(1, 5))
    boxes[1].put(tag_of(1, 3), written(batch))
    handed = Handed(boxes=boxes, shared=shared, rank=0, patience_s=5.0)
    assert handed.batch(1, 3).num_seeds == 4
    with pytest.raises(InputError, match="the sample of step 5 is not there any more"):
        handed.batch(1, 5)
