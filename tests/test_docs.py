"""The page on writing samplers works as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest

from hoptrain.samplers import NeighborSampler
from hoptrain.samplers import Node2Vec as BuiltIn

PAGE = (Path(__file__).parents[1] / "docs" / "write_your_own_sampler.md").read_text()


@pytest.fixture(scope="module")
def names():
    names = {"__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(example, names)
    return names


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


def test_they_are_short():
    assert len(lines_of("GraphSAGE")) <= 10
    assert len(lines_of("Node2Vec")) <= 20
