"""Limits of the machine reached at the start or during an epoch: one error names the limit, or nothing fails; later epochs work."""

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cases.mistakes import refused
from reference.tasks import Faulty, Numbers

from hoptrain.engine import WorkerError
from hoptrain.engine.queue.ahead import run_inline

ROOT = Path(__file__).parents[3]
LARGE = 4_000_000


def values(batches):
    return [int(arrays["values"].sum()) for arrays, _ in batches]


def in_small_file_system(folder, script):
    """Run a Python script in which ``folder`` is a private in-memory file system of 8 MiB."""
    mount = f'mount -t tmpfs -o size=8m tmpfs {folder} && exec {sys.executable} -c "$1"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a file system of his own (unshare --user --mount)")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/tests"}
    return subprocess.run(
        [*command, mount, "sh", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment, check=False
    )


FULL_SHM = """
    import os
    from reference.tasks import Numbers
    from hoptrain.engine.queue.ahead import run_inline
    from hoptrain.engine.queue.pool import WorkerPool
    def fill():
        with open("/dev/shm/full", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError as error:
                print(error.strerror)
    if "{when}" == "start":
        fill()
    pool = WorkerPool(Numbers(sizes=(10, 10, 10, 10, 4_000_000)), 2)
    batches = pool.run(0, range(10))
    found = [next(batches)[0]["values"].sum()]
    if "{when}" == "mid-run":
        fill()
    found += [arrays["values"].sum() for arrays, _ in batches]
    assert found == [arrays["values"].sum() for arrays, _ in run_inline(Numbers(sizes=(10, 10, 10, 10, 4_000_000)), 0, range(10))]
    pool.close()
    print("equal")
"""


@pytest.mark.parametrize("when", ["start", "mid-run"])
def test_a_full_dev_shm_does_not_matter(when):
    done = in_small_file_system("/dev/shm", FULL_SHM.format(when=when))
    assert done.stdout.splitlines() == ["No space left on device", "equal"], done.stderr


SMALL_DISK = """
    import sys
    from reference.tasks import Numbers
    from hoptrain.engine import InputError
    from hoptrain.engine.queue.options import WorkerOptions
    from hoptrain.engine.queue.pool import WorkerPool
    try:
        WorkerPool(Numbers(), 1, WorkerOptions(buffer_dir="{folder}"), batch_bytes=5 << 20)
    except InputError as error:
        print(error)
    pool = WorkerPool(Numbers(sizes=(10, 10, 4_000_000)), 1, WorkerOptions(prefetch_factor=1, buffer_dir="{folder}"))
    try:
        for arrays, facts in pool.run(0, range(3)):
            print(arrays["values"].sum())
    except InputError as error:
        print(error)
    pool.close()
"""


def test_a_full_slots_dir_is_named(tmp_path):
    done = in_small_file_system(tmp_path, SMALL_DISK.format(folder=tmp_path))
    refused, *sums, failed = done.stdout.splitlines()
    assert f"3 batches of 8 MiB each need 24 MiB and 8 MiB are free in buffer_dir {tmp_path}: use fewer num_workers" in refused, done.stderr
    assert sums == ["0", "10"]
    assert "cannot reserve 40 MiB of shared memory (No space left on device): use a smaller batch_size" in failed


def test_memory_that_runs_out_in_mid_run_is_one_line_and_the_pool_serves_on(pool_of):
    task = Numbers(sizes=(10, 10, 10, LARGE))
    pool = pool_of(task, 1, prefetch_factor=1)
    batches = pool.run(0, range(4))
    held = next(batches)  # one slot of two: the worker cannot come as far as the large batch
    resource.prlimit(pool.pids()[0], resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
    with refused("40 MiB", "cannot reserve shared memory", "smaller batch_size num_workers prefetch buffer_dir"):
        values(batches)
    del held
    resource.prlimit(pool.pids()[0], resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert values(pool.run(1, range(4))) == values(run_inline(task, 1, range(4)))


@pytest.fixture
def no_more_files():
    """Return a function that takes all remaining file descriptors. A second call, or the end of the test, releases them."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []

    def take():
        if taken:
            give_back()
            return
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1]))
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass

    def give_back():
        while taken:
            os.close(taken.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    yield take
    give_back()


def test_a_replacement_for_which_there_is_no_file_left_is_an_error_and_the_pool_serves_on(pool_of, tmp_path, no_more_files):
    pool = pool_of(Faulty(tmp_path, {}), 2)
    batches = pool.run(0, range(20))
    held = [next(batches) for _ in range(8)]  # every slot is mapped
    no_more_files()
    os.kill(pool.pids()[0], 9)
    with refused("worker 0", "cannot started open files", "ulimit num_workers prefetch", WorkerError):
        values(batches)
    no_more_files()
    del held
    assert values(pool.run(1, range(5))) == [1000 * (100 + step) for step in range(5)]


def test_a_slot_for_whose_mapping_there_is_no_file_left_is_an_error_and_the_pool_serves_on(pool_of, no_more_files):
    pool = pool_of(Numbers(), 2)
    no_more_files()
    with refused("worker 0", "batch mapped open files", "ulimit num_workers prefetch", WorkerError):
        values(pool.run(0, range(4)))
    no_more_files()
    assert values(pool.run(1, range(20))) == [10 * (100 + step) for step in range(20)]


def test_no_file_left_at_the_start_is_the_users_mistake(pool_of, no_more_files):
    no_more_files()
    with refused("2 workers", "84 open files use", "ulimit num_workers prefetch"):
        pool_of(Numbers(), 2)


def test_a_queue_in_files_has_no_names_and_the_same_batches(pool_of, tmp_path):
    task = Numbers(sizes=(10, LARGE))
    pool = pool_of(task, 2, buffer_dir=str(tmp_path))
    assert values(pool.run(0, range(6))) == values(run_inline(task, 0, range(6)))
    assert list(tmp_path.iterdir()) == []
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    places = {
        str(link) for link in links if link.is_relative_to(tmp_path)
    }  # a mapped file is open twice: mmap keeps a descriptor of its own
    assert len(places) == 2 * 3, "two workers have slots for the batch in use and two more"
    assert all(place.endswith("(deleted)") for place in places)


def test_a_slots_dir_that_is_not_there(pool_of, tmp_path):
    with refused(str(tmp_path / "nowhere"), "buffer_dir cannot hold queue's files", "folder exists written"):
        pool_of(Numbers(), 1, buffer_dir=str(tmp_path / "nowhere"))


def test_without_shared_memory_the_queue_lies_in_temporary_files_and_one_line_says_so(pool_of, tmp_path, monkeypatch, caplog):
    reason = f"not permitted in {tmp_path}"  # a new reason, since each reason is logged once in a process

    def refuse(*_):
        raise PermissionError(1, reason)

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert values(pool_of(Numbers(), 2).run(0, range(4))) == values(run_inline(Numbers(), 0, range(4)))
    assert [record.getMessage() for record in caplog.records] == [
        f"shared memory is not available ({reason}): the queue uses files in {tmp_path}; set buffer_dir for another folder"
    ]
