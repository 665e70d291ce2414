"""Batches passed from the sampling process to the process that gathers features are bit-identical."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain import HeteroGraph, HeteroSampler, LaborSampler, NeighborSampler, RandomWalk, load_dataset
from hoptrain.engine.queue.message_slot import SharedMessageSlot
from hoptrain.engine.storage.shared_rows import CachedTable, SharedRows, tag_of
from hoptrain.samplers.batch.minibatch import named
from hoptrain.samplers.batch.serialise import read, written
from hoptrain.samplers.superbatch.transport import BatchReceiver, message_slots, put

DRAW = np.random.default_rng(0)
HETERO = HeteroGraph.from_edges(
    {"user": 40, "item": 60}, {("user", "buys", "item"): (DRAW.integers(0, 40, 300), DRAW.integers(0, 60, 300))}
).with_reverse()


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler([3, 2]),
        NeighborSampler([3, 2], expand="new"),
        LaborSampler([3, 2]),
        RandomWalk(length=3),
        HeteroSampler([3, 2], "item"),
        HeteroSampler([3, 2], expand="new"),
    ],
)
def test_there_and_back(sampler):
    graph = HETERO if isinstance(sampler, HeteroSampler) else load_dataset("digits-knn").graph
    batch = sampler.sample(graph, range(20), seed=1)
    [boxes] = message_slots(2, 0, [0], None)
    ids = {"edge_attr.0": np.arange(5, dtype=np.int64)}
    put(boxes, 7, written(batch, ids))
    assert boxes[1].number == 7
    packed, its_ids = read(*boxes[1].get()[1])
    found = packed.header.filled(packed.arrays())
    assert {name: (own.dtype, own.tolist()) for name, own in its_ids.items()} == {"edge_attr.0": (np.int64, [0, 1, 2, 3, 4])}
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.arrays().items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in batch.arrays().items()
    }
    assert sizes_of(found) == sizes_of(batch)
    assert (found.num_seeds, found.nested) == (batch.num_seeds, batch.nested)
    if isinstance(sampler, HeteroSampler):
        assert (found.seed_counts, found.seed_type) == (batch.seed_counts, batch.seed_type)
    assert listed(packed.row_ids()) == listed(batch.row_ids())
    for relation in batch.relations:
        store = named("edge_attr", relation)
        assert listed(packed.edge_places(store)) == listed(batch.edge_places(store))


def listed(arrays):
    return {name: own.tolist() for name, own in arrays.items()}


def sizes_of(batch):
    """Return the numbers of destinations, sources and edges of all blocks, including prefixes of other blocks."""
    hops = [hop if isinstance(hop, dict) else {"": hop} for hop in batch.blocks]
    return [{relation: (block.num_dst, block.num_src, block.num_edges) for relation, block in hop.items()} for hop in hops]


def test_a_sample_of_another_step_is_none():
    batch = NeighborSampler([2]).sample(load_dataset("digits-knn").graph, np.arange(4))
    [boxes] = message_slots(2, 0, [0], None)
    shared = SharedRows.make([CachedTable(10, 4, 10, 10_000)], 1)
    shared.publish(tag_of(1, 5))
    put(boxes, tag_of(1, 3), written(batch))
    receiver = BatchReceiver(boxes=boxes, shared=shared, rank=0, patience_s=5.0)
    assert receiver.batch(1, 3)[0].num_seeds == 4
    with refused("step 5", "sample overwritten loader", "new iterator"):
        receiver.batch(1, 5)


def test_a_sample_that_is_overwritten_while_it_is_read_is_none(monkeypatch):
    """A sample that is overwritten while a slow reader of an abandoned epoch reads it is rejected, not returned as a batch."""
    graph = load_dataset("digits-knn").graph
    first, second = (written(NeighborSampler([2]).sample(graph, np.arange(number))) for number in (4, 300))
    [boxes] = message_slots(1, 0, [0], None)
    shared = SharedRows.make([CachedTable(10, 4, 10, 10_000)], 1)
    shared.publish(tag_of(2, 0))
    put(boxes, tag_of(1, 0), first)
    receiver, get = BatchReceiver(boxes=boxes, shared=shared, rank=0, patience_s=5.0), SharedMessageSlot.get

    def get_late(box):
        box.put(0, [])
        found = get(box)
        box.put(tag_of(2, 0), [second])
        return found

    monkeypatch.setattr(SharedMessageSlot, "get", get_late)
    with refused("step 0", "sample overwritten loader", "new iterator"):
        receiver.batch(1, 0)
