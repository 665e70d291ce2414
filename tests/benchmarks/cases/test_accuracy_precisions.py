"""``hoptrain bench accuracy --precisions``, the part "precision" of ``make gpu``, trains with each precision of matrix products."""

import json

import pytest
import torch
from cases.mistakes import refused

from hoptrain.benchmarks import accuracy
from hoptrain.benchmarks.cases.precisions import CONFIGS
from hoptrain.benchmarks.device.first_run import PARTS, command_of
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.bench import option_parser


def run(out, *options):
    """Run the part with other options, and return its results."""
    words = command_of(PARTS["precision"], out)
    assert main([*words[words.index("bench") :], *options]) == 0
    return json.loads((out / "precision" / "results.json").read_text())


def test_the_table(tmp_path, monkeypatch):
    """Each precision is set for its trainings alone; ``points`` and ``in_spread`` compare with float32."""
    asked = []
    lost = {("high", None): 0.005, ("highest", "bf16-mixed"): 0.02}

    def score(config, options, scratch, seed):
        own = torch.get_float32_matmul_precision(), options.get("trainer.precision")
        asked.append((config, *own, seed))
        return 0.9 + 0.01 * seed - lost.get(own, 0)

    monkeypatch.setattr(accuracy, "_test_score", score)
    before = torch.get_float32_matmul_precision()
    content = run(tmp_path, "--seeds", "2")
    assert torch.get_float32_matmul_precision() == before
    ways = [("highest", None), ("high", None), ("highest", "bf16-mixed")]
    assert asked == [(config, *way, seed) for config in CONFIGS for way in ways for seed in (1, 2)]
    rows = content["records"][:3]
    assert [row["precision"] for row in rows] == ["highest", "high", "bf16-mixed"]
    assert [row["points"] for row in rows] == pytest.approx([0, -0.5, -2])
    assert [row["in_spread"] for row in rows] == [True, True, False]
    assert content["summary"] == pytest.approx({"least_points_high": -0.5, "least_points_bf16_mixed": -2})


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # Lightning's advice
def test_it_trains_with_each_precision(tmp_path, monkeypatch):
    exact, few = accuracy._test_score, {"trainer.max_epochs": "3", "trainer.accelerator": "cpu", "data.num_workers": "0"}
    monkeypatch.setattr(accuracy, "_test_score", lambda config, options, *given: exact(config, {**options, **few}, *given))
    rows = run(tmp_path, "--quick")["records"]
    assert len(rows) == 3
    assert all(row["config"] == "quickstart" and row["test_score"] > 0.5 for row in rows)


@pytest.mark.parametrize("option", ["--features int8", "--samplers", "--events"])
def test_another_comparison_is_rejected(option):
    args = option_parser("accuracy", "?", accuracy).parse_args(["--precisions", *option.split()])
    with refused(value="--precisions", rule=f"{option.split()[0]} separate comparisons", remedy="one of them"):
        accuracy.run(args)
