"""HeteroLinkSampler: pairs, negatives, and no message along predicted edges; equal to LinkSampler for a single relation."""

import numpy as np
import pytest
from cases.batches import contents
from cases.mistakes import Mistake, each_of, refused
from scipy.stats import chisquare

from hoptrain.engine import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers import HeteroLinkSampler, HeteroSampler, HeteroTemporalSampler, LinkSampler, NeighborSampler, SampleLoader, Workspace

NUM = {"user": 30, "item": 20}
BUYS, BOUGHT, KNOWS = ("user", "buys", "item"), ("item", "bought", "user"), ("user", "knows", "user")
RNG = np.random.default_rng(2)
PAIRS = RNG.integers(0, [[30], [20]], (2, 80))
EDGES = {BUYS: tuple(PAIRS), BOUGHT: tuple(PAIRS[::-1]), KNOWS: tuple(RNG.integers(0, 30, (2, 60)))}
GRAPH = HeteroGraph.from_edges(NUM, EDGES, times={BUYS: np.arange(80), BOUGHT: np.arange(80)})
PLACES = np.array([3, 70, 11, 40])


def ends(batch):
    """Return the pairs as global ids."""
    local, (source, _, destination) = batch.extra["pairs"], batch.seed_relation
    return np.stack([batch.node_ids[source][local[0]], batch.node_ids[destination][local[1]]])


def edges_of(batch):
    """Return the (source, destination) global ids of all sampled edges, by relation."""
    found = {}
    for hop in batch.blocks:
        for (source, name, destination), block in hop.items():
            src, dst = block.edge_index().numpy()
            pairs = zip(batch.node_ids[source][src].tolist(), batch.node_ids[destination][dst].tolist(), strict=True)
            found.setdefault((source, name, destination), set()).update(pairs)
    return found


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize(("exclude", "reverse"), [("none", None), ("self", None), ("reverse", BOUGHT)])
def test_pairs_and_what_is_excluded(expand, exclude, reverse):
    sampler = HeteroLinkSampler(HeteroSampler([-1, -1], expand=expand), BUYS, num_negatives=2, exclude=exclude, reverse_relation=reverse)
    batch = sampler.sample(GRAPH, PLACES, seed=4)
    columns = GRAPH.relations[BUYS]
    assert batch.seed_relation == BUYS
    pairs = ends(batch)
    assert pairs[:, :4].tolist() == [list(own) for own in PAIRS[:, columns.ids_of(PLACES)]]
    assert pairs[0, 4:].tolist() == np.repeat(pairs[0, :4], 2).tolist()
    assert batch.extra["labels"].tolist() == [1] * 4 + [0] * 8
    assert {name: sorted(ids.tolist()) for name, ids in batch.seeds.items()} == {
        "user": sorted(set(pairs[0].tolist())),
        "item": sorted(set(pairs[1].tolist())),
    }
    positives = set(zip(*pairs[:, :4].tolist(), strict=True))
    found, whole = edges_of(batch), edges_of(replace_exclude(sampler).sample(GRAPH, PLACES, seed=4))
    assert positives <= whole[BUYS]
    assert {(v, u) for u, v in positives} <= whole[BOUGHT]
    assert found[BUYS] == whole[BUYS] - (set() if exclude == "none" else positives)
    assert found[BOUGHT] == whole[BOUGHT] - ({(v, u) for u, v in positives} if exclude == "reverse" else set())
    assert found[KNOWS] == whole[KNOWS]


