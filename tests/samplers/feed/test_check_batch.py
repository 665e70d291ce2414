"""What a sampler returns: every rule of a mini-batch, broken once; and the samplers of the house, which keep them in every batch."""

from dataclasses import replace

import numpy as np
import pytest
from reference.samplers import Floating

from hoptrain import samplers
from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph, InputError
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.feed.check_batch import check_batch, prepared

SEEDS = np.arange(0, 40, 2)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def with_block(number, **change):
    """A change to a block, by functions of its fields."""

    def change_batch(batch):
        block = batch.blocks[number]
        new = replace(block, **{name: function(getattr(block, name)) for name, function in change.items()})
        return replace(batch, blocks=(*batch.blocks[:number], new, *batch.blocks[number + 1 :]))

    return change_batch


def with_nodes(function):
    return lambda batch: replace(batch, node_ids=function(batch.node_ids))


FORM = {
    "node_ids of float64: ids are integers; return numpy int32 or int64": with_nodes(lambda ids: ids.astype(float)),
    "node_ids of list: ids are integers; return": with_nodes(list),
    r"node_ids of shape \(\d+, 1\): it has one dimension; correct it": with_nodes(lambda ids: ids[:, None]),
    "1 blocks: there is one for each of num_hops, 2; correct": lambda batch: replace(batch, blocks=batch.blocks[:1]),
    r"num_seeds 0 with \d+ nodes: the seeds are the first nodes, at least one": lambda batch: replace(batch, num_seeds=0),
    r"int as blocks\[1\]: the graph of a hop is a Block; return one": lambda batch: replace(batch, blocks=(batch.blocks[0], 3)),
    r"blocks\[0\].indices of float32: ids are integers": with_block(0, indices=lambda a: a.astype(np.float32)),
    r"blocks\[1\].indptr of uint32: ids are integers": with_block(1, indptr=lambda a: a.astype(np.uint32)),
    r"blocks\[1\].indptr of no entry: offsets begin with 0": with_block(1, indptr=lambda a: a[:0]),
    r"\d+ blocks\[0\].edge_ids of \d+ edges: there is one for each; correct": with_block(0, edge_ids=lambda a: a[1:]),
    r"blocks\[0\].weights of float64: weights are float32; return numpy float32": with_block(0, weights=lambda _: np.ones(3)),
    r"blocks\[0\] with \d+ sources and \d+ destinations: its sources are the batch's nodes": with_block(0, num_src=lambda n: n - 1),
    r"blocks\[1\] with \d+ sources and \d+ destinations: its sources are the destinations of blocks\[0\], \d+": with_block(
        1, num_src=lambda n: n + 1
    ),
    "20 destinations of the last block and num_seeds 19: these are the seeds": lambda batch: replace(batch, num_seeds=19),
    r"2 seed_weights for 20 seeds: there is one for each": lambda batch: replace(batch, seed_weights=np.ones(2, np.float32)),
    r"extra\['names'\] of list: extras travel as arrays": lambda batch: replace(batch, extra={"names": ["a"]}),
    r"extra\['names'\] of object: extras travel as arrays": lambda batch: replace(batch, extra={"names": np.array([None])}),
    r"blocks\[0\].indptr from 1 to \d+: offsets run from 0 to the number of edges": with_block(0, indptr=lambda a: changed(a, 0, 1)),
    r"blocks\[1\].indptr from 0 to 3: offsets run from 0": with_block(1, indptr=lambda a: changed(a, -1, 3)),
}
CONTENTS = {
    "500 in node_ids: they lie from 0 to 199; correct it": with_nodes(lambda ids: changed(ids, -1, 500)),
    "-1 in node_ids: they lie from 0 to 199": with_nodes(lambda ids: changed(ids, -1, -1)),
    "vertex 0 twice in node_ids: a vertex is one node; return it once": with_nodes(lambda ids: changed(ids, -1, 0)),
    "other seeds than it was asked for: the seeds asked for come first, in their order": with_nodes(
        lambda ids: changed(ids, [0, 1], ids[[1, 0]])
    ),
    "other seeds than it was asked for: with seed_weights they are among": lambda batch: replace(
        batch, seed_weights=np.ones(20, np.float32), node_ids=changed(batch.node_ids, [0, -1], batch.node_ids[[-1, 0]])
    ),
    "nan in seed_weights: weights are finite": lambda batch: replace(batch, seed_weights=np.full(20, np.nan, np.float32)),
    r"blocks\[0\].indptr that falls: offsets never do": with_block(0, indptr=lambda a: changed(a, 1, a[-1])),
    r"\d+ in blocks\[1\].indices: they lie from 0 to \d+": with_block(1, indices=lambda a: changed(a, 0, 199)),
    r"-2 in blocks\[1\].edge_ids: they lie from -1 to 2999": with_block(1, edge_ids=lambda a: changed(a, 0, -2)),
    r"\d+ in blocks\[1\].edge_ids for the edge from vertex \d+ to 0: an edge id is a place in graph.indices": with_block(
        1, edge_ids=lambda a: changed(a, 0, 2999)
    ),
    r"-1.0 in blocks\[0\].weights: weights are finite and not negative": lambda batch: with_block(
        0, weights=lambda _: np.full(batch.blocks[0].num_edges, -1, np.float32)
    )(batch),
}


