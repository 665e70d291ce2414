import argparse
import json
import re
import subprocess
import sys

import pytest
from cases.mistakes import Mistake, each_of, exits, refused

import hoptrain.benchmarks
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands import bench
from hoptrain.trainers.commands.table import table

TOY = '''"""How fast is a toy?

More about toys.
"""
from hoptrain.benchmarks.common.harness import Result


def add_arguments(parser):
    parser.add_argument("--size", type=int, default=3)


def run(args):
    rows = [{"row": i, "half": i / 2} for i in range(1 if args.quick else args.size)]
    return Result(records=rows, summary={"rows": len(rows)}, seeds=[7])
'''


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    """Write a package of stub benchmarks.

    It has a module, a module that must not be imported, a folder, and a module and a folder that are not benchmarks.
    """
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "toy_speed.py").write_text(TOY)
    (folder / "heavy.py").write_text('"""Is it imported?"""\nraise ImportError("heavy was imported")\ndef run(args): ...\n')
    (folder / "helpers.py").write_text('"""No benchmark."""\ndef runner(): ...\nclass A:\n    def run(self): ...\n')
    (folder / "silent.py").write_text("def run(args): ...\n")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text('"""Is it a folder?"""\ndef run(args): ...\n')
    (folder / "shared").mkdir()
    (folder / "shared" / "__init__.py").write_text('"""What benchmarks share."""\n')
    path = [str(folder), *hoptrain.benchmarks.__path__]  # the harness is imported from its usual place
    monkeypatch.setattr(hoptrain.benchmarks, "__path__", path)
    monkeypatch.setattr(hoptrain.benchmarks.__spec__, "submodule_search_locations", [str(folder)])
    yield folder
    for name in ("toy_speed", "heavy"):
        sys.modules.pop(f"hoptrain.benchmarks.{name}", None)


def bench_command(*arguments):
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    args = parser.parse_args(["bench", *arguments])
    return args.run(args)


def test_questions(benchmarks):
    assert bench.questions() == {"heavy": "Is it imported?", "package": "Is it a folder?", "silent": "", "toy-speed": "How fast is a toy?"}
    assert "hoptrain.benchmarks.toy_speed" not in sys.modules


def test_help_lists_the_questions(benchmarks, capsys):
    with exits(0):
        bench_command("--help")
    text = capsys.readouterr().out
    assert re.search(r"^  toy-speed +How fast is a toy\?$", text, re.MULTILINE)
    assert "heavy" in text
    assert "helpers" not in text


def test_run(benchmarks, tmp_path, capsys):
    assert bench_command("toy-speed", "--out", str(tmp_path / "out"), "--size", "2") == 0
    path = tmp_path / "out" / "results.json"
    assert (
        capsys.readouterr().out
        == f"row  half\n  0     0\n  1   0.5\n\nsummary  value\nrows         2\n\nwritten to {path} and results.csv\n"
    )
    content = json.loads(path.read_text())
    assert content["command"] == f"hoptrain bench toy-speed --out {tmp_path}/out --size 2"
    assert content["load"].keys() == {"busy_cores", "load_average"}
    assert (tmp_path / "out" / "results.csv").read_text() == "row,half\n0,0.0\n1,0.5\n"
    assert (content["benchmark"], content["quick"], content["seeds"], content["summary"]) == ("toy-speed", False, [7], {"rows": 2})


