"""Checks of a sampler's batches: a batch breaks each rule once, and hoptrain's own samplers keep all rules."""

from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused
from reference.samplers import Floating

from hoptrain import samplers
from hoptrain.engine import Dataset, Graph, HeteroDataset, HeteroGraph
from hoptrain.samplers import HeteroSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.loader.check_batch import check_batch, prepared

SEEDS = np.arange(0, 40, 2)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def with_block(number, **change):
    """Return a function that changes a batch: it replaces fields of the block with index ``number`` by functions of these fields."""

    def change_batch(batch):
        block = batch.blocks[number]
        new = replace(block, **{name: function(getattr(block, name)) for name, function in change.items()})
        return replace(batch, blocks=(*batch.blocks[:number], new, *batch.blocks[number + 1 :]))

    return change_batch


def with_nodes(function):
    return lambda batch: replace(batch, node_ids=function(batch.node_ids))


# For each invalid batch: the change to a valid one, and the value, rule and remedy in its message.
FORM = {
    "node ids as reals": (with_nodes(lambda ids: ids.astype(float)), "float64", "node_ids integers", "numpy int32 int64"),
    "node ids in a list": (with_nodes(list), "list", "node_ids integers", "numpy int32 int64"),
    "node ids in a matrix": (with_nodes(lambda ids: ids[:, None]), ", 1)", "node_ids shape one dimension"),
    "too few blocks": (lambda batch: replace(batch, blocks=batch.blocks[:1]), "1 blocks", "num_hops 2"),
    "no seeds": (lambda batch: replace(batch, num_seeds=0), "num_seeds 0", "least 1 most nodes seeds first"),
    "a block that is a number": (
        lambda batch: replace(batch, blocks=(batch.blocks[0], 3)),
        "int as blocks[1]",
        "graph hop Block",
        "return one",
    ),
    "sources as reals": (
        with_block(0, indices=lambda a: a.astype(np.float32)),
        "float32",
        "blocks[0].indices integers",
        "numpy int32 int64",
    ),
    "unsigned offsets": (with_block(1, indptr=lambda a: a.astype(np.uint32)), "uint32", "blocks[1].indptr integers", "numpy int32 int64"),
    "no offsets": (with_block(1, indptr=lambda a: a[:0]), "no entry", "blocks[1].indptr offsets begin 0 end destination"),
    "an edge without id": (with_block(0, edge_ids=lambda a: a[1:]), "blocks[0].edge_ids", "edges one each"),
    "weights of float64": (with_block(0, weights=lambda _: np.ones(3)), "float64", "blocks[0].weights float32", "numpy float32"),
    "fewer sources than nodes": (with_block(0, num_src=lambda n: n - 1), "blocks[0]", "sources destinations batch's nodes first"),
    "more sources than destinations of the block before": (
        with_block(1, num_src=lambda n: n + 1),
        "blocks[1]",
        "sources destinations blocks[0] first",
    ),
    "fewer seeds than destinations": (lambda batch: replace(batch, num_seeds=19), "num_seeds 19", "20 destinations last block"),
    "too few weights of seeds": (lambda batch: replace(batch, seed_weights=np.ones(2, np.float32)), "2 seed_weights", "20 seeds one each"),
    "an extra in a list": (lambda batch: replace(batch, extra={"names": ["a"]}), "list", "extra['names'] arrays numbers", "NumPy array"),
    "an extra of objects": (
        lambda batch: replace(batch, extra={"names": np.array([None])}),
        "object",
        "extra['names'] arrays numbers",
        "NumPy array",
    ),
    "offsets that begin with 1": (with_block(0, indptr=lambda a: changed(a, 0, 1)), "1", "blocks[0].indptr offsets 0 number edges"),
    "offsets that end too early": (with_block(1, indptr=lambda a: changed(a, -1, 3)), "3", "blocks[1].indptr offsets 0 number edges"),
}
CONTENTS = {
    "a node that the graph has not": (with_nodes(lambda ids: changed(ids, -1, 500)), "500", "node_ids 0 199"),
    "a negative node": (with_nodes(lambda ids: changed(ids, -1, -1)), "-1", "node_ids 0 199"),
    "a node that is two nodes": (
        with_nodes(lambda ids: changed(ids, -1, 0)),
        "node 0",
        "twice node_ids distinct",
        "once distinct_nodes",
    ),
    "seeds in another order": (
        with_nodes(lambda ids: changed(ids, [0, 1], ids[[1, 0]])),
        "seeds",
        "requested first order",
        "by_seeds = False",
    ),
    "seeds with weights that were not asked for": (
        lambda batch: replace(
            batch, seed_weights=np.ones(20, np.float32), node_ids=changed(batch.node_ids, [0, -1], batch.node_ids[[-1, 0]])
        ),
        "seeds",
        "requested seed_weights among",
        "by_seeds = False",
    ),
    "a weight of a seed that is no number": (
        lambda batch: replace(batch, seed_weights=np.full(20, np.nan, np.float32)),
        "nan",
        "seed_weights finite not negative",
    ),
    "offsets that fall": (with_block(0, indptr=lambda a: changed(a, 1, a[-1])), "blocks[0].indptr", "falls offsets not decrease"),
    "a source that the block has not": (with_block(1, indices=lambda a: changed(a, 0, 199)), "199", "blocks[1].indices 0"),
    "an edge below -1": (with_block(1, edge_ids=lambda a: changed(a, 0, -2)), "-2", "blocks[1].edge_ids -1 2999"),
    "the id of another edge": (
        with_block(1, edge_ids=lambda a: changed(a, 0, 2999)),
        "2999",
        "blocks[1].edge_ids edge CSC position graph.indices column destination",
        "-1",
    ),
    "a negative weight of edges": (
        lambda batch: with_block(0, weights=lambda _: np.full(batch.blocks[0].num_edges, -1, np.float32))(batch),
        "-1.0",
        "blocks[0].weights finite not negative",
    ),
}


