"""Relations along metapaths equal PyG's, and invalid metapaths are rejected."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from reference.hetero_data import hetero_data, hetero_graph
from torch_geometric.data import HeteroData
from torch_geometric.transforms import AddMetaPaths

from hoptrain.engine import HeteroGraph
from hoptrain.engine.transforms.metapaths import with_metapaths

PATHS = [["paper", "author", "paper"], ["paper", "subject", "paper"], ["subject", "paper", "author", "paper"]]


def ends(columns):
    return np.stack([columns.indices, np.repeat(np.arange(columns.num_nodes), np.diff(columns.indptr))])


@pytest.mark.filterwarnings("ignore")  # torch's warning about sparse tensors
def test_equal_to_pyg():
    graph = hetero_graph()
    theirs = HeteroData()
    for name, number in graph.num_nodes.items():
        theirs[name].num_nodes = number
    for relation, columns in graph.relations.items():
        edges = np.unique(ends(columns)[::-1], axis=1)[::-1]  # PyG's matrix product merges parallel edges
        theirs[relation].edge_index = torch.from_numpy(np.ascontiguousarray(edges, np.int64))
    steps = [
        [next(relation for relation in graph.relations if (relation[0], relation[2]) == step) for step in pairwise(path)] for path in PATHS
    ]
    theirs = AddMetaPaths(steps, drop_orig_edge_types=True)(theirs)
    made = with_metapaths(hetero_data(), PATHS)
    for number, (relation, path) in enumerate(zip(made.graph.relations, PATHS, strict=True)):
        assert (relation[0], relation[2]) == (path[0], path[-1])
        edges = theirs[path[0], f"metapath_{number}", path[-1]].edge_index.numpy()
        assert np.array_equal(ends(made.graph.relations[relation]).T, np.unique(edges[::-1].T, axis=0)[:, ::-1])


def test_equal_to_pairs_that_paths_join():
    graph, made = hetero_graph(), with_metapaths(hetero_data(), PATHS[:1])
    by, writes = (
        set(map(tuple, ends(graph.relations[relation]).T)) for relation in (("paper", "by", "author"), ("author", "writes", "paper"))
    )
    pairs = {(source, destination) for source, author in by for other, destination in writes if author == other}
    assert sorted(map(tuple, ends(*made.graph.relations.values()).T)) == sorted(pairs)


def test_a_path_of_two_types_is_the_relation_without_copies():
    (made,) = with_metapaths(hetero_data(), [["author", "paper"]]).graph.relations.values()
    columns = hetero_graph().relations["author", "writes", "paper"]
    assert np.array_equal(ends(made).T, np.unique(ends(columns)[::-1].T, axis=0)[:, ::-1])
    assert made.num_edges < columns.num_edges


def test_types_that_no_path_ends_at_are_left_out():
    data = hetero_data()
    made = with_metapaths(data, PATHS[:2])
    assert made.graph.num_nodes == {"paper": 90}
    assert list(made.x) == ["paper"]
    assert made.y is data.y
    assert list(made.graph.relations) == [
        ("paper", "paper_by_author-author_writes_paper", "paper"),
        ("paper", "paper_on_subject-subject_of_paper", "paper"),
    ]
    assert list(with_metapaths(data, [["author", "paper"]]).graph.num_nodes) == ["paper", "author"]


def test_steps_as_relations():
    edges = {("a", "r", "a"): ([0, 1], [1, 2]), ("a", "s", "a"): ([2], [0])}
    data = hetero_data(graph=HeteroGraph.from_edges({"a": 3}, edges), seed_type="a", x={}, y=None, splits={})
    made = with_metapaths(data, [["a:r:a", "a:r:a"], ["a:r:a", "a:s:a"]])
    assert [ends(columns).T.tolist() for columns in made.graph.relations.values()] == [[[0, 2]], [[1, 0]]]
    with refused("['a', 'a']", "metapath relations a:r:a, a:s:a", "write steps relations"):
        with_metapaths(data, [["a", "a"]])


def paths(*given):
    with_metapaths(hetero_data(), list(given))


MISTAKES = {
    "no path": Mistake(lambda: paths(), value="[]", rule="metapaths one or least", remedy="[paper, author, paper]"),
    "a path twice": Mistake(lambda: paths(PATHS[0], PATHS[0]), value=str([PATHS[0]] * 2), rule="metapaths each once", remedy="give"),
    "a path of one type": Mistake(lambda: paths(["paper"]), value="['paper']", rule="metapath no step", remedy="two types"),
    "types that no relation joins": Mistake(
        lambda: paths(["paper", "venue"]),
        value="from paper to venue",
        rule="metapath no relation",
        remedy="author:writes:paper paper:on:subject these",
    ),
    "relations whose types do not match": Mistake(
        lambda: paths(["paper:by:author", "paper:on:subject"]),
        value="['paper:by:author', 'paper:on:subject']",
        rule="metapath broken relation each ends",
        remedy="correct",
    ),
    "an unknown relation": Mistake(
        lambda: paths(["paper:by:venue"]),
        value="paper:by:venue",
        rule="metapath no relation",
        remedy="author:writes:paper choose",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
