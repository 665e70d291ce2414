"""Fixtures for all tests, and checks that no test leaves a process or a file."""

import contextlib
import gc
import multiprocessing.util
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cases.durations import Durations
from hypothesis import HealthCheck, settings

# Numba reads its variable when it is imported. `make test-gpu` runs the tests of CUDA on a device, else they run in Numba's simulator.
os.environ["NUMBA_ENABLE_CUDASIM"] = "0" if os.environ.get("HOPTRAIN_TEST_GPU") == "1" else "1"

# torch's threads must not wait actively: an operation waits for its slowest thread, which needs a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.device import cuda_status, is_simulated
from hoptrain.engine.queue.options import WorkerOptions
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.kernels.machine_code import CACHE_ROOT

# Use the same examples in each run, also on slow machines. `make test-faults` draws others.
settings.register_profile("drawn", database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", settings.get_profile("drawn"), derandomize=True)
settings.load_profile("fixed")

if is_simulated():
    from cases.simulator import take_turns

    take_turns()

pytest_plugins = ["ranks.forked"]
ROOT = Path(__file__).parents[1]
SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


def child_processes():
    """Return the ids of this process's children."""
    children = set()
    for thread in os.listdir("/proc/self/task"):
        with (
            contextlib.suppress(FileNotFoundError),
            open(f"/proc/self/task/{thread}/children") as file,
        ):  # a thread that has ended meanwhile
            children.update(map(int, file.read().split()))
    return children


def shared_memory():
    """Return the names in /dev/shm, except those of torch, drivers, NCCL, the tests themselves and other libraries' semaphores."""
    return {
        name
        for name in os.listdir("/dev/shm")
        if not name.startswith(("torch_", "hoptrain-test-", "sem.mp-", "sem.loky-", "cuda.shm", "nccl-"))
    }


def temporary_files():
    """Return the names of temporary files, except those that PyG, torch, torchrun and joblib leave."""
    left = ("__pycache__", "torchinductor_", "torchelastic_", "pymp-")
    return {name for name in os.listdir(tempfile.gettempdir()) if not name.startswith(left) and not name.endswith(".py")}  # PyG's modules


def pytest_addoption(parser):
    parser.addoption("--record-durations", action="store_true", help="write the processor time of each test into tests/durations.json")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the files, and the tests of each file, in an order drawn by SEED")


def pytest_collection_modifyitems(config, items):
    """Shuffle the tests with ``--shuffle``; tests of a file stay together, since they share fixtures."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        draws = random.Random(seed)
        files = {item.path: draws.random() for item in items}
        items.sort(key=lambda item: (files[item.path], draws.random()))


def pytest_configure(config):
    """Register the plugin, use separate folders, and fail if a GPU is requested but missing, since skipped tests would look like success."""
    if os.environ.get("HOPTRAIN_TEST_GPU") == "1" and (reason := cuda_status()) is not None:
        raise pytest.UsageError(f"HOPTRAIN_TEST_GPU=1, but {reason}")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell ignores SIGINT in background commands, and children inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Durations(config.getoption("--record-durations")))
    _have_own_folders(config)


def _have_own_folders(config):
    """Keep temporary files and caches in a folder that is removed at exit; only machine code is shared with later runs."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path must remain after a failure
    multiprocessing.util.get_temp_dir()  # outside of the folder: multiprocessing deletes it later than the folder
    folder = Path(tempfile.mkdtemp(prefix="hoptrain-tests-"))
    folder.chmod(0o755)  # some tests become another user
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))  # libraries delete files there too
    for name in ("temporary", "cache"):
        (folder / name).mkdir()
    (folder / "cache" / "numba").symlink_to(CACHE_ROOT)
    os.environ |= {
        "TMPDIR": str(folder / "temporary"),
        "HOPTRAIN_CACHE": str(folder / "cache"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder),
    }
    tempfile.tempdir = None  # read TMPDIR again


