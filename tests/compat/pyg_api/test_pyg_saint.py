"""The GraphSAINT samplers make batches with PyG's meaning, follow PyG's distributions, and compute the norms by their definition."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from pyg_case import some_data
from scipy.stats import chisquare
from torch_geometric.data import Data

import hoptrain.pyg

KINDS = {
    "GraphSAINTNodeSampler": {"batch_size": 30},
    "GraphSAINTEdgeSampler": {"batch_size": 20},
    "GraphSAINTRandomWalkSampler": {"batch_size": 10, "walk_length": 2},
}


@pytest.fixture
def data():
    return some_data()


def made(name, data, **options):
    return getattr(hoptrain.pyg, name)(data, **(KINDS[name] | {"log": False} | options))


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_is_the_subgraph_of_what_was_drawn(data, name):
    data.number, data.place = torch.arange(200), torch.arange(1200)
    loader = made(name, data, num_steps=4, sample_coverage=3)
    batches = list(loader)
    assert len(loader) == len(batches) == 4
    for batch in batches:
        nodes, edges = batch.number, batch.place
        assert len(nodes.unique()) == len(nodes) == batch.num_nodes
        assert torch.equal(nodes[batch.edge_index], data.edge_index[:, edges])
        inside = torch.isin(data.edge_index, nodes).all(0).nonzero().flatten()
        assert torch.equal(edges.sort().values, inside)
        for key in ("x", "y", "train_mask"):
            assert torch.equal(batch[key], data[key][nodes])
        assert torch.equal(batch.edge_attr, data.edge_attr[edges])
        assert torch.equal(batch.node_norm, loader.node_norm[nodes])
        assert torch.equal(batch.edge_norm, loader.edge_norm[edges])
        assert batch.name == "graph"
    assert len({tuple(batch.number.tolist()) for batch in batches}) == 4


def small():
    """Return a graph of seven nodes; the last node has no out-edges, and the first has no in-edges."""
    generator = torch.Generator().manual_seed(1)
    edges = (torch.rand(2, 14, generator=generator) * 6).long() + torch.tensor([[0], [1]])
    return Data(edge_index=edges, place=torch.arange(14), number=torch.arange(7), num_nodes=7)


def of_nodes(data):
    """Return the outcomes of PyG's ``_sample_nodes``, which draws an edge uniformly and takes its row."""
    return [(frozenset([u]), 1.0) for u in data.edge_index[0].tolist()]


def of_edges(data):
    """Return each edge as a set of two nodes with its weight p: in-edges of the row plus out-edges of the column.

    PyG draws the edges with the largest log(uniform) / p.
    """
    rows, columns = data.edge_index.tolist()
    return [(frozenset([u, v]), columns.count(u) + rows.count(v)) for u, v in zip(rows, columns, strict=True)]


def of_walks(data):
    """Return the outcomes of a walk of two steps along the edges from a uniformly drawn node."""
    rows, columns = data.edge_index.tolist()

    def steps(v):
        found = [column for row, column in zip(rows, columns, strict=True) if row == v] or [v]
        return [(w, 1 / len(found)) for w in found]

    return [(frozenset([root, v, w]), p * q) for root in range(7) for v, p in steps(root) for w, q in steps(v)]


def distribution_of(data, name, number):
    """Return the probability of each set of nodes after ``number`` draws."""
    one = {"GraphSAINTNodeSampler": of_nodes, "GraphSAINTEdgeSampler": of_edges, "GraphSAINTRandomWalkSampler": of_walks}[name](data)
    distribution = Counter()
    for draws in product(one, repeat=number):
        distribution[frozenset().union(*(nodes for nodes, _ in draws))] += np.prod([p for _, p in draws])
    total = sum(distribution.values())
    return {nodes: p / total for nodes, p in distribution.items()}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_draws_follow_the_distribution_of_pyg(name, number):
    data = small()
    sampler, graph = made(name, data, batch_size=number).sampler_and_graph
    drawn = (sampler.sample(graph, np.zeros(1, np.int64), batch=batch) for batch in range(2000))
    found = Counter(frozenset(batch.node_ids.tolist()) for batch in drawn)
    distribution = distribution_of(data, name, number)
    assert set(found) <= set(distribution)
    likely = [nodes for nodes, p in distribution.items() if p * 2000 >= 5]
    counts, expected = [found[nodes] for nodes in likely], [2000 * distribution[nodes] for nodes in likely]
    rare = 2000 - sum(expected)
    both = (counts, expected) if rare < 1e-6 else ([*counts, 2000 - sum(counts)], [*expected, rare])
    assert chisquare(*both).pvalue >= 1e-4