@pytest.fixture
def batch(graph):
    return NeighborSampler([4, 3]).sample(graph, SEEDS)


@pytest.mark.parametrize("message", FORM)
def test_each_batch_is_checked_by_form(graph, batch, message):
    with pytest.raises(InputError, match=f"^NeighborSampler returned {message}[^\n]*$"):
        check_batch(FORM[message](batch), NeighborSampler([4, 3]), graph)


@pytest.mark.parametrize("message", CONTENTS)
def test_the_first_batch_is_checked_in_full(graph, batch, message):
    sampler, wrong = NeighborSampler([4, 3]), CONTENTS[message](batch)
    check_batch(wrong, sampler, graph)
    with pytest.raises(InputError, match=f"^NeighborSampler returned {message}[^\n]*$"):
        check_batch(wrong, sampler, graph, SEEDS)


def test_a_nested_batch_has_blocks_that_are_beginnings(graph, batch):
    with pytest.raises(InputError, match=r"returned blocks\[1\] that is not the beginning of blocks\[0\]"):
        check_batch(replace(batch, nested=True), NeighborSampler([4, 3]), graph, SEEDS)


class Nothing(NeighborSampler):
    def sample_on_cpu(self, graph, seeds, address, workspace):
        return None


def test_a_sampler_that_makes_no_batch(graph):
    with pytest.raises(InputError, match=r"^Nothing returned NoneType: sample_on_cpu makes a mini-batch; return a MiniBatch$"):
        Nothing([3]).sample(graph, SEEDS)


TYPED = {
    r"node_ids\['a'\] of float64: ids are integers": lambda b: replace(b, node_ids=b.node_ids | {"a": b.node_ids["a"].astype(float)}),
    r"int as blocks\[0\]\[\('a', 'r', 'a'\)\]: the graph of a hop is a Block": lambda b: replace(b, blocks=({("a", "r", "a"): 3},)),
    "0 blocks: there is one for each of num_hops, 1": lambda b: replace(b, blocks=()),
    "vertex 0 twice in node_ids": lambda b: replace(b, node_ids=b.node_ids | {"a": changed(b.node_ids["a"], -1, 0)}),
    "other seeds than it was asked for": lambda b: replace(b, node_ids=b.node_ids | {"a": changed(b.node_ids["a"], [0, 1], [2, 0])}),
    r"seed_counts \{'a': 20\} and num_seeds 2: these are all of them": lambda b: replace(b, num_seeds=2),
    r"extra\['trees'\] of str: extras travel as arrays": lambda b: replace(b, extra={"trees": "x"}),
    r"blocks\[0\].* with 999 sources: they are the first of \d+ nodes": lambda b: replace(
        b, blocks=({key: replace(block, num_src=999) for key, block in b.blocks[0].items()},)
    ),
    r"2999 in blocks\[0\].*edge_ids for the edge from vertex": lambda b: replace(
        b, blocks=({key: replace(block, edge_ids=changed(block.edge_ids, 0, 2999)) for key, block in b.blocks[0].items()},)
    ),
}


@pytest.mark.parametrize("message", TYPED)
def test_a_typed_batch_is_checked_too(graph, message):
    typed = HeteroGraph({"a": graph.num_nodes}, {("a", "r", "a"): (graph.indptr, graph.indices)})
    sampler = HeteroSampler([3], "a")
    batch = sampler.sample(typed, SEEDS)
    check_batch(batch, sampler, typed, SEEDS)
    with pytest.raises(InputError, match=f"^HeteroSampler returned {message}[^\n]*$"):
        check_batch(TYPED[message](batch), sampler, typed, SEEDS)


