"""The examples in README.md run."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Run the first example, and return its variables."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    exec(EXAMPLES[0], names)
    return names


@pytest.mark.promise
def test_the_first_screen_shows_what_it_prints(names, capsys):
    assert f"``` {names['graph']} " in " ".join(README.split())  # the page breaks the line
    assert README.split("## Three ways in")[0].count("![") == README.count("![") == 1
    assert len([line for line in EXAMPLES[0].splitlines() if line]) <= 6
    assert len(README.splitlines()) <= 100
    assert max(map(len, README.splitlines())) <= 120


@pytest.mark.promise
@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
def test_the_training_example_runs(names, capsys):
    exec(EXAMPLES[1].replace("max_epochs=30", "max_epochs=2"), names)
    assert "test_acc" in capsys.readouterr().out
    assert len([line for line in EXAMPLES[1].splitlines() if line]) <= 15


@pytest.mark.promise
def test_the_sampler_of_one_s_own_runs(names):
    exec(EXAMPLES[2], names)
    assert names["batch"].num_edges > 0
    assert len(EXAMPLES) == 3


def test_files_and_folders_named_in_contributing_exist():
    root = Path(__file__).parents[2]
    text = (root / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:hoptrain|trainers|samplers|engine|kernels|configs|benchmarks|docs|tests)/[a-z_\d./]*)`", text)
    named = [name for name in named if not re.search(r"/x(\.\w+)?$", name)]  # names of new components that the page introduces
    assert len(named) > 3
    assert [name for name in named if not (root / name).exists()] == []
