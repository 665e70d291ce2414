"""What README shows works as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
def test_the_training_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(EXAMPLES[0].replace("max_epochs=30", "max_epochs=2"), names)
    assert names["batch"].num_seeds > 0
    assert "test_acc" in capsys.readouterr().out
    assert len([line for line in EXAMPLES[0].splitlines() if line]) <= 15


def test_the_sampling_example_runs():
    names = {}
    exec(EXAMPLES[1].replace("scale=0.02", "scale=0.01"), names)
    same, alone = names["batches"][3], names["alone"]
    assert all((a == b).all() for a, b in zip(same.arrays().values(), alone.arrays().values(), strict=True))
    exec(EXAMPLES[2], names)
    assert names["batch"].num_edges > 0
    assert len(EXAMPLES) == 3


def test_files_and_folders_it_names_exist():
    root = Path(__file__).parents[2]
    named = re.findall(r"`((?:trainers|samplers|engine|kernels|configs|benchmarks|tests)/[\w./]*)`", README)
    named += re.findall(r"(?:--config )(configs/[\w.]+)", README)
    assert len(named) > 8
    assert [name for name in named if not (root / name).exists()] == []
