import json
import sys
from dataclasses import dataclass

import pytest
from cases.mistakes import refused

from hoptrain.benchmarks.common import grid, trial
from hoptrain.benchmarks.common.grid import Grid, key_of, parse_grid, read_grid, read_lines, run_grid
from hoptrain.engine import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    name: str
    size: int = 1
    sizes: tuple[int, ...] = ()


PROGRAM = """
import os, sys, time
say = lambda line: print(line, flush=True)
say("begin")
name = sys.argv[1]
if name == "good": say('found {"x": 1.5}')
elif name == "absent": say("skipped not here")
elif name == "bad":
    say("raised ValueError: what went wrong")
    sys.exit(3)
elif name == "dies": os.kill(os.getpid(), 9)
elif name == "silent": pass
else: time.sleep(600)
"""


@pytest.fixture
def command(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return lambda cell: [sys.executable, str(program), cell.name]


def test_parse():
    content = {
        "rounds": 2,
        "limit": 7,
        "all": {"sizes": [3, 4], "size": 9},
        "grids": [{"name": ["a", "b"], "size": [1, 2]}, {"name": ["a", "c"], "size": [2]}],
    }
    parsed = parse_grid(content, Cell, "it")
    assert (parsed.rounds, parsed.limit) == (2, 7.0)
    places = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 2)]  # a cell of both grids occurs once
    assert list(parsed.cells) == [Cell(name=name, size=size, sizes=(3, 4)) for name, size in places]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds: 3", "has ['rounds']: a grid needs the key 'grids'"),
        ("[1]", "has [1]: a grid needs the key 'grids'"),
        ("grids: [{name: [a]}]\nround: 1", "has ['grids', 'round']"),
        ("grids: [{name: a}]", "write [value] for one"),
        ("grids: [{name: [a], colour: [green]}]", "a cell got an unexpected keyword argument 'colour'"),
        ("grids: [{size: [1]}]", "missing 1 required keyword-only argument: 'name'"),
        ("grids: [{name: []}]", "a grid of 0 cells"),
        ("grids: [{name: [a]}]\nrounds: 0", "0 rounds"),
        ("grids: [", "is not YAML"),
        ("grids: " + "[" * 20_000, "is not YAML (it nests more than 100 levels"),
    ],
)
def test_mistakes(tmp_path, text, message):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_grid(path, Cell)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_file(tmp_path):
    with refused("absent.yaml", "not read No such file", "YAML configs/bench"):
        read_grid(tmp_path / "absent.yaml", Cell)


def test_outcomes(tmp_path, command, monkeypatch):
    monkeypatch.setattr(trial, "IDLE_S", 0.5)
    names = ("good", "absent", "bad", "dies", "silent", "hangs")
    lines = run_grid(Grid(cells=[Cell(name=name) for name in names], rounds=1, limit=1), command, tmp_path)
    found = {line["cell"]["name"]: (line["outcome"], line["found"]) for line in lines}
    assert found == {
        "good": ("completed", {"x": 1.5}),
        "absent": ("skipped", None),
        "bad": ("failed", None),
        "dies": ("failed", None),
        "silent": ("failed", None),
        "hangs": ("hung", None),
    }
    why = {line["cell"]["name"]: line["why"] for line in lines}
    assert why["good"] is None
    assert why["absent"] == "not here"
    assert why["bad"] == "ValueError: what went wrong"
    assert why["dies"].startswith("exit code -9: ")
    logs = {line["cell"]["name"]: line["log"] for line in lines}
    assert logs["good"] is None
    assert "what went wrong" in (tmp_path / logs["bad"]).read_text()
    assert (tmp_path / logs["hangs"]).with_suffix(".stacks").exists()
    assert read_lines(tmp_path) == lines


def test_resumes(tmp_path, monkeypatch):
    ran = []

    def fake(command, limit, log):
        ran.append(command[0])
        log.write_text("")
        good = command[0] != "bad"
        return trial.Trial(ended=True, seconds=1.0, code=0 if good else 1, text='found {"x": 1}\n', where="", orphans=0, shm_files=0)

    monkeypatch.setattr(grid, "run_trial", fake)
    cells = [Cell(name="a"), Cell(name="bad"), Cell(name="c")]
    first = run_grid(Grid(cells=cells[:2], rounds=1, limit=9), lambda cell: [cell.name], tmp_path)
    with (tmp_path / "cells.jsonl").open("a") as file:
        file.write('{"key": "cut sh')  # a line that a power failure cut off
    whole = Grid(cells=cells, rounds=2, limit=9)
    lines = run_grid(whole, lambda cell: [cell.name], tmp_path)
    assert ran == ["a", "bad", "c", "bad", "c", "a"]  # each round begins with another cell
    assert lines[:2] == first
    assert all(line["load"].keys() == {"busy_cores", "load_average"} for line in lines)
    assert [(line["key"], line["round"]) for line in lines[:3]] == [(key_of(cell), 0) for cell in cells]
    ran.clear()
    run_grid(whole, lambda cell: [cell.name], tmp_path, again=True)
    assert ran == ["bad", "bad"]
    assert len(read_lines(tmp_path)) == 6


def test_another_machine(tmp_path, monkeypatch, command):
    run_grid(Grid(cells=[Cell(name="absent")], rounds=1, limit=9), command, tmp_path)
    here = json.loads((tmp_path / "cells.jsonl").read_text())["machine"]
    monkeypatch.setattr(grid, "machine", lambda: here | {"cores": 1000})
    with refused(str(tmp_path), "results another machine cores", "folder --out"):
        run_grid(Grid(cells=[Cell(name="absent")], rounds=2, limit=9), command, tmp_path)


def test_progress_names_the_options_that_differ(tmp_path, command, capsys):
    cells = [Cell(name=name, size=size) for name in ("good", "absent") for size in (1, 2)]
    run_grid(Grid(cells=cells, rounds=1, limit=20), command, tmp_path)
    printed = capsys.readouterr()
    assert "[2/4] round 0: name good, size 2: completed (" in printed.out + printed.err
    assert "sizes" not in printed.out + printed.err
