"""Options of HeteroSampler: weights, nested hops, seeds of several types, and default fanouts."""

import numpy as np
from cases.batches import contents
from cases.mistakes import Mistake, each_of
from scipy.stats import chisquare

from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers import HeteroSampler, HeteroTemporalSampler


def test_relations_without_weights_draw_uniformly_beside_those_with_some():
    """Relations with weights draw by weight, and relations without weights uniformly, from the same six edges."""
    edges = (np.arange(6), np.zeros(6, int))
    relations = {("a", "heavy", "b"): edges, ("a", "plain", "b"): edges}
    weights = {("a", "heavy", "b"): np.array([5, 1, 1, 1, 1, 1], np.float32)}
    graph = HeteroGraph.from_edges({"a": 6, "b": 1}, relations, weights=weights)
    sampler = HeteroSampler([1], "b", weighted=True)
    batches = [sampler.sample(graph, np.array([0]), batch=number) for number in range(3000)]
    for name, probabilities in (("heavy", [0.5, *[0.1] * 5]), ("plain", [1 / 6] * 6)):
        drawn = np.concatenate([batch.blocks[0]["a", name, "b"].edge_ids for batch in batches])
        found = np.bincount(drawn, minlength=6)
        assert chisquare(found, np.array(probabilities) * 3000).pvalue > 1e-4


def test_seeds_of_several_types():
    graph = LONE_TYPES
    batch = HeteroSampler([2]).sample(graph, {"b": [1, 0], "a": np.array([3])})
    assert {name: ids.tolist() for name, ids in batch.seeds.items()} == {"b": [1, 0], "a": [3]}
    assert (batch.seed_type, batch.num_seeds, batch.seed_counts) == (None, 3, {"a": 1, "b": 2})
    assert graph.numbered({"b": [1, 0], "a": [3]}).tolist() == [5, 4, 3]
    assert {name: (ids.tolist(), places.tolist()) for name, (ids, places) in graph.by_type(np.array([5, 3, 4])).items()} == {
        "a": ([3], [1]),
        "b": ([1, 0], [0, 2]),
    }


LONE_TYPES = HeteroGraph.from_edges({"a": 4, "b": 2}, {("a", "r", "b"): ([0, 1, 2], [0, 0, 1]), ("b", "s", "a"): ([0, 1], [3, 2])})


def test_fanouts_with_a_default():
    graph = LONE_TYPES
    whole = HeteroSampler({"a:r:b": [1, 2], "b:s:a": [3, 1]}, "b").sample(graph, np.arange(2))
    short = HeteroSampler({("a", "r", "b"): [1, 2]}, "b", default=[3, 1])
    assert contents(short.sample(graph, np.arange(2))) == contents(whole)
    assert repr(short) == "HeteroSampler(fanouts={'a:r:b': [1, 2]}, default=[3, 1], seed_type='b', replace=False)"


def drawn(seeds, *given, **options):
    return HeteroSampler(*given, **options).sample(LONE_TYPES, seeds)


def split_of_one_type_for_seeds_of_several():
    HeteroSampler([1]).items(LONE_TYPES, np.arange(3))


MISTAKES = {
    "weighted=True on a GPU": Mistake(
        lambda: HeteroSampler([1], "a", weighted=True).sample(LONE_TYPES, np.array([0]), device="cuda"),
        value="weighted=True",
        rule='HeteroSampler device="cuda" no kernels CUDA',
        remedy='device="cpu"',
    ),
    "a seed twice": Mistake(lambda: drawn({"b": [1, 0, 1]}, [2]), value="seed 1", rule="given twice"),
    "an unknown type": Mistake(lambda: drawn({"c": [1]}, [2]), value="'c'", rule="no type", remedy="a, b"),
    "an unknown node": Mistake(lambda: drawn({"a": [4]}, [2]), value="4 of type 'a'", rule="not exist", remedy="0 to 3"),
    "no seeds": Mistake(lambda: drawn({}, [2]), value="int64", rule="seeds shape"),
    "seeds by type beside a type": Mistake(lambda: drawn({"a": [1]}, [2], "a"), value="'a'", rule="seeds by type seed_type"),
    "a split of one type": Mistake(split_of_one_type_for_seeds_of_several, value="seed_type", rule="without split one type"),
    "a default beside fanouts for all": Mistake(
        lambda: HeteroSampler([1], "b", default=[1]), value="[1]", rule="default fanouts all relations", remedy="leave one out"
    ),
    "an unknown relation": Mistake(
        lambda: drawn(np.arange(2), {"a:t:b": [1]}, "b", default=[1]),
        value="a:t:b",
        rule="graph's relations are",
        remedy="name a:r:b, b:s:a",
    ),
    "fanouts as text": Mistake(lambda: HeteroSampler("3,3", "v"), value="3,3", rule="fanouts", remedy="numbers shares each hop"),
    "one fanout for all hops": Mistake(lambda: HeteroSampler(5, "v"), value="5", rule="fanouts", remedy="numbers shares each hop"),
    "a fanout as text": Mistake(lambda: HeteroSampler(["2"], "v"), value="'2'", rule="fanouts", remedy="numbers shares each hop"),
    "one fanout of a relation": Mistake(
        lambda: HeteroSampler({"a:r:b": 3}, "v"), value="3", rule="fanouts", remedy="numbers shares each hop"
    ),
    "times that are not by type": Mistake(
        lambda: HeteroTemporalSampler([3], "v", seed_times=np.arange(4)), value="ndarray", rule="seed_times", remedy="by type"
    ),
    "a graph without relations": Mistake(
        lambda: HeteroSampler([3], "v").sample(HeteroGraph({"v": 4}, {}), np.arange(2)), value="no relations", rule="no edges to sample"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