@pytest.fixture(autouse=True, scope="session")
def _checkout_as_before():
    """Check that no test leaves a file in the checkout."""
    before = set(os.listdir(ROOT))
    yield
    assert set(os.listdir(ROOT)) <= before


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    """Check that a test ends all its processes and leaves nothing in /dev/shm or among the temporary files."""
    children, files, temporary = child_processes(), shared_memory(), temporary_files()
    yield
    forked = [process for process in multiprocessing.active_children() if process.pid not in child_processes()]  # children of a forkserver
    for process in forked:
        process.join(5)
    forked = [process for process in forked if process.is_alive()]
    for process in forked:  # else pytest would wait for them at its end
        process.kill()
    if child_processes() - children:
        gc.collect()
    deadline = time.monotonic() + 5
    # glibc makes a semaphore from a file sem.XXXXXX, which it deletes at once: another process of the machine may be doing so.
    while (child_processes() - children or shared_memory() - files) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child_processes() <= children, "the test left processes running"
    assert not forked, "the test left forked processes running"
    assert shared_memory() <= files, "the test left files in /dev/shm"
    assert temporary_files() <= temporary, "the test left temporary files"


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    """Remove variables that an outer job's launcher has set, and those that Lightning would leave for the next test."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PL_GLOBAL_SEED"):
        monkeypatch.delenv(name, raising=False)
    threads = os.environ.get("OMP_NUM_THREADS")
    yield
    os.environ.pop("OMP_NUM_THREADS", None)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = threads


@pytest.fixture(autouse=True)
def _same_start():
    """Seed all generators and restore torch's threads, so that a test does not depend on tests before it."""
    np.random.seed(0)
    random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed stores each call with its stack until CUDA is initialised
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data_root():
    """Return the folder with real graphs, or skip the test if it is missing."""
    root = Path(os.environ.get("HOPTRAIN_DATA", SHARED_DATA))
    if not (root / "cora.npz").exists():
        pytest.skip(f"real graphs are absent: no cora.npz in {root} (set HOPTRAIN_DATA)")
    return root


def make_graph(num_nodes=200, num_edges=3000, seed=0):
    """Return a random multigraph with hubs, isolated nodes, self loops and parallel edges."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, num_nodes, num_edges)
    dst = (rng.random(num_edges) ** 3 * (num_nodes - 10)).astype(np.int64)  # low ids are hubs, the last ten have no in-edges
    src[:20] = dst[:20]
    src[20:40], dst[20:40] = src[40:60], dst[40:60]
    return Graph.from_edges(src, dst, num_nodes)


@pytest.fixture(scope="session")
def graph():
    return make_graph()


@pytest.fixture(scope="session")
def dataset(graph):
    rng = np.random.default_rng(1)
    order = rng.permutation(graph.num_nodes)
    return Dataset(
        name="random",
        graph=graph,
        x=rng.random((graph.num_nodes, 7), dtype=np.float32),
        y=rng.integers(0, 3, graph.num_nodes),
        splits={"train": np.sort(order[:120]), "val": np.sort(order[120:150]), "test": np.sort(order[150:])},
        num_classes=3,
    )


@pytest.fixture
def pool_of():
    """Return a function that makes pools, and close them after the test."""
    pools = []

    def make(task, num_workers, **options):
        pools.append(WorkerPool(task, num_workers, WorkerOptions(**options)))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def as_rank(monkeypatch):
    """Return a function ``as_rank(rank)`` that makes the current thread one of two ranks with out-of-core features."""
    import torch

    from hoptrain.engine.gpu_memory.meeting import Meeting

    store, local = torch.distributed.HashStore(), threading.local()
    monkeypatch.setattr("hoptrain.samplers.loader.feature_cache.meeting_of", lambda _: local.meeting)
    return lambda rank: setattr(local, "meeting", Meeting(store, rank, 2, name="of threads"))


@pytest.fixture
def memory_for_edges(monkeypatch):
    """Return a function that sets the free memory; it decides whether a loader maps edges or reads them from files."""
    return lambda num_bytes: monkeypatch.setattr("hoptrain.samplers.loader.topology.edge_memory.available_memory", lambda: num_bytes)


@pytest.fixture
def opened():
    """Return a list of loaders that are closed after the test."""
    made = []
    yield made
    for loader in made:
        loader.close()
