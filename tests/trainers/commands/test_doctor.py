import argparse
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
from collections import namedtuple

import pytest

from hoptrain.trainers.cli import main
from hoptrain.trainers.commands import doctor
from hoptrain.trainers.commands.doctor import Finding

GIB = 1 << 30


def parse(*arguments):
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    return parser.parse_args(["doctor", *arguments])


@pytest.fixture
def checks(monkeypatch):
    """Replaces the list of checks."""
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
    assert "wrong open files        the check failed: OSError: no such limit" in capsys.readouterr().out


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """One run of every check in a fresh process where torch crashes on import."""
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
    """Runs the command where neither torch nor the engine can be imported."""
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
    assert "the kernels do not load: ImportError: num" in findings["kernel cache"]["found"]
    assert len(findings) == len(doctor.CHECKS)


def test_a_mistake_in_its_options_is_one_line_all_the_same(hoptrain_doctor):
    child = hoptrain_doctor("--jsn")
    assert (child.returncode, child.stdout) == (2, "")
    assert child.stderr == "hoptrain: unrecognized arguments: --jsn; see 'hoptrain doctor --help'\n"


def test_doctor_is_listed_in_the_help(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "doctor" in capsys.readouterr().out


# Asking a child.


def test_child_answers():
    assert doctor.ask_child("import json, os; print('loading'); print(json.dumps({'a': os.environ['MARK']}))", MARK="b") == {"a": "b"}


def test_child_fails():
    assert doctor.ask_child("import no_such_module_at_all") == {"error": "ModuleNotFoundError: No module named 'no_such_module_at_all'"}
    assert doctor.ask_child("import sys; sys.exit(3)") == {"error": "exit code 3"}


def test_child_crashes():
    assert doctor.ask_child("import os, signal; os.kill(os.getpid(), signal.SIGABRT)") == {"error": "crashed with SIGABRT"}


def test_child_hangs(monkeypatch):
    monkeypatch.setattr(doctor, "LOAD_SECONDS", 0.2)
    assert doctor.ask_child("import signal; signal.pause()") == {"error": "no answer within 0.2 s"}


# Packages.


@pytest.fixture
def installed(monkeypatch):
    """Replaces what is installed."""

    def replace(**versions):
        def version(name):
            if name.replace("-", "_") in versions:
                return versions[name.replace("-", "_")]
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "version", version)

    return replace