@pytest.fixture
def batch(graph):
    return NeighborSampler([4, 3]).sample(graph, SEEDS)


@pytest.mark.parametrize("wrong", FORM.values(), ids=FORM)
def test_each_batch_is_checked_by_form(graph, batch, wrong):
    change, value, rule, *remedy = wrong
    with refused(value, f"NeighborSampler returned {rule}", *remedy):
        check_batch(change(batch), NeighborSampler([4, 3]), graph)


@pytest.mark.parametrize("wrong", CONTENTS.values(), ids=CONTENTS)
def test_the_first_batch_is_checked_in_full(graph, batch, wrong):
    change, value, rule, *remedy = wrong
    sampler, changed_batch = NeighborSampler([4, 3]), change(batch)
    check_batch(changed_batch, sampler, graph)
    with refused(value, f"NeighborSampler returned {rule}", *remedy):
        check_batch(changed_batch, sampler, graph, SEEDS)


class Nothing(NeighborSampler):
    def sample_on_cpu(self, graph, seeds, address, workspace):
        return None


HETERO = {
    "node ids as reals": (
        lambda b: replace(b, node_ids=b.node_ids | {"a": b.node_ids["a"].astype(float)}),
        "float64",
        "node_ids['a'] integers",
        "numpy int32 int64",
    ),
    "a block that is a number": (
        lambda b: replace(b, blocks=({("a", "r", "a"): 3},)),
        "int as blocks[0]",
        "('a', 'r', 'a') graph hop Block",
        "return one",
    ),
    "no blocks": (lambda b: replace(b, blocks=()), "0 blocks", "num_hops 1"),
    "a node that is two nodes": (
        lambda b: replace(b, node_ids=b.node_ids | {"a": changed(b.node_ids["a"], -1, 0)}),
        "node 0",
        "twice node_ids['a'] distinct",
        "once distinct_nodes",
    ),
    "seeds in another order": (
        lambda b: replace(b, node_ids=b.node_ids | {"a": changed(b.node_ids["a"], [0, 1], [2, 0])}),
        "seeds",
        "requested first order",
        "by_seeds = False",
    ),
    "fewer seeds than their types have": (lambda b: replace(b, num_seeds=2), "num_seeds 2", "seed_counts {'a': 20} same sum"),
    "an extra that is text": (lambda b: replace(b, extra={"trees": "x"}), "str", "extra['trees'] arrays numbers", "NumPy array"),
    "missing sources": (
        lambda b: replace(b, blocks=({key: replace(block, num_src=999) for key, block in b.blocks[0].items()},)),
        "999 sources",
        "blocks[0] first nodes",
    ),
    "fewer destinations than seeds": (
        lambda b: replace(b, blocks=({key: replace(block, indptr=np.delete(block.indptr, -2)) for key, block in b.blocks[0].items()},)),
        "19 destinations",
        "last block num_seeds 20 same",
    ),
    "the id of another edge": (
        lambda b: replace(
            b, blocks=({key: replace(block, edge_ids=changed(block.edge_ids, 0, 2999)) for key, block in b.blocks[0].items()},)
        ),
        "2999",
        "blocks[0] edge_ids edge CSC position graph.indices column destination",
        "-1",
    ),
}