def test_reverse_edges_are_excluded_by_default():
    """Edges of the reverse relation are excluded by default.

    The reverse relation is ``rev_NAME``, or without ``rev_NAME`` the relation itself if it is within one type.
    """
    turned = HeteroGraph.from_edges(NUM, {BUYS: EDGES[BUYS], KNOWS: EDGES[KNOWS]}).with_reverse()
    rev_buys, rev_knows = ("item", "rev_buys", "user"), ("user", "rev_knows", "user")
    for graph, relation, reverse in (
        (GRAPH, BUYS, None), (GRAPH, KNOWS, KNOWS), (turned, BUYS, rev_buys), (turned, rev_buys, BUYS), (turned, KNOWS, rev_knows)
    ):  # fmt: skip
        sampler = HeteroLinkSampler(HeteroSampler([-1]), relation)
        assert sampler.reverses_in(graph) == (reverse,)
        named = HeteroLinkSampler(HeteroSampler([-1]), relation, exclude="reverse" if reverse else "self", reverse_relation=reverse)
        assert contents(sampler.sample(graph, PLACES % 50)) == contents(named.sample(graph, PLACES % 50))
    both = HeteroLinkSampler(HeteroSampler([-1]), [KNOWS, rev_buys])
    assert both.reverses_in(turned) == (rev_knows, BUYS)
    assert HeteroLinkSampler(HeteroSampler([-1]), BUYS, exclude="self").reverses_in(turned) == (None,)


def replace_exclude(sampler):
    return HeteroLinkSampler(sampler.sampler, sampler.relations, num_negatives=sampler.num_negatives, exclude="none")


@pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
def test_one_relation_is_link_sampling(graph, exclude):
    relation = ("v", "to", "v")
    hetero = HeteroGraph({"v": graph.num_nodes}, {relation: (graph.indptr, graph.indices)})
    reverse = relation if exclude == "reverse" else None
    ours = HeteroLinkSampler(HeteroSampler([4, 3]), relation, "uniform", 2, exclude, reverse).sample(hetero, PLACES, seed=9)
    theirs = LinkSampler(NeighborSampler([4, 3]), num_negatives=2, exclude=exclude).sample(graph, PLACES, seed=9)
    assert ours.node_ids["v"].tolist() == theirs.node_ids.tolist()
    assert {name: array.tolist() for name, array in ours.extra.items()} == {name: array.tolist() for name, array in theirs.extra.items()}
    for hop, block in zip(ours.blocks, theirs.blocks, strict=True):
        found = hop[relation].arrays()
        assert {name: array.tolist() for name, array in found.items()} == {name: array.tolist() for name, array in block.arrays().items()}


def test_negatives_are_uniform_over_the_destinations_type():
    sampler = HeteroLinkSampler(HeteroSampler([1]), BUYS, num_negatives=50)
    drawn = np.concatenate([ends(sampler.sample(GRAPH, PLACES, batch=number))[1, 4:] for number in range(20)])
    assert chisquare(np.bincount(drawn, minlength=20)).pvalue > 1e-4


def negatives_of(distribution, relation=BUYS, count=40):
    """Return the sources and destinations of many negatives."""
    sampler = HeteroLinkSampler(HeteroSampler([1]), relation, distribution, count)
    batches = [sampler.sample(GRAPH, PLACES % 50, batch=number) for number in range(20)]
    return np.concatenate([ends(batch)[:, 4:] for batch in batches], axis=1)


def test_negatives_by_degree():
    drawn = np.bincount(negatives_of("degree")[1], minlength=20)
    weights = np.diff(GRAPH.relations[BUYS].indptr) ** 0.75
    assert not drawn[weights == 0].any()
    assert chisquare(drawn[weights > 0], weights[weights > 0] / weights.sum() * drawn.sum()).pvalue > 1e-4


@pytest.mark.parametrize("relation", [BUYS, KNOWS])
def test_filtered_negatives_are_no_edges(relation):
    """Filtered negatives are not edges.

    Within one type a source is never its own negative; between two types, a node with the same index may be its negative.
    """
    columns, drawn = GRAPH.relations[relation], negatives_of("filtered", relation)
    known = set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))
    assert not set(zip(*drawn.tolist(), strict=True)) & known
    assert (drawn[0] == drawn[1]).any() == (relation == BUYS)
    for source in set(drawn[0].tolist()):
        allowed = [w for w in range(columns.num_nodes) if (source, w) not in known and (relation == BUYS or w != source)]
        assert chisquare(np.bincount(drawn[1, drawn[0] == source], minlength=columns.num_nodes)[allowed]).pvalue > 1e-4


