import os
import resource
from collections import namedtuple

import pytest

from hoptrain.engine import machine as limits
from hoptrain.trainers.commands.checks import machine
from hoptrain.trainers.commands.checks.finding import GIB, Finding

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("free", "status", "found"),
    [(8 * GIB, "ok", "8.0 GiB, 8.0 GiB free"), (64 << 20, "note", "0.1 GiB, 0.1 GiB free: may be too small for torch and NCCL")],
)
def test_shm(monkeypatch, tmp_path, free, status, found):
    monkeypatch.setattr(machine, "SHM", tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: Usage(free, 0, free))
    finding = machine.check_shm()
    assert (finding.status, finding.found) == (status, found)


def test_no_shm(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "SHM", tmp_path / "absent")
    assert machine.check_shm().status == "note"


def test_memfd(monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    assert machine.check_memfd().status == "ok"
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.delattr(os, "memfd_create")
    finding = machine.check_memfd()
    assert finding.status == "note"
    assert "not available" in finding.found


@pytest.mark.parametrize(
    ("limits", "status", "found"),
    [
        ((1023, 4096), "note", "limit 1,023 (hard limit 4,096): may be too low for many workers"),
        ((1024, resource.RLIM_INFINITY), "ok", "limit 1,024 (hard limit unlimited)"),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), "ok", "limit unlimited (hard limit unlimited)"),
    ],
)
def test_open_files(monkeypatch, limits, status, found):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    finding = machine.check_open_files()
    assert (finding.status, finding.found) == (status, found)


@pytest.mark.parametrize(("limit", "found"), [(8 << 20, "limit 8,192 KiB"), (resource.RLIM_INFINITY, "unlimited")])
def test_pinned_memory(monkeypatch, limit, found):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert machine.check_locked_memory().found == found


@pytest.fixture
def cgroup(monkeypatch, tmp_path):
    """Return a function that replaces /sys/fs/cgroup and /proc by folders with the given files."""

    def replace(own="0::/", **files):
        monkeypatch.setattr(limits, "CGROUP", tmp_path / "cgroup")
        monkeypatch.setattr(limits, "PROC", tmp_path / "proc")
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
    assert machine.cgroup_cores() is None
    assert machine.cgroup_memory() is None


def test_cgroup_version_2_without_limits(cgroup):
    cgroup(cpu__max="max 100000\n", memory__max="max\n")
    assert machine.cgroup_cores() is None
    assert machine.cgroup_memory() is None


def test_cgroup_version_2_takes_the_tightest_of_the_branch(cgroup):
    cgroup("0::/a/b", a_in_cpu__max="150000 100000", a_in_b_in_cpu__max="400000 100000", a_in_memory__max="max", memory__max="5000")
    assert machine.cgroup_cores() == 1.5
    assert machine.cgroup_memory() == 5000


def test_cgroup_version_1(cgroup, tmp_path):
    cgroup("4:memory:/")
    for name, text in {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "4096"}.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert machine.cgroup_cores() == 0.5
    assert machine.cgroup_memory() == 4096
    (tmp_path / "cgroup/cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine.cgroup_cores() is None
    assert machine.cgroup_memory() is None


def test_cores(cgroup, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    cgroup(cpu__max="250000 100000")
    finding = machine.check_cores()
    assert (finding.status, finding.found) == ("note", "4 of 8, cgroup quota 2.5: threads beyond the quota slow one another down")
    assert "at most 2 workers" in finding.remedy


def test_cores_without_a_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(machine, "cgroup_cores", lambda: None)
    assert machine.check_cores() == Finding("cores", "ok", "4 of 8")


@pytest.mark.parametrize(
    ("limit", "status", "found"),
    [
        ("max", "ok", "32.0 GiB available of 64.0 GiB"),
        (str(8 * GIB), "ok", "32.0 GiB available of 64.0 GiB, cgroup limit 8.0 GiB"),
        (str(GIB), "note", "32.0 GiB available of 64.0 GiB, cgroup limit 1.0 GiB: may be too little for torch and a graph"),
    ],
)
def test_memory(cgroup, limit, status, found):
    cgroup(memory__max=limit)
    finding = machine.check_memory()
    assert (finding.status, finding.found) == (status, found)


def test_kernel_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path))
    assert machine.check_kernel_cache() == Finding("kernel cache", "ok", f"{tmp_path}/numba: 0 files, all intact")
    (tmp_path / "numba" / "0123-numba-sealed").mkdir()
    for name in ("empty.nbi", "cut.nbc"):
        (tmp_path / "numba" / "0123-numba-sealed" / name).write_bytes(name[:3].encode())
    found = f"{tmp_path}/numba: removed 2 damaged files; 0 files are intact"
    finding = machine.check_kernel_cache()
    assert (finding.status, finding.found) == ("note", found)
    (tmp_path / "numba").chmod(0o777)
    finding = machine.check_kernel_cache()
    assert finding.status == "note"
    assert f"{tmp_path}/numba is not writable" in finding.found
    assert f"chmod go-w on {tmp_path}/numba" in finding.remedy


def test_kernels_that_do_not_load(monkeypatch):
    monkeypatch.setattr(machine, "ask_child", lambda code, **environment: {"error": "ImportError: numba"})
    assert machine.check_kernel_cache() == Finding(
        "kernel cache", "wrong", "the kernels cannot be loaded: ImportError: numba", "see the line about numba"
    )


def test_data(monkeypatch, tmp_path):
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)
    assert machine.check_data().status == "note"
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path))
    assert machine.check_data() == Finding("$HOPTRAIN_DATA", "ok", str(tmp_path))
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path / "absent"))
    assert machine.check_data().status == "wrong"
