import argparse
import json
import os
import subprocess
import sys

import pytest
from cases.mistakes import exits

from hoptrain.trainers.cli import main
from hoptrain.trainers.commands import doctor
from hoptrain.trainers.commands.checks.finding import Finding


def parse(*arguments):
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    return parser.parse_args(["doctor", *arguments])


@pytest.fixture
def checks(monkeypatch):
    """Return a function that replaces the doctor's checks by ones with the given findings."""
    return lambda *findings: monkeypatch.setattr(doctor, "CHECKS", tuple((lambda finding=finding: finding) for finding in findings))


# The command.


def test_exit_code_and_summary(checks, capsys):
    checks(Finding("one", "ok", "fine"), Finding("two", "note", "hm"))
    args = parse()
    assert args.run(args) == 0
    assert capsys.readouterr().out.endswith("\nNothing is wrong.\n")
    checks(Finding("one", "ok", "fine"), Finding("two", "wrong", "bad", "mend it"), Finding("three", "wrong", "worse"))
    assert args.run(args) == 1
    assert capsys.readouterr().out.endswith("\nWrong: two, three.\n")


def test_json_says_the_same(checks, capsys):
    checks(Finding("one", "ok", "fine"), Finding("two", "wrong", "bad", "mend it"))
    args = parse("--json")
    assert args.run(args) == 1
    assert json.loads(capsys.readouterr().out) == {
        "healthy": False,
        "findings": [
            {"name": "one", "status": "ok", "found": "fine", "remedy": ""},
            {"name": "two", "status": "wrong", "found": "bad", "remedy": "mend it"},
        ],
    }


def test_lines_are_aligned_and_fit(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    doctor.print_findings([Finding("GPU", "note", "word " * 30, "remedy " * 20), Finding("torch-geometric", "wrong", "none")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("note  GPU               word")
    assert lines[-1] == "wrong torch-geometric   none"
    assert [line.index("-> ") for line in lines if "-> " in line] == [24]
    assert all(line.startswith(" " * 24) for line in lines[1:-1])


def test_a_check_that_fails_is_a_finding(monkeypatch, capsys):
    def check_open_files():
        raise OSError("no such limit")

    monkeypatch.setattr(doctor, "CHECKS", (check_open_files,))
    assert doctor.run(parse()) == 1
    assert "wrong open files        the check itself failed: OSError: no such limit" in capsys.readouterr().out


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Run every check once in a fresh process in which torch crashes on import."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "torch.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    code = """
import argparse, sys
from hoptrain.trainers.commands import doctor
parser = argparse.ArgumentParser()
doctor.add_parser(parser.add_subparsers())
args = parser.parse_args(["doctor", "--json"])
code = args.run(args)
assert "torch" not in sys.modules
sys.exit(code)
"""
    environment = {key: value for key, value in os.environ.items() if key != "HOPTRAIN_DATA"} | {"PYTHONPATH": str(folder)}
    child = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    return child.returncode, child.stderr, json.loads(child.stdout)


def test_doctor_outlives_a_crash_of_torch(whole_run):
    code, errors, report = whole_run
    assert (code, errors) == (1, "")
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert "does not load: crashed with SIGSEGV" in findings["torch"]["found"]
    assert [name for name, finding in findings.items() if finding["status"] == "wrong"] == ["torch"], "the rest is sound and was looked at"
    assert len(findings) == len(doctor.CHECKS), "one line each, no name twice"


def test_every_finding_that_is_wrong_has_a_remedy(whole_run):
    assert all(finding["remedy"] for finding in whole_run[2]["findings"] if finding["status"] == "wrong")


@pytest.fixture(scope="module")
def hoptrain_doctor(tmp_path_factory):
    """Return a function that runs the command where neither torch nor the engine can be imported."""
    folder = tmp_path_factory.mktemp("nothing_loads")
    for name in ("numba", "numpy", "torch"):
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is broken')")

    def run(*arguments):
        command = [sys.executable, "-m", "hoptrain.trainers.cli", "doctor", *arguments]
        return subprocess.run(command, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=100)

    return run


def test_doctor_works_where_the_engine_cannot_be_imported(hoptrain_doctor):
    child = hoptrain_doctor("--json")
    assert (child.returncode, child.stderr) == (1, "")
    findings = {finding["name"]: finding for finding in json.loads(child.stdout)["findings"]}
    assert "do not load: ImportError: numba is broken" in findings["numba"]["found"]
    assert findings["kernel cache"]["status"] != "wrong", "to find the folder takes no engine"
    assert len(findings) == len(doctor.CHECKS)


def test_a_mistake_in_its_options_is_one_line_all_the_same(hoptrain_doctor):
    child = hoptrain_doctor("--jsn")
    assert (child.returncode, child.stdout) == (2, "")
    assert child.stderr == "hoptrain: unrecognized arguments: --jsn; see 'hoptrain doctor --help'\n"


def test_doctor_is_listed_in_the_help(capsys):
    with exits(0):
        main(["--help"])
    assert "doctor" in capsys.readouterr().out
