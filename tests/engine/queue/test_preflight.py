"""Checks of the machine's limits before workers start."""

import os
import resource

import pytest
from cases.mistakes import refused
from reference.tasks import Numbers

from hoptrain.engine import machine
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.engine.queue.preflight import check_files, check_memory, free_space


@pytest.fixture
def few_files():
    """Allow 200 file descriptors more than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_few_files_are_an_error_before_any_worker(few_files):
    with refused("64 workers", f"704 open files {few_files} use", "limit ulimit num_workers prefetch"):
        WorkerPool(Numbers(), 64)


def test_enough_files(few_files):
    check_files(2, 3)


def test_memory():
    check_memory(2, 3, 1 << 20)
    with refused("8 workers", "3 batches 1310720 31457280 free", "fewer num_workers less prefetch_factor"):
        check_memory(8, 3, 1 << 40)


def test_the_space_of_slots_dir_counts_instead_of_memory(tmp_path):
    check_memory(1, 1, free_space(str(tmp_path)) // 2, str(tmp_path))
    with refused(str(tmp_path), "8 workers MiB free buffer_dir", "fewer num_workers less prefetch_factor"):
        check_memory(8, 3, 1 << 50, str(tmp_path))


@pytest.mark.parametrize("own", [".", "system.slice/job"])
@pytest.mark.parametrize(("limit", "free"), [("max", 1000 << 10), ("500000", 300000), ("100", 0)])
def test_the_limit_of_the_own_control_group_or_one_above_counts(tmp_path, monkeypatch, own, limit, free):
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/job\n")
    group = tmp_path / "cgroup" / own
    group.mkdir(parents=True)
    (group / "memory.max").write_text(limit)
    (group / "memory.current").write_text("200000")
    assert machine.available_memory() == free


@pytest.mark.parametrize(
    ("own", "folder", "limit", "used", "cached"),
    [
        ("0::/job", "job", "memory.max", "memory.current", ""),
        ("3:cpu:/\n4:hugetlb,memory:/job/step", "memory/job", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ],
    ids=["version 2", "version 1"],
)
def test_files_in_the_page_cache_of_a_control_group_count_as_free(tmp_path, monkeypatch, own, folder, limit, used, cached):
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(f"{own}\n")
    group = tmp_path / "cgroup" / folder
    group.mkdir(parents=True)
    stat = f"anon 5\nactive_file 7\ninactive_file 3\n{cached}active_file 60000\n{cached}inactive_file 50000\nshmem 9\n"
    for name, text in ((limit, "500000"), (used, "200000"), ("memory.stat", stat)):
        (group / name).write_text(text)
    assert machine.available_memory() == 410_000


def test_more_workers_than_the_cores_bear(monkeypatch):
    monkeypatch.setattr(machine, "cgroup_cores", lambda: 1.5)
    assert machine.usable_cores() == 1
    with refused("33", "num_workers process use 1 cores", "at most 32 core"):
        WorkerPool(Numbers(), 33)