@pytest.mark.parametrize("wrong", HETERO.values(), ids=HETERO)
def test_a_hetero_batch_is_checked_too(graph, wrong):
    change, value, rule, *remedy = wrong
    hetero = HeteroGraph({"a": graph.num_nodes}, {("a", "r", "a"): (graph.indptr, graph.indices)})
    sampler = HeteroSampler([3], "a")
    batch = sampler.sample(hetero, SEEDS)
    check_batch(batch, sampler, hetero, SEEDS)
    with refused(value, f"HeteroSampler returned {rule}", *remedy):
        check_batch(change(batch), sampler, hetero, SEEDS)


@pytest.mark.parametrize(("num_workers", "first"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_a_wrong_batch_is_one_line_of_the_loader(dataset, num_workers, first):
    with SampleLoader(dataset, Floating([3], first), batch_size=16, num_workers=num_workers) as loader:
        with refused("float64", "Floating node_ids integers", "numpy int32 int64 explain returned"):
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


def own_samplers(graph):
    """Return hoptrain's samplers, each with the graph that it needs."""
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
    hetero = HeteroGraph({"a": graph.num_nodes}, {relation: columns}, times={relation: timed.times})
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
        *((hetero, sampler) for sampler in of_types),
    ]


def data_of(graph):
    """Return a data set without features that a loader accepts."""
    splits = {"train": SEEDS}
    if isinstance(graph, HeteroGraph):
        return HeteroDataset(graph=graph, seed_type="a", splits=splits)
    return Dataset(name="d", graph=graph, splits=splits)


@pytest.mark.timeout(300)  # compiles all of them
def test_hoptrain_s_samplers_keep_the_rules(graph):
    checked = set()
    for own, sampler in own_samplers(graph):
        loader = SampleLoader(data_of(own), sampler, batch_size=1 if sampler.single_item else 16)
        ready, schedule = loader.task.sampler, loader.schedule
        for step, batch in zip(range(3), loader, strict=False):
            check_batch(batch, ready, own, schedule.batch_items(0, step))
        checked.add(type(sampler).__name__)
    assert {name for name in dir(samplers) if name.endswith("Sampler")} <= checked | {"Sampler"}


MISTAKES = {
    "blocks that are not nested": Mistake(
        lambda graph, batch: check_batch(replace(batch, nested=True), NeighborSampler([4, 3]), graph, SEEDS),
        value="blocks[1]",
        rule="not beginning blocks[0] nested",
        remedy="nested=False",
    ),
    "a sampler that makes no batch": Mistake(
        lambda graph: Nothing([3]).sample(graph, SEEDS), value="NoneType", rule="Nothing sample_on_cpu mini-batch", remedy="MiniBatch"
    ),
    "a sampler that prepares nothing": Mistake(
        lambda graph: prepared(Unready(None), graph, SEEDS), value="NoneType", rule="Unready.prepare sampler", remedy="'return self'"
    ),
    "items that are no ids": Mistake(
        lambda graph: prepared(Unready(np.ones(3)), graph, SEEDS),
        value="float64",
        rule="Unready.items (3,) ids",
        remedy="one-dimensional integer array",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