def test_in_batch_negatives_are_others_destinations():
    batch = HeteroLinkSampler(HeteroSampler([1]), BUYS, "in_batch", 3).sample(GRAPH, PLACES)
    destinations = ends(batch)[1]
    for i in range(4):
        assert set(destinations[4 + 3 * i : 7 + 3 * i]) <= set(np.delete(destinations[:4], i))
    assert HeteroLinkSampler(HeteroSampler([1]), BUYS, "in_batch", 3).sample(GRAPH, PLACES[:1]).extra["labels"].tolist() == [1]


@pytest.mark.parametrize("relation", [BUYS, KNOWS])
def test_at_the_time_of_the_positive(relation):
    graph = HeteroGraph.from_edges(NUM, EDGES, times={relation: np.arange(len(EDGES[relation][0])), BOUGHT: np.arange(80)})
    for exclude, before in (("none", 0), ("self", 1)):
        batch = HeteroLinkSampler(HeteroTemporalSampler([-1, 3]), relation, exclude=exclude).sample(graph, PLACES % 50)
        times = graph.relations[relation].times[PLACES % 50]
        assert batch.extra["seed_times"].tolist() == (np.concatenate([times, times, times]) - before).tolist()
        expected = np.stack(EDGES[relation])[:, graph.relations[relation].ids_of(PLACES % 50)]
        assert ends(batch)[:, :4].tolist() == expected.tolist()
        assert ends(batch)[0, 4:].tolist() == expected[0].tolist()
        (source, _, destination), local = relation, batch.extra["pairs"]
        assert batch.extra[f"trees.{source}"][local[0]].tolist() == [0, 1, 2, 3] * 2
        assert batch.extra[f"trees.{destination}"][local[1]].tolist() == list(range(4, 12))
        for kind, block in batch.blocks[0].items():
            if graph.relations[kind].times is not None:
                _, dst = block.edge_index().numpy()
                bounds = batch.extra["seed_times"][batch.extra[f"trees.{kind[2]}"][dst]]
                assert (graph.relations[kind].times[block.edge_ids] <= bounds).all()


def test_threads_change_nothing():
    sampler = HeteroLinkSampler(HeteroSampler([3, 2], expand="new"), BUYS, "uniform", 2, "reverse", BOUGHT)
    bulk = [PLACES, PLACES[:2], PLACES[1:]]
    one, two = (sampler.sample_bulk(GRAPH, bulk, workspace=Workspace(threads)) for threads in (1, 2))
    assert [contents(batch) for batch in one] == [contents(batch) for batch in two]


REVERSES = {BUYS: BOUGHT, KNOWS: None}