@pytest.fixture
def torch_facts(monkeypatch):
    """Replaces what torch says."""
    return lambda **facts: monkeypatch.setattr(doctor, "torch_facts", lambda: facts)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Replaces /proc, with or without a driver in it."""

    def replace(text):
        monkeypatch.setattr(doctor, "PROC", tmp_path)
        if text:
            (tmp_path / "driver/nvidia").mkdir(parents=True)
            (tmp_path / "driver/nvidia/version").write_text(text)

    return replace


OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version:  gcc version 12.3.0\n"


@pytest.mark.parametrize(
    ("facts", "status", "found"),
    [
        ({"version": "2.13.0+cpu", "cuda": None, "gpus": []}, "ok", "2.13.0+cpu, built for CPU only"),
        ({"version": "2.13.0", "cuda": "13.0", "gpus": []}, "ok", "2.13.0, built for CUDA 13.0"),
        ({"version": "2.12.1", "cuda": None, "gpus": []}, "note", "2.12.1, built for CPU only; tested is 2.13.0"),
        ({"error": "crashed with SIGILL"}, "wrong", "torch 2.13.0 does not load: crashed with SIGILL"),
    ],
)
def test_torch(installed, torch_facts, facts, status, found):
    installed(torch="2.13.0")
    torch_facts(**facts)
    finding = doctor.check_torch()
    assert (finding.status, finding.found) == (status, found)
    assert bool(finding.remedy) == (status != "ok")


def test_torch_absent(installed):
    installed()
    assert doctor.check_torch() == Finding("torch", "wrong", "not installed", "pip install torch==2.13.0")


CPU = {"version": "2.13.0", "cuda": None, "gpus": []}
CUDA = {"version": "2.13.0", "cuda": "13.0", "gpus": []}


@pytest.mark.parametrize(
    ("facts", "text", "status", "found"),
    [
        (CPU, "", "note", "none seen: the CPU backend is used"),
        (CUDA, "", "note", "none seen: the CPU backend is used"),
        ({"error": "crashed"}, OPEN_DRIVER, "note", "none seen: the CPU backend is used"),
        (CPU, OPEN_DRIVER, "note", "driver 580.95.05 is loaded, but torch is built for the CPU only"),
        (CUDA, OPEN_DRIVER, "wrong", "driver 580.95.05 is loaded, but torch (CUDA 13.0) sees no GPU: the CPU backend would be used"),
        (CUDA | {"gpus": [["A", 80 * GIB], ["B", 24 * GIB]]}, OPEN_DRIVER, "ok", "A (80 GiB), B (24 GiB); driver 580.95.05, CUDA 13.0"),
        (CUDA | {"gpus": [["A", 80 * GIB]]}, "", "ok", "A (80 GiB); driver unknown, CUDA 13.0"),
    ],
)
def test_gpu(torch_facts, driver, facts, text, status, found):
    torch_facts(**facts)
    driver(text)
    finding = doctor.check_gpu()
    assert (finding.status, finding.found) == (status, found)


@pytest.mark.parametrize(("text", "version"), [("", None), ("something else", "unknown"), (OPEN_DRIVER, "580.95.05")])
def test_driver(driver, text, version):
    driver(text)
    assert doctor.driver() == version


@pytest.mark.parametrize("distribution", ["pytorch_lightning", "lightning"])
@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_compromised_lightning(installed, distribution, version):
    installed(**{"pytorch_lightning": "2.6.6", distribution: version})
    finding = doctor.check_lightning()
    assert finding.status == "wrong"
    assert f"{version} is a compromised release" in finding.found
    assert "pip uninstall" in finding.remedy


def test_lightning(installed):
    installed(pytorch_lightning="2.6.6")
    assert doctor.check_lightning() == Finding("Lightning", "ok", "pytorch-lightning 2.6.6")
    installed()
    assert doctor.check_lightning().status == "wrong"


def test_numba(installed, monkeypatch):
    installed(numba="0.68.1", llvmlite="0.50.0")
    monkeypatch.setattr(doctor, "ask_child", lambda code: {})
    assert doctor.check_numba() == Finding("numba", "ok", "numba 0.68.1, llvmlite 0.50.0")
    monkeypatch.setattr(doctor, "ask_child", lambda code: {"error": "ImportError: no LLVM"})
    assert doctor.check_numba().found == "numba 0.68.1, llvmlite 0.50.0 do not load: ImportError: no LLVM"
    installed(numba="0.68.1")
    assert doctor.check_numba().found == "numba 0.68.1, llvmlite not installed"


def test_required(installed):
    installed(ogb="1.3.6")
    assert doctor.required("ogb") == Finding("ogb", "ok", "ogb 1.3.6")
    assert doctor.required("torch-geometric") == Finding("torch-geometric", "wrong", "not installed", "pip install torch-geometric")


@pytest.mark.parametrize(("text", "remedy"), [("", ""), (OPEN_DRIVER, "pip install 'hoptrain[cuda]'")])
def test_optional(installed, driver, text, remedy):
    driver(text)
    installed(other="14.0")
    assert doctor.optional("gpu", ("first", "other"), "GPUs", needs_driver=True) == Finding("gpu", "ok", "other 14.0")
    missing = doctor.optional("numba-cuda", ("numba-cuda",), "GPUs", needs_driver=True)
    assert missing == Finding("numba-cuda", "note", "not installed: optional, for GPUs", remedy)
    assert doctor.optional("dgl", ("dgl",), "DGL").remedy == ""


# The machine.

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("free", "status", "found"),
    [(8 * GIB, "ok", "8.0 GiB, 8.0 GiB free"), (64 << 20, "note", "0.1 GiB, 0.1 GiB free: tight for torch and NCCL")],
)
def test_shm(monkeypatch, tmp_path, free, status, found):
    monkeypatch.setattr(doctor, "SHM", tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: Usage(free, 0, free))
    finding = doctor.check_shm()
    assert (finding.status, finding.found) == (status, found)


def test_no_shm(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "SHM", tmp_path / "absent")
    assert doctor.check_shm().status == "note"


def test_memfd(monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    assert doctor.check_memfd().status == "ok"
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.delattr(os, "memfd_create")
    finding = doctor.check_memfd()
    assert finding.status == "note"
    assert "not available" in finding.found


@pytest.mark.parametrize(
    ("limits", "status", "found"),
    [
        ((1023, 4096), "note", "at most 1,023 (hard limit 4,096): few for many workers"),
        ((1024, resource.RLIM_INFINITY), "ok", "at most 1,024 (hard limit unlimited)"),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok", "at most unlimited (hard limit unlimited)"),
    ],
)
def test_open_files(monkeypatch, limits, status, found):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    finding = doctor.check_open_files()
    assert (finding.status, finding.found) == (status, found)


@pytest.mark.parametrize(("limit", "found"), [(8 << 20, "at most 8,192 KiB"), (resource.RLIM_INFINITY, "unlimited")])
def test_locked_memory(monkeypatch, limit, found):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert doctor.check_locked_memory().found == found


@pytest.fixture
def cgroup(monkeypatch, tmp_path):
    """Replaces /sys/fs/cgroup and /proc by folders with these files."""

    def replace(own="0::/", **files):
        monkeypatch.setattr(doctor, "CGROUP", tmp_path / "cgroup")
        monkeypatch.setattr(doctor, "PROC", tmp_path / "proc")
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(f"1:name=systemd:/\n{own}\n")
        (tmp_path / "proc/meminfo").write_text(
            f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable:   {32 << 20} kB\nHugePages_Total: 0\n"
        )
        for name, text in files.items():
            path = tmp_path / "cgroup" / name.replace("__", ".").replace("_in_", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return replace


def test_no_cgroup(cgroup):
    cgroup()
    assert doctor.cgroup_cores() is None
    assert doctor.cgroup_memory() is None


def test_cgroup_version_2_without_limits(cgroup):
    cgroup(cpu__max="max 100000\n", memory__max="max\n")
    assert doctor.cgroup_cores() is None
    assert doctor.cgroup_memory() is None


def test_cgroup_version_2_takes_the_tightest_of_the_branch(cgroup):
    cgroup("0::/a/b", a_in_cpu__max="150000 100000", a_in_b_in_cpu__max="400000 100000", a_in_memory__max="max", memory__max="5000")
    assert doctor.cgroup_cores() == 1.5
    assert doctor.cgroup_memory() == 5000


def test_cgroup_version_1(cgroup, tmp_path):
    cgroup("4:memory:/")
    for name, text in {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "4096"}.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert doctor.cgroup_cores() == 0.5
    assert doctor.cgroup_memory() == 4096
    (tmp_path / "cgroup/cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert doctor.cgroup_cores() is None
    assert doctor.cgroup_memory() is None


def test_cores(cgroup, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    cgroup(cpu__max="250000 100000")
    finding = doctor.check_cores()
    assert (finding.status, finding.found) == ("note", "4 of 8, cgroup quota 2.5: more threads than the quota wait for one another")
    assert "no more than 2 workers" in finding.remedy


def test_cores_without_a_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(doctor, "cgroup_cores", lambda: None)
    assert doctor.check_cores() == Finding("cores", "ok", "4 of 8")


@pytest.mark.parametrize(
    ("limit", "status", "found"),
    [
        ("max", "ok", "32.0 GiB available of 64.0 GiB"),
        (str(8 * GIB), "ok", "32.0 GiB available of 64.0 GiB, cgroup limit 8.0 GiB"),
        (str(GIB), "note", "32.0 GiB available of 64.0 GiB, cgroup limit 1.0 GiB: little for torch and a graph"),
    ],
)
def test_memory(cgroup, limit, status, found):
    cgroup(memory__max=limit)
    finding = doctor.check_memory()
    assert (finding.status, finding.found) == (status, found)


def test_kernel_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path))
    assert doctor.check_kernel_cache() == Finding("kernel cache", "ok", str(tmp_path / "numba"))
    (tmp_path / "numba").chmod(0o777)
    finding = doctor.check_kernel_cache()
    assert finding.status == "note"
    assert f"{tmp_path}/numba cannot be used" in finding.found
    assert f"chmod go-w {tmp_path}/numba" in finding.remedy


def test_kernels_that_do_not_load(monkeypatch):
    monkeypatch.setattr(doctor, "ask_child", lambda code, **environment: {"error": "ImportError: numba"})
    assert doctor.check_kernel_cache() == Finding("kernel cache", "wrong", "the kernels do not load: ImportError: numba", "see numba above")


def test_data(monkeypatch, tmp_path):
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)
    assert doctor.check_data().status == "note"
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path))
    assert doctor.check_data() == Finding("$HOPTRAIN_DATA", "ok", str(tmp_path))
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path / "absent"))
    assert doctor.check_data().status == "wrong"