@pytest.mark.parametrize("name", KINDS)
def test_norms_are_the_inverse_probabilities(name):
    """Norms are the inverse of the exact probabilities, within five standard deviations of the counts."""
    data = small()
    torch.manual_seed(4)
    loader = made(name, data, batch_size=2, num_steps=100, sample_coverage=2000)
    distribution = distribution_of(data, name, 2)
    (u, v), subgraphs = data.edge_index, 2000 * 7 / sum(len(nodes) * p for nodes, p in distribution.items())

    def probability(*ends):
        return torch.tensor([sum(p for nodes, p in distribution.items() if set(each) <= nodes) for each in zip(*ends, strict=True)])

    p, of_source, both = probability(range(7)), probability(u.tolist()), probability(u.tolist(), v.tolist())
    known, seen = p > 0, both > 0
    wanted = 1 / (7 * p[known])
    assert ((loader.node_norm[known] / wanted - 1).abs() < 5 / (subgraphs * p[known]).sqrt()).all()
    error = (loader.edge_norm[seen] / (of_source / both)[seen] - 1).abs()
    assert (error < 5 / (subgraphs * both[seen]).sqrt()).all()


def test_what_was_never_drawn_has_pyg_s_values():
    data = Data(edge_index=torch.tensor([[0, 0, 1], [1, 2, 2]]), num_nodes=4)
    loader = made("GraphSAINTNodeSampler", data, batch_size=1, sample_coverage=1)
    assert torch.equal(loader.node_norm[2:] / loader.node_norm[2], torch.ones(2))
    assert loader.node_norm[2] >= 1 / 0.1 / 4
    assert ((loader.edge_norm == 1e4) | (loader.edge_norm == 0.1)).all()


@pytest.mark.parametrize("name", KINDS)
def test_workers_change_nothing_and_norms_are_saved(data, name, tmp_path):
    def epochs(num_workers, **options):
        torch.manual_seed(7)
        loader = made(name, data, num_steps=3, num_workers=num_workers, **options)
        found = [[batch.edge_index.tolist() for batch in loader] for _ in range(2)]
        loader.close()
        return found, loader

    here = epochs(0)[0]
    assert here == epochs(1)[0]
    assert here[0] != here[1]
    first = epochs(0, sample_coverage=2, save_dir=str(tmp_path))[1]
    (file,) = tmp_path.iterdir()
    assert file.name == f"{name.lower()}{'_2' if 'Walk' in name else ''}_2.pt"  # PyG's file name has the walk length and the coverage
    torch.manual_seed(9)
    again = made(name, data, sample_coverage=2, save_dir=str(tmp_path))
    assert torch.equal(first.node_norm, again.node_norm)
    assert torch.equal(first.edge_norm, again.edge_norm)
    with refused(file.name, "norms another graph", "remove another save_dir"):
        made(name, small(), batch_size=2, sample_coverage=2, save_dir=str(tmp_path))
    file.write_bytes(b"no")
    with refused(file.name, "no norms", "remove another save_dir"):
        made(name, data, sample_coverage=2, save_dir=str(tmp_path))


def walks(data, **options):
    made("GraphSAINTRandomWalkSampler", data, **options)


def attribute_of_the_batches_own(data):
    data.node_norm = torch.ones(200)
    made("GraphSAINTNodeSampler", data)


MISTAKES = {
    "no steps": Mistake(lambda data: walks(data, num_steps=0), value="num_steps is 0", rule="sample_coverage 1 0", remedy="give"),
    "a negative coverage": Mistake(
        lambda data: walks(data, sample_coverage=-1), value="sample_coverage -1", rule="num_steps 1 0", remedy="give"
    ),
    "a subgraph of no draws": Mistake(
        lambda data: walks(data, batch_size=0), value="(walk_length + 1) is 0", rule="num_roots subgraph 1 draws", remedy="range"
    ),
    "walks of no steps": Mistake(lambda data: walks(data, walk_length=0), value="walk_length is 0", rule="walk one step", remedy="1 more"),
    "an attribute of the batches' own": Mistake(
        attribute_of_the_batches_own, value="'node_norm'", rule="data attribute batches name", remedy="rename"
    ),
    "data without edges": Mistake(
        lambda: made("GraphSAINTNodeSampler", Data(num_nodes=3)), value="edge_index", rule="data no samplers draw", remedy="give"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
