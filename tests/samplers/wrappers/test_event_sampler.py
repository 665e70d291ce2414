"""Events in time order: a batch has the latest neighbours from before its step, no later event, and reproducible negatives."""

from dataclasses import replace

import numpy as np
import torch
from cases.mistakes import Mistake, each_of
from scipy.stats import chisquare
from torch_geometric.nn.models.tgn import LastNeighborLoader

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.datasets.events import Events
from hoptrain.samplers import SampleLoader
from hoptrain.samplers.wrappers.events import EventSampler, EventSchedule


def drawn(number, num_nodes=30, seed=0):
    """Return random events between all nodes, with self loops and repetitions; any node may be a destination."""
    rng = np.random.default_rng(seed)
    src, dst = (rng.random((2, number)) ** 2 * num_nodes).astype(np.int64)
    return Events(src=src, dst=dst, t=np.sort(rng.integers(0, number // 2, number)), num_nodes=num_nodes, destinations=np.arange(num_nodes))


def loader(events, first, last, batch_size=16, rank=0, world_size=1, **options):
    graph = events.graph()
    schedule = EventSchedule(items=np.arange(first, last), batch_size=batch_size, rank=rank, world_size=world_size, shuffle=False, seed=5)
    return SampleLoader(
        Dataset(graph=graph, validate=False), EventSampler(events, **options).prepare(graph, np.arange(1)), schedule=schedule
    )


def edges_of(batch):
    """Return the (source, destination, event) of each edge, with global ids."""
    sources, destinations = batch.blocks[0].edge_index()
    nodes = batch.node_ids
    return sorted(zip(nodes[sources].tolist(), nodes[destinations].tolist(), batch.extra["events"].tolist(), strict=True))


def latest(events, queried, begin, number):
    """Return the edges to each node's latest neighbours, found event by event, sorted as by ``edges_of``."""
    found = []
    for v in queried:
        own = [(int(events.dst[k]), v, k) for k in range(begin) if events.src[k] == v]
        own += [(int(events.src[k]), v, k) for k in range(begin) if events.dst[k] == v]
        found += sorted(own, key=lambda edge: edge[2])[-number:]
    return sorted(found)


def test_the_latest_neighbours_from_before_the_step():
    events = drawn(300)
    steps = []
    for batch in loader(events, 40, 270, num_neighbors=4):
        begin, end = batch.extra["step"].tolist()
        nodes, events_of_batch = batch.node_ids, np.arange(begin, end)
        assert (batch.extra["events"] < begin).all(), "no event of the batch or later"
        assert edges_of(batch) == latest(events, nodes[: batch.num_seeds].tolist(), begin, 4)
        assert len(set(nodes.tolist())) == len(nodes), "a node is one node"
        pairs, labels = nodes[batch.extra["pairs"]], batch.extra["labels"]
        assert np.array_equal(pairs[:, labels > 0], np.stack([events.src, events.dst])[:, events_of_batch])
        assert np.array_equal(pairs[0, labels == 0], events.src[events_of_batch])
        assert set(nodes[: batch.num_seeds].tolist()) == set(pairs.ravel().tolist())
        steps.append((begin, end))
    assert steps == [(begin, min(begin + 16, 270)) for begin in range(40, 270, 16)]


def test_neighbours_are_those_of_pyg():
    """Each node's latest neighbours are those of PyG's loader.

    Few events are added at a time, since PyG's loader keeps wrong events of a node if it is given more than it stores.
    """
    events = drawn(400)
    events = replace(events, dst=(events.dst + (events.dst == events.src)) % 30)  # without self loops, which PyG counts twice
    theirs = LastNeighborLoader(30, 5)
    theirs.reset_state()
    ends = [torch.from_numpy(column) for column in (events.src, events.dst)]
    for batch in loader(events, 0, 400, num_neighbors=5):
        nodes, edges, numbers = theirs(torch.from_numpy(batch.node_ids[: batch.num_seeds]).long())
        assert edges_of(batch) == sorted(zip(*nodes[edges].tolist(), numbers.tolist(), strict=True))
        begin, end = batch.extra["step"].tolist()
        for k in range(begin, end, 5):
            theirs.insert(*(column[k : min(k + 5, end)] for column in ends))


def test_no_batch_depends_on_a_later_event():
    """If all events after a step change, the batch of the step stays bit-identical."""
    events, other = drawn(120), drawn(120, seed=1)
    for step, batch in enumerate(loader(events, 0, 120, num_negatives=2)):
        wanted = {name: array.tolist() for name, array in batch.arrays().items() if not name.startswith("edge_ids")}
        end = int(batch.extra["step"][1])
        mixed = {name: np.r_[getattr(events, name)[:end], getattr(other, name)[end:]] for name in ("src", "dst")}
        changed = loader(replace(events, **mixed), 0, 120, num_negatives=2)
        changed.load_state_dict({"epoch": 0, "step": step})
        found = next(iter(changed)).arrays()
        assert {name: found[name].tolist() for name in wanted} == wanted


def test_two_ranks_have_the_batch_of_one():
    """The batches of two ranks together equal one rank's batch of twice the size, including negatives and neighbours."""
    events = drawn(250)
    parts = [list(loader(events, 30, 230, 10, rank, 2, num_negatives=3)) for rank in range(2)]
    for whole, *own in zip(loader(events, 30, 230, 20, num_negatives=3), *parts, strict=True):
        pairs = [each.node_ids[each.extra["pairs"]] for each in (whole, *own)]
        for is_event in (True, False):
            ends, *found = (ends[:, (each.extra["labels"] > 0) == is_event] for ends, each in zip(pairs, (whole, *own), strict=True))
            assert np.array_equal(ends, np.concatenate(found, axis=1))
        assert all(np.array_equal(each.extra["step"], whole.extra["step"]) for each in own)
        assert set(edges_of(whole)) == set(edges_of(own[0])) | set(edges_of(own[1]))


def test_negatives_are_uniform_and_of_their_epoch():
    events = replace(drawn(400), destinations=np.array([3, 8, 11, 20, 29]))
    epochs = []
    for epoch in (0, 1):
        each = loader(events, 0, 400, batch_size=50, num_negatives=10)
        each.set_epoch(epoch)
        epochs.append(np.concatenate([b.node_ids[b.extra["pairs"][1, b.extra["labels"] == 0]] for b in each]))
    assert set(epochs[0].tolist()) == {3, 8, 11, 20, 29}
    assert chisquare(np.bincount(epochs[0])[[3, 8, 11, 20, 29]]).pvalue > 0.001
    both = np.unique(np.stack(epochs), axis=1, return_counts=True)[1]
    assert len(both) == 25
    assert chisquare(both).pvalue > 0.001, "epochs are independent"


def shuffled(items):
    events = drawn(50)
    graph = events.graph()
    EventSampler(events).prepare(graph, np.arange(1)).sample(graph, np.array(items))


MISTAKES = {
    **{
        f"events {name}": Mistake(
            lambda items=items: shuffled(items),
            value=f"{items[:8]}",
            rule="events order time step 50",
            remedy="EventSchedule without shuffling",
        )
        for name, items in (
            ("in a batch that is empty", [5, 9, 7, 7]),
            ("before their step", [5, 9, 4, 9]),
            ("beyond the last", [0, 51, 0, 51]),
            ("as three numbers", [3, 1, 2]),
            ("in any order", np.random.default_rng(0).permutation(50).tolist()),
        )
    },
    "no negatives": Mistake(lambda: EventSampler(drawn(50), num_negatives=0), value="0", rule="num_negatives event least one negative"),
    "a graph without times": Mistake(
        lambda: EventSampler(drawn(50)).sample(Graph.from_edges([0], [1], 2), np.array([0, 1, 0, 1])),
        value="times",
        rule="graph no EventSampler",
        remedy="Events.graph()",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
