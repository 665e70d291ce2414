"""The examples in the pages on samplers and models run."""

import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from hoptrain.samplers import NeighborSampler
from hoptrain.samplers import Node2Vec as BuiltIn

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "write_your_own_sampler.md").read_text()


def names_of(page):
    """Run the examples of a page one after another, and return their variables."""
    names = {"__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(example.replace("max_epochs=5", "max_epochs=2"), names)
    return names


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    with chdir(tmp_path_factory.mktemp("page")):
        return names_of(PAGE)


def lines_of(name):
    example = next(e for e in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"class {name}" in e)
    return [line for line in example[example.index("class") :].splitlines() if line.strip()]


def test_graphsage_equals_the_built_in_sampler(names):
    graph, seeds = names["data"].graph, names["batch"].seeds
    ours = names["GraphSAGE"]([10, 5]).sample(graph, seeds)
    expected = NeighborSampler([10, 5], replace=True).sample(graph, seeds)
    assert all(np.array_equal(a, b) for a, b in zip(ours.arrays().values(), expected.arrays().values(), strict=True))
    assert ours.num_edges == names["batch"].num_edges > 0


def test_node2vec_equals_the_built_in_sampler(names):
    assert names["walks"].shape == (100, 11)
    assert np.array_equal(names["walks"], BuiltIn(length=10, p=2.0, q=0.5).walks(names["data"].graph, np.arange(100), seed=0))


def test_edges_are_drawn_by_their_scores(names, tmp_path):
    graph, seeds = names["data"].graph, names["batch"].seeds
    scores = np.arange(graph.num_edge_ids()) % 3
    np.save(tmp_path / "scores.npy", scores)
    (block,) = names["ByScore"]([40], str(tmp_path / "scores.npy")).prepare(graph, seeds).sample(graph, seeds).blocks
    drawn = scores[graph.ids_of(block.edge_ids)]
    assert (drawn > 0).all()
    assert 1.9 < (drawn == 2).sum() / (drawn == 1).sum() < 2.1
    assert names["by_score"].num_edges > 0
    assert names["buyers"].tolist() == [1, 0]


def test_they_are_short():
    assert len(lines_of("GraphSAGE")) <= 10
    assert len(lines_of("Node2Vec")) <= 20


@pytest.mark.promise
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_models_data_and_loops_of_one_s_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of((DOCS / "your_own_model.md").read_text())
    assert names["scores"]["test_acc"] > 0.8
    assert names["of_pyg"]["test_acc"] > 0.8
    assert {"test_f1", "test_kappa", "test_loss"} == names["of_own"].keys()
    assert names["of_own"]["test_f1"] > 0.8
    assert "val_acc" in names["trainer"].callback_metrics
    assert names["accuracy"] > 0.8
    assert next(iter(names["groups"].train_dataloader())).num_seeds == 64
