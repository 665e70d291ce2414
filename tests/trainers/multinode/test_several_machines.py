"""``hoptrain fit`` with partitioned features. Machines are processes that differ in HOPTRAIN_MACHINE and communicate by gloo."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from ranks.on_machines import EACH_FAULT, MAIN, START_S, digits_in_parts, ended, learnt, place, processes_in, send, start

from hoptrain.engine import load_dataset

# `test_launchers.py` tests two machines with a replicated graph.
GRAPHS = (("replicated", 128), ("partitioned", 16)) if "HOPTRAIN_FAULTS" in os.environ else (("partitioned", 16),)
pytestmark = [pytest.mark.timeout(START_S + 100), pytest.mark.usefixtures("forkserver")]
APART = """
import os, sys
if "CLOCK" in os.environ:
    sys.path.insert(0, os.environ["CLOCK"])
    exec(open(os.environ["CLOCK"] + "/sitecustomize.py").read(), {})
"""
"""Sets the clock of a forked rank; processes that the rank starts find ``sitecustomize`` by their path."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return digits_in_parts(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def clock_apart(tmp_path):
    """Return the variables of a machine whose clock is a year ahead, since machines must not compare clocks."""
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead" / "sitecustomize.py").write_text(
        "import time\nreal, real_ns = time.time, time.time_ns\ntime.time = lambda: real() + 3e7\ntime.time_ns = lambda: real_ns() + 3 * 10**16\n"
    )
    for program, variable in (("import time", "PYTHONPATH"), (APART + "import time", "CLOCK")):
        environment = os.environ | {variable: str(tmp_path / "ahead")}
        process = subprocess.run([sys.executable, "-c", f"{program}; print(time.time())"], env=environment, capture_output=True, check=True)
        assert float(process.stdout) > time.time() + 2e7
    return {"CLOCK": str(tmp_path / "ahead")}


def scores(out):
    """Return the lines of a run's output with the test metrics."""
    return [line for line in out.splitlines() if line.startswith("test ")]


@pytest.mark.parametrize("features", ["stored", pytest.param("int4", marks=EACH_FAULT)])
def test_two_machines_learn_what_one_does(tmp_path, tmp_path_factory, clock_apart, features):
    name = "digits-knn"
    if features != "stored":  # codes are sent without conversion
        load_dataset(name).save(tmp_path / "narrow", features=features)
        name = tmp_path / "narrow"
    small = ("--trainer.max_epochs=2", "--data.batch_size=32", "--data.sampler.fanouts=[4,3]")
    one = (*small, f"--trainer.default_root_dir={tmp_path / 'one'}", f"--data.dataset={name}")
    plain = ended(tmp_path, start(tmp_path, ["m0", "m0"], *one, forked=MAIN), START_S)
    expected = learnt(tmp_path / "one")
    assert len(expected[1]) == 2
    for graph, prefetch_steps in GRAPHS:
        of_graph = digits_in_parts(tmp_path_factory.mktemp(graph), graph=graph, name=name)
        folder = tmp_path / graph
        place(folder, of_graph)
        two = (
            f"--trainer.default_root_dir={folder}",
            "--data.partitions=parts",
            "--data.feature_cache=300KiB",
            f"--data.prefetch_steps={prefetch_steps}",
        )
        ranks = start(folder, ["m0", "m1"], *small, *two, variables={"m1": clock_apart}, forked=APART + MAIN)
        outputs = ended(folder, ranks, START_S)
        assert [scores(out) for out, _ in outputs] == [scores(out) for out, _ in plain], outputs
        assert "test accuracy 0." in outputs[0][0]
        assert learnt(folder) == expected


@pytest.mark.parametrize("what", ["machine", pytest.param("rank", marks=EACH_FAULT), pytest.param("comm", marks=EACH_FAULT)])
def test_a_machine_that_is_lost_is_named(tmp_path, parts, what):
    place(tmp_path, parts)
    many = ("--trainer.max_epochs=5000", f"--trainer.default_root_dir={tmp_path / 'runs'}", "--data.partitions=parts")
    ranks = start(tmp_path, ["m0", "m1"], *many, forked=MAIN)
    deadline = time.monotonic() + START_S
    while not (tmp_path / "runs/version_0/checkpoints/last.ckpt").exists():
        assert time.monotonic() < deadline
        assert all(rank.poll() is None for rank in ranks), [rank.communicate() for rank in ranks]
        time.sleep(0.1)
    processes = processes_in(tmp_path / "m1")
    [comm_process] = [pid for pid, command in processes.items() if "trainers.multinode.comm_process" in command]
    send({"machine": processes, "rank": [ranks[1].pid], "comm": [comm_process]}[what], signal.SIGKILL)
    (_, first), (_, second) = ended(tmp_path, ranks, 30)
    cause = (
        "failed: InputError: the process that exchanges rows with other machines was killed" if what == "comm" else "(was killed|has ended)"
    )
    assert re.search(f"hoptrain: rank 0 ends, because rank 1 {cause}", first), (first, second)