@pytest.mark.parametrize("exclude", ["none", "reverse"])
def test_several_relations_in_a_batch(exclude):
    """Each relation has its own edges, negatives and exclusions; the first relation's negatives do not depend on the others."""
    reverse = tuple(REVERSES.values()) if exclude == "reverse" else None
    sampler = HeteroLinkSampler(HeteroSampler([-1, -1]), list(REVERSES), "filtered", 2, exclude, reverse)
    numbers = np.array([3, 120, 70, 80, 11, 139])  # BUYS has 80 edges, KNOWS 60
    batch = sampler.sample(GRAPH, numbers, seed=4)
    assert batch.seed_relation is None
    assert batch.extra["relations"].tolist() == [0, 1, 0, 1, 0, 1] + [0, 0, 1, 1] * 3
    assert batch.extra["labels"].tolist() == [1] * 6 + [0] * 12
    found, gone = edges_of(batch), {}
    for place, relation in enumerate(REVERSES):
        columns, (source, _, destination) = GRAPH.relations[relation], relation
        known = set(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))
        local = batch.extra["pairs"][:, batch.extra["relations"] == place]
        src, dst = batch.node_ids[source][local[0]].tolist(), batch.node_ids[destination][local[1]].tolist()
        places = numbers[place::2] - 80 * place
        assert (src[:3], dst[:3]) == (columns.indices[places].tolist(), columns.destinations()[places].tolist())
        assert src[3:] == np.repeat(src[:3], 2).tolist()
        assert not set(zip(src[3:], dst[3:], strict=True)) & known
        gone[relation] = set(zip(src[:3], dst[:3], strict=True)) if exclude == "reverse" else set()
    alone = HeteroLinkSampler(HeteroSampler([-1, -1]), BUYS, "filtered", 2).sample(GRAPH, numbers[::2], seed=4)
    own = batch.extra["pairs"][1, batch.extra["relations"] == 0]
    assert batch.node_ids["item"][own].tolist() == ends(alone)[1].tolist()
    gone[BOUGHT] = {(v, u) for u, v in gone[BUYS]}
    whole = edges_of(HeteroLinkSampler(HeteroSampler([-1, -1]), list(REVERSES), "filtered", 2, "none").sample(GRAPH, numbers, seed=4))
    for relation in GRAPH.relations:
        assert gone[relation] <= whole[relation]
        assert found[relation] == whole[relation] - gone[relation]


def test_several_relations_over_an_epoch():
    data = HeteroDataset(graph=GRAPH, seed_type="user", splits={"train": np.arange(12)})
    both = HeteroLinkSampler(
        HeteroSampler([3, 2]), list(REVERSES), exclude="reverse", reverse_relation=list(REVERSES.values()), edges="all"
    )
    batches = []
    for options in ({}, {"num_workers": 2}):
        with SampleLoader(data, both, batch_size=9, seed=5, **options) as loader:
            batches.append([contents(batch) for batch in loader])
    assert batches[0] == batches[1]
    met = {relation: [] for relation in REVERSES}
    for batch in SampleLoader(data, both, batch_size=9, seed=5):
        for relation, place in zip(met, (0, 1), strict=True):
            local = batch.extra["pairs"][:, (batch.extra["relations"] == place) & (batch.extra["labels"] > 0)]
            met[relation] += zip(
                batch.node_ids[relation[0]][local[0]].tolist(), batch.node_ids[relation[2]][local[1]].tolist(), strict=True
            )
    for relation, own in met.items():
        columns = GRAPH.relations[relation]
        assert sorted(own) == sorted(zip(columns.indices.tolist(), columns.destinations().tolist(), strict=True))
    into = HeteroLinkSampler(HeteroSampler([3, 2]), [KNOWS, BOUGHT]).items(GRAPH, np.arange(12))  # both lead into users
    sizes = [int(GRAPH.relations[relation].indptr[12]) for relation in (KNOWS, BOUGHT)]
    assert into.tolist() == [*range(sizes[0]), *range(60, 60 + sizes[1])]
    whole = both.sample(GRAPH, np.array([0, 100])).to_pyg()
    assert whole.edge_label_index.shape == (2, 4)
    assert whole.relations.tolist() == [0, 1, 0, 1]


def test_pyg_has_pairs_with_their_relation():
    data = HeteroLinkSampler(HeteroSampler([2]), BUYS, edges=[5]).sample(GRAPH, PLACES).to_pyg()
    assert data[BUYS].edge_label_index.shape == (2, 8)
    assert data[BUYS].edge_label.tolist() == [1] * 4 + [0] * 4
    assert data["user"].n_id[data[BUYS].edge_label_index[0]][:4].tolist() == PAIRS[0, GRAPH.relations[BUYS].ids_of(PLACES)].tolist()


def test_given_edges_are_yielded_by_id():
    sampler = HeteroLinkSampler(HeteroSampler([2]), BUYS, edges=[5, 79])
    assert GRAPH.relations[BUYS].ids_of(sampler.items(GRAPH, np.arange(3))).tolist() == [5, 79]
    with refused("edge 80", "not graph edges", "0 79"):
        HeteroLinkSampler(HeteroSampler([2]), BUYS, edges=[80]).items(GRAPH, np.arange(3))


