import json
import math
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.benchmarks.common import harness
from hoptrain.benchmarks.common.harness import Result, write_results

RESULT = Result(records=[{"name": "a", "seconds": 0.5}, {"name": "b", "edges": 7, "note": None}], summary={"speedup": 2.0}, seeds=[0, 1])


# The file.


def test_results(tmp_path):
    path = write_results(tmp_path / "new" / "folder", "sampler", RESULT, quick=True, command="hoptrain bench sampler --quick")
    assert path == tmp_path / "new" / "folder" / "results.json"
    content = json.loads(path.read_text())
    names = ["benchmark", "quick", "machine", "versions", "commit", "date", "command", "load", "seeds", "records", "summary"]
    assert list(content) == names
    assert (content["benchmark"], content["quick"], content["command"]) == ("sampler", True, "hoptrain bench sampler --quick")
    assert (content["records"], content["summary"], content["seeds"]) == (RESULT.records, RESULT.summary, RESULT.seeds)
    assert datetime.fromisoformat(content["date"]).utcoffset().total_seconds() == 0
    assert sorted(file.name for file in path.parent.iterdir()) == ["results.csv", "results.json"]
    assert path.with_suffix(".csv").read_text() == "name,seconds,edges,note\na,0.5,,\nb,,7,\n"


def test_load():
    found = harness.load()
    assert found.keys() == {"busy_cores", "load_average"}
    assert 0 <= found["busy_cores"] <= harness.allowed_cores()


def test_numpy_scalars_become_plain(tmp_path):
    result = Result(
        records=[{"n": np.int64(3), "x": np.float32(0.5), "flag": np.bool_(True)}],
        summary={"best": np.float64(1.5), "n": 2},
        seeds=[np.uint64(2**63)],
    )
    content = json.loads(write_results(tmp_path, "n", result, quick=False, command="").read_text())
    assert content["records"] == [{"n": 3, "x": 0.5, "flag": True}]
    assert content["summary"] == {"best": 1.5, "n": 2}
    assert content["seeds"] == [2**63]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan"), True, "fast", None, [1.0], {"a": 1.0}])
def test_summary_is_flat_and_finite(tmp_path, value):
    result = Result(records=[], summary={"good": 1.0, "bad": value}, seeds=[])
    with refused("summary['bad']", "summary finite numbers", "put records"):
        write_results(tmp_path, "n", result, quick=False, command="")
    assert list(tmp_path.iterdir()) == []


def test_summary_has_names(tmp_path):
    with refused("summary[3] is 1.0", "summary finite numbers", "put records"):
        write_results(tmp_path, "n", Result(records=[], summary={3: 1.0}, seeds=[]), quick=False, command="")


@pytest.mark.parametrize("value", [math.nan, np.float32("inf"), [1], {"a": 1}, np.zeros(2)])
def test_records_are_flat_and_finite(tmp_path, value):
    result = Result(records=[{"a": 1}, {"a": value}], summary={}, seeds=[])
    with refused("records[1]['a']", "record finite numbers", "None"):
        write_results(tmp_path, "n", result, quick=False, command="")
    assert list(tmp_path.iterdir()) == []


def test_earlier_results_are_replaced_in_whole_or_kept(tmp_path, monkeypatch):
    write_results(tmp_path, "first", RESULT, quick=False, command="")
    write_results(tmp_path, "second", RESULT, quick=False, command="")
    assert json.loads((tmp_path / "results.json").read_text())["benchmark"] == "second"

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(harness.Path, "replace", fail)
    with refused("results.json", "not written space left", "folder --out"):
        write_results(tmp_path, "third", RESULT, quick=False, command="")
    assert json.loads((tmp_path / "results.json").read_text())["benchmark"] == "second"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["results.csv", "results.json"]


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").touch()
    with refused("results.json", "not written exists", "folder another --out"):
        write_results(tmp_path / "file", "n", RESULT, quick=False, command="")


# Machine, load and date of a result.


def test_machine(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = harness.machine()
    assert found.keys() == {"cpu", "cores", "memory", "os", "gpus", "python"}
    assert found["cpu"]
    assert found["cores"] >= 1
    assert found["memory"] > 1 << 20
    assert found["gpus"] == []
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "torch" not in sys.modules


def test_machine_names_the_gpus_that_torch_sees(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, get_device_name=lambda i: f"GPU {i}")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert harness.machine()["gpus"] == ["GPU 0", "GPU 1"]


def test_versions(monkeypatch):
    monkeypatch.setattr(harness, "PACKAGES", ("numpy", "no-such-package"))
    assert harness.versions() == {"numpy": np.__version__, "no-such-package": None}


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_commit(repository):
    head = git(repository, "rev-parse", "HEAD")
    assert len(head) == 40
    assert harness.commit(repository) == head
    (repository / "file").write_text("two")
    assert harness.commit(repository) == f"{head}-dirty"


def test_the_commit_of_the_code_that_runs():
    checkout = Path(__file__).parents[3]
    assert harness.commit() == harness.commit(checkout), "found through the links that the packages are imported by"


def test_commit_counts_new_files_as_a_change(repository):
    (repository / "new").touch()
    assert harness.commit(repository).endswith("-dirty")


def test_no_commit_of_ours(repository, tmp_path_factory, monkeypatch):
    inner = repository / "site-packages"
    inner.mkdir()
    assert harness.commit(inner) is None, "the repository of somebody else's project"
    assert harness.commit(tmp_path_factory.mktemp("plain")) is None
    monkeypatch.setenv("PATH", "")
    assert harness.commit(repository) is None, "no git at all"


def test_repository_without_a_commit(tmp_path):
    git(tmp_path, "init", "--quiet")
    assert harness.commit(tmp_path) is None