def test_quick_into_the_default_folder(benchmarks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bench_command("toy-speed", "--quick") == 0
    content = json.loads((tmp_path / "runs" / "bench" / "toy-speed" / "results.json").read_text())
    assert content["quick"] is True
    assert content["summary"] == {"rows": 1}


def test_options_of_the_benchmark(benchmarks, capsys):
    with exits(0):
        bench_command("toy-speed", "--help")
    text = capsys.readouterr().out
    assert text.startswith("usage: hoptrain bench toy-speed ")
    assert "How fast is a toy?" in text
    assert all(option in text for option in ("--quick", "--out DIR", "--size SIZE"))


def test_unknown_option_through_the_command(benchmarks, capsys):
    assert main(["bench", "toy-speed", "--colour"]) == 2
    assert capsys.readouterr().err == "hoptrain: unrecognized arguments: --colour; see 'hoptrain bench toy-speed --help'\n"


@pytest.mark.parametrize(("value", "shown"), [("None", "None"), ("[]", "[]"), ("float('nan')", "nan")])
def test_a_summary_that_cannot_be_written(benchmarks, tmp_path, value, shown):
    (benchmarks / "toy_speed.py").write_text(TOY.replace("len(rows)}", f"{value}}}"))
    with refused(f"'rows'] is {shown}", "summary finite numbers", "records"):
        bench_command("toy-speed", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_help_imports_nothing_heavy():
    code = """
import argparse, sys
from hoptrain.trainers.commands import bench
bench.add_parser(argparse.ArgumentParser().add_subparsers())
heavy = {"numpy", "numba", "torch", "pytorch_lightning"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_real_benchmarks_state_their_questions():
    assert all(question.endswith("?") for question in bench.questions().values())


def test_table():
    records = [{"name": "a", "edges": 5, "rate": 1234567.0}, {"name": "long", "rate": None, "note": "x"}, {"edges": 12}]
    assert bench.table(records) == (
        "name  edges       rate  note\n"
        "a         5  1.235e+06\n"
        "long                    x\n"
        "         12"
    )  # fmt: skip
    assert bench.table([]) == ""


def test_the_help_of_no_benchmark_waits_for_torch():
    code = """
import sys
from contextlib import suppress
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.table import table
from hoptrain.trainers.commands.bench import questions
for options in ([], *([name] for name in questions())):
    with suppress(SystemExit):
        main(["bench", *options, "--help"])
    assert "torch" not in sys.modules, options
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert child.returncode == 0, child.stderr
    assert child.stdout.count("usage: hoptrain bench") == 1 + len(bench.questions())


def test_a_table_that_does_not_fit_says_what_it_leaves_out():
    rows = [{"system": name, "arch": "sage", "none": None, "why": "x" * 50, "seconds": 1.5, "edges": 10**9} for name in ("ours", "theirs")]
    assert table(rows).splitlines()[1].split() == ["ours", "sage", "x" * 50, "1.5", "1000000000"]
    different = [row | {"why": f"{i}{row['why']}", "seconds": i, "edges": i} for i, row in enumerate(rows)]
    assert table(different, 60).splitlines() == [
        "system  why                                seconds  edges",
        "ours    0xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…        0      0",
        "theirs  1xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…        1      1",
        "",
        "in all rows: arch sage",
    ]
    assert table(different, 52).splitlines()[0].split() == ["system", "why", "seconds"]
    assert table(different, 52).endswith("columns that do not fit here: 1 (the file has them)")
    assert table(rows[:1], 10).splitlines()[:2] == ["system", "ours"]


MISTAKES = {
    "a name close to one": Mistake(
        lambda benchmarks: bench_command("toy_sped"), value="'toy_sped'", rule="no benchmark", remedy="toy-speed"
    ),
    "an unknown name": Mistake(
        lambda benchmarks: bench_command("zzzzzz"), value="'zzzzzz'", rule="no benchmark", remedy="heavy package silent toy-speed"
    ),
    "an unknown option": Mistake(
        lambda benchmarks: bench_command("toy-speed", "--colour", "green"),
        value="--colour green",
        rule="unrecognized arguments",
        remedy="hoptrain bench toy-speed --help",
    ),
    "a value of another kind": Mistake(
        lambda benchmarks: bench_command("toy-speed", "--size", "large"),
        value="'large'",
        rule="--size invalid int",
        remedy="hoptrain bench toy-speed --help",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