def link(**options):
    return HeteroLinkSampler(**({"sampler": HeteroSampler([1]), "relation": BUYS} | options))


def data_of_users():
    return HeteroDataset(graph=GRAPH, seed_type="user", splits={"train": np.arange(3)})


MISTAKES = {
    "a sampler with a seed type": Mistake(
        lambda: link(sampler=HeteroSampler([1], "user")), value="'user'", rule="sampler ends relation's types", remedy="no seed_type"
    ),
    "an unknown distribution of negatives": Mistake(
        lambda: link(negatives="pairs"), value="'pairs'", rule="negatives", remedy="uniform in_batch degree filtered"
    ),
    "an unknown exclusion": Mistake(lambda: link(exclude="all"), value="'all'", rule="exclude", remedy="none self reverse"),
    "a reverse relation that is not excluded": Mistake(
        lambda: link(exclude="self", reverse_relation=BOUGHT),
        value="'bought'",
        rule="exclude 'self' reverse_relation",
        remedy='"reverse" leave out',
    ),
    "a reverse relation that leads elsewhere": Mistake(
        lambda: link(exclude="reverse", reverse_relation=KNOWS), value="'knows'", rule="reverse_relation user:buys:item lead item user"
    ),
    "a negative number of negatives": Mistake(lambda: link(num_negatives=-1), value="-1", rule="num_negatives 0 16777215"),
    "edges as a word": Mistake(lambda: link(edges="some"), value="'some'", rule="edges", remedy="all"),
    "no relation": Mistake(lambda: link(relation=[]), value="[]", rule="relation source name destination each once"),
    "a relation given twice": Mistake(
        lambda: link(relation=[BUYS, BUYS]), value=str([BUYS, BUYS]), rule="relation source name destination each once"
    ),
    "one reverse relation for two": Mistake(
        lambda: link(relation=[BUYS, KNOWS], exclude="reverse", reverse_relation=[BOUGHT]),
        value="'bought'",
        rule="reverse_relation 2 relations",
        remedy="one each null",
    ),
    "negatives of the batch for several relations": Mistake(
        lambda: link(relation=[BUYS, KNOWS], negatives="in_batch"), value='"in_batch"', rule="negatives several relations", remedy="uniform"
    ),
    "links at times of several relations": Mistake(
        lambda: link(relation=[BUYS, KNOWS], sampler=HeteroTemporalSampler([1])),
        value="HeteroTemporalSampler",
        rule="several relations temporal links one",
        remedy="name one HeteroSampler",
    ),
    "edges by id for several relations": Mistake(
        lambda: link(relation=[BUYS, KNOWS], edges=[3]), value="ids", rule="edges several relations each own", remedy='"all" leave out'
    ),
    "data with seeds of another type": Mistake(
        lambda: SampleLoader(data_of_users(), link()),
        value="'user'",
        rule="seed_type data user:buys:item 'item'",
        remedy="give sampler edges",
    ),
    "an unknown relation": Mistake(
        lambda: link(relation=("a", "b", "c")).sample(GRAPH, PLACES),
        value="a:b:c",
        rule="relation not graph",
        remedy="user:buys:item, item:bought:user, user:knows:user",
    ),
    "a relation without times": Mistake(
        lambda: link(sampler=HeteroTemporalSampler([1]), relation=KNOWS).sample(GRAPH, PLACES % 50),
        value="user:knows:user",
        rule="no times",
        remedy="HeteroGraph HeteroSampler",
    ),
    "an edge beyond the last": Mistake(
        lambda: link().sample(GRAPH, np.array([80])), value="edge 80", rule="not graph edges", remedy="0 79"
    ),
    "links on a GPU": Mistake(
        lambda: link().sample(GRAPH, PLACES, device="cuda"),
        value='device="cuda"',
        rule="HeteroLinkSampler no kernels",
        remedy='device="cpu"',
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