@pytest.mark.parametrize(("num_workers", "first"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_a_wrong_batch_is_one_line_of_the_loader(dataset, num_workers, first):
    message = r"^Floating returned node_ids of float64: ids are integers; return numpy int32 or int64 \[hoptrain explain returned\]$"
    with SampleLoader(dataset, Floating([3], first), batch_size=16, num_workers=num_workers) as loader:
        with pytest.raises(InputError, match=message):
            list(loader)
        assert loader.state_dict() == {"epoch": 0, "step": first}


class Unready(NeighborSampler):
    def __init__(self, result):
        super().__init__([3])
        self.result = result

    def prepare(self, graph, seeds):
        return None if self.result is None else self

    def items(self, graph, seeds):
        return self.result


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "Unready.prepare returned NoneType: it returns the sampler to use; end it with 'return self'"),
        (np.ones(3), r"Unready.items returned float64 of shape \(3,\): an epoch deals out ids; return a one-dimensional integer array"),
    ],
)
def test_what_a_sampler_prepares(graph, result, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        prepared(Unready(result), graph, SEEDS)


def house(graph):
    """The samplers of the house, with the graph that each needs."""
    rng = np.random.default_rng(2)
    weighted = Graph(graph.indptr, graph.indices, weights=rng.random(graph.num_edges).astype(np.float32))
    timed = Graph(graph.indptr, graph.indices, times=rng.integers(0, 100, graph.num_edges))
    neighbors = NeighborSampler([4, 3])
    plain = [
        neighbors,
        NeighborSampler([4, -1]),
        NeighborSampler([4, 3], replace=True),
        NeighborSampler([4, 3], expand="new"),
        samplers.LaborSampler([4, 3], importance_rounds=1),
        samplers.PinSAGESampler([4, 3]),
        samplers.MVSSampler(neighbors, num_draws=8),
        samplers.WeightedSeedSampler(neighbors, 1 + np.arange(graph.num_nodes) % 3),
        samplers.VRGCNSampler([2, 2]),
        samplers.FastGCNSampler([40, 40]),
        samplers.LadiesSampler([40, 40]),
        samplers.ASGCNSampler([40, 40]),
        samplers.ClusterSampler(4),
        samplers.SaintNodeSampler(50),
        samplers.SaintEdgeSampler(50),
        samplers.SaintWalkSampler(20, 2),
        samplers.ShadowSampler(2, 4),
        samplers.ShadowPPRSampler(),
        samplers.RippleWalkSampler(30),
        samplers.LinkSampler(neighbors),
        samplers.LinkSampler(samplers.ShadowSampler(2, 4), exclude="none"),
        samplers.RandomWalk(4),
        samplers.Node2Vec(4, num_walks=2),
    ]
    times = np.full(graph.num_nodes, 60)
    relation, columns = ("a", "r", "a"), (graph.indptr, graph.indices)
    typed = HeteroGraph({"a": graph.num_nodes}, {relation: columns}, times={relation: timed.times})
    of_types = [
        HeteroSampler([4, 3], "a", expand="new"),
        samplers.HeteroTemporalSampler([4, 3], "a", {"a": times}),
        samplers.HeteroLaborSampler([4, 3], "a"),
        samplers.HeteroLinkSampler(HeteroSampler([4, 3]), relation),
        samplers.HGTSampler([20, 20], "a"),
        samplers.HeteroPinSAGESampler([4, 3], ["a", "a", "a"]),
        samplers.WeightedSeedSampler(HeteroSampler([4, 3], "a"), 1 + np.arange(graph.num_nodes) % 3),
    ]
    return [
        *((graph, sampler) for sampler in plain),
        (weighted, NeighborSampler([4, 3], weighted=True)),
        (timed, samplers.TemporalSampler([4, 3], seed_times=times)),
        (timed, samplers.LinkSampler(samplers.TemporalSampler([4, 3]))),
        *((typed, sampler) for sampler in of_types),
    ]


def data_of(graph):
    """What a loader takes, without features."""
    splits = {"train": SEEDS}
    if isinstance(graph, HeteroGraph):
        return HeteroDataset(graph=graph, seed_type="a", splits=splits)
    return Dataset(name="d", graph=graph, splits=splits)


@pytest.mark.timeout(300)  # compiles all of them
def test_the_samplers_of_the_house_keep_the_rules(graph):
    checked = set()
    for own, sampler in house(graph):
        loader = SampleLoader(data_of(own), sampler, batch_size=1 if sampler.single_item else 16)
        ready, schedule = loader._task.sampler, loader.schedule
        for step, batch in zip(range(3), loader, strict=False):
            check_batch(batch, ready, own, schedule.batch_items(0, step))
        checked.add(type(sampler).__name__)
    assert {name for name in dir(samplers) if name.endswith("Sampler")} <= checked | {"Sampler"}
