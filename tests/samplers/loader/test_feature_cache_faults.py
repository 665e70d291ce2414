"""Out-of-core features under faults: killed or stopped processes change no batch; a failing file or device is reported in one line.

``HOPTRAIN_FAULTS=N`` sends 4 N signals instead of 12, also without out-of-core edges (``make test-faults``: 200).
"""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cases.mistakes import refused
from ranks.command import TWO_RANKS, in_ranks
from ranks.on_machines import EACH_FAULT

from hoptrain.engine import Dataset, WorkerOptions
from hoptrain.samplers import NeighborSampler, SampleLoader

SIGNALS = 4 * int(os.environ.get("HOPTRAIN_FAULTS", "3"))
ROOT = Path(__file__).parents[3]
SHORT = "--trainer.enable_progress_bar=false --trainer.enable_model_summary=false --trainer.max_epochs=2"
pytestmark = pytest.mark.timeout(200 + 30 * SIGNALS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a data set of 8000 nodes and 1 MB of features."""
    draw, number = np.random.default_rng(0), 8000
    edges = np.stack([(number * draw.random(60_000) ** 3).astype(np.int64), draw.integers(0, number, 60_000)])
    splits = {"train": np.arange(0, number, 5), "val": np.arange(1, number, 40), "test": np.arange(2, number, 40)}
    path = tmp_path_factory.mktemp("faults") / "data"
    Dataset(x=draw.random((number, 32), dtype=np.float32), y=draw.integers(0, 3, number), edge_index=edges, splits=splits).save(path)
    return path


class Signals(threading.Thread):
    """A thread that sends a signal to a process of the loader after each batch.

    Half of the signals kill the process; the others stop it, for a while or for good.
    """

    def __init__(self, loader, number):
        super().__init__(daemon=True)
        self.sent, self._loader, self._number = Counter(), loader, number
        self._due, self._draw = threading.Semaphore(0), random.Random(1)

    def send_next(self):
        self._due.release()

    def run(self):
        left = []  # ten signals must include each kind
        while self.sent.total() < self._number and self._due.acquire(timeout=120):
            time.sleep(self._draw.uniform(0, 0.3))
            left = left or self._draw.sample(["kill"] * 5 + ["pause"] * 4 + ["stop"], 10)
            who, what = self._draw.choice(["filler", "worker", "worker"]), left[-1]
            pid = self._draw.choice((self._loader.feature_cache if who == "filler" else self._loader).pids())
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
                self.sent[f"{who} {left.pop()}"] += 1
                if what == "pause":
                    time.sleep(self._draw.uniform(0, 0.5))
                    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("edges", [pytest.param("mapped", marks=EACH_FAULT), "read"])
def test_signals_cost_reads_and_no_bit(folder, memory_for_edges, edges):
    if edges == "read":
        memory_for_edges(0)
    data = Dataset.open(folder)
    worker_options = WorkerOptions(timeout=20.0, max_restarts=1000)
    options = {"batch_size": 64, "seed": 5}
    cached = SampleLoader(data, NeighborSampler([3, 2]), feature_cache="500KiB", num_workers=2, worker_options=worker_options, **options)
    plain = SampleLoader(data, NeighborSampler([3, 2]), **options)
    signals, batches = None, 0
    with cached, plain:
        while signals is None or signals.is_alive():
            for ours, theirs in zip(cached, plain, strict=True):
                np.testing.assert_array_equal(ours.node_ids, theirs.node_ids)
                assert ours.x.tobytes() == theirs.x.tobytes()
                assert (ours.epoch, ours.batch) == (theirs.epoch, theirs.batch)
                batches += 1
                if signals is None:
                    signals = Signals(cached, SIGNALS)
                    signals.start()
                signals.send_next()
    print(f"{batches} batches, {dict(signals.sent)}")
    assert (cached.task.edges is not None) == (edges == "read")
    assert signals.sent.total() == SIGNALS
    assert {what.split()[1] for what in signals.sent} == {"kill", "pause", "stop"}


def fit(folder, cwd, *options):
    cwd.mkdir()
    command = ["fit", "--config", "quickstart", *SHORT.split(), *TWO_RANKS, f"--data.dataset={folder}", "--data.batch_size=16"]
    run = in_ranks(*command, "--trainer.log_every_n_steps=1", "--trainer.limit_train_batches=20", "--data.num_workers=1", *options, cwd=cwd)
    rows = (cwd / "runs/version_0/metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("train_loss_step")
    return [row.split(",")[column] for row in rows[1:] if row.split(",")[column]], run


@pytest.mark.usefixtures("forkserver")
def test_two_ranks_train_on_what_features_in_memory_give(folder, tmp_path):
    losses, run = fit(folder, tmp_path / "cached", "--data.feature_cache=700KiB")
    expected, _ = fit(folder, tmp_path / "plain")
    assert losses == expected
    assert len(losses) > 4
    assert run.err.count("feature cache: ") == 1  # only the rank that fills the cache logs it
    assert "prefetch_steps 256" in run.err


def test_a_file_that_is_cut_off_in_mid_run_is_one_line(folder, tmp_path):
    Dataset.open(folder).save(tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    loader = SampleLoader(data, NeighborSampler([3, 2]), batch_size=64, feature_cache="300KiB", prefetch_steps=4, num_workers=1)
    with loader:
        batches = iter(loader)
        next(batches)
        os.truncate(tmp_path / "data" / "x.npy", 100_000)
        with refused("x.npy", "ends 100,000 row cut off", "convert copy again"):
            list(batches)


STOPS = """
    import sys, time
    from hoptrain.engine import Dataset, InputError
    from hoptrain.engine.storage.file_rows import FileRows
    from hoptrain.samplers import NeighborSampler, SampleLoader

    class Stopping(FileRows):
        stall_s = 2.0
        left = 3
        def __reduce__(self):
            return Stopping, (self.path, self.offset, self.shape, self.dtype)
        def _read_piece(self, *args):
            self.left -= 1
            if self.left < 0:
                time.sleep(1000)
            return super()._read_piece(*args)

    if __name__ == "__main__":
        of = FileRows.of
        FileRows.of = lambda array, what: Stopping(*of(array, what).__reduce__()[1])
        loader = SampleLoader(Dataset.open(sys.argv[1]), NeighborSampler([3, 2]), batch_size=64, feature_cache="300KiB", num_workers=1)
        try:
            for number, _ in enumerate(loader):
                print("batch", number, flush=True)
        except InputError as error:
            print(error)
        loader.close()
"""


def test_a_device_that_stops_under_the_process_that_reads_is_one_line(folder, tmp_path):
    """If the device stops, so that reads of the cache filler never return, as on an unreachable network disk, one line reports it."""
    (tmp_path / "stops.py").write_text(textwrap.dedent(STOPS))
    run = subprocess.run([sys.executable, tmp_path / "stops.py", folder], capture_output=True, text=True, timeout=180, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].endswith(
        "x.npy: no read has ended for 2 s: its device has stopped; see the system's log (dmesg), or move the folder"
    )


BY_WRITES = """
    from hoptrain.trainers.cli import main
    raise SystemExit(main(["data", "convert", "digits-knn", "{folder}/new"]))
"""
BY_A_MAP = """
    from pathlib import Path
    from hoptrain.engine import InputError
    from hoptrain.engine.store import create_new_folder
    try:
        with create_new_folder(Path("{folder}/new"), "dataset") as writer:
            writer.create("x", "f4", (1000, 100))[:] = 1
    except InputError as error:
        raise SystemExit(error)
"""


@pytest.mark.parametrize("script", [BY_WRITES, BY_A_MAP], ids=["writes", "a map"])
def test_a_full_disk_at_conversion_is_one_line(tmp_path, script):
    """If the disk is full while a data set is converted, here on a file system of 200 kB, one line reports it."""
    (tmp_path / "small").mkdir()
    mount = f'mount -t tmpfs -o size=200k tmpfs {tmp_path / "small"} && {sys.executable} -c "$1"; code=$?; ls -A {tmp_path / "small"}; exit $code'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a file system of his own (unshare --user --mount)")
    script = textwrap.dedent(script.format(folder=tmp_path / "small"))
    run = subprocess.run([*command, mount, "sh", script], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert run.returncode in (1, 2), (run.returncode, run.stderr)
    assert "small/new cannot be written (No space left on device): free disk space" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr
    assert run.stdout == ""  # nothing is left behind
