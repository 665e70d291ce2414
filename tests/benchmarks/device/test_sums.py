"""The script that compares sums on a GPU with torch's also runs on a CPU, and detects wrong sums."""

import pytest
import torch

from hoptrain.benchmarks.device import sums


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_wrong_sums_are_found(factor, monkeypatch, capsys):
    exact = sums.aggregate
    monkeypatch.setattr(sums, "aggregate", lambda *given: exact(*given) * factor)
    code = sums.main(["--device", "cpu", "--scale", "0.001", "--batch-size", "8", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 * 2 * 3 + 1
    assert all("forward" in line and "torch.sparse.mm" in line for line in lines[:-1])
    assert (code, lines[-1].split()[0]) == ((0, "0") if factor == 1 else (1, "18"))


def test_a_wrong_derivative_is_found(monkeypatch, capsys):
    exact, calls = sums.aggregate, []

    def unsteady(*given):
        calls.append(1)
        return exact(*given) * (1 + 1e-6 * len(calls))

    monkeypatch.setattr(sums, "aggregate", unsteady)
    assert sums.main(["--device", "cpu", "--scale", "0.001", "--batch-size", "8", "--rounds", "1"]) == 1
    assert "differs from run to run" in capsys.readouterr().out


def test_both_types_have_a_bound():
    assert set(sums.TOO_FAR) == {torch.float32, torch.bfloat16}
