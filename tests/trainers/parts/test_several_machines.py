"""``hoptrain fit`` with features in parts: machines are processes of this one here, that tell one another apart by HOPTRAIN_MACHINE and speak by gloo."""

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from hoptrain.engine import load_dataset
from hoptrain.engine.partition.folder import part_folder, write_partition

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
SHORT = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu", "--data.num_workers=1")
START_S = 200
pytestmark = [pytest.mark.long, pytest.mark.timeout(START_S + 100)]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(folder, machines, *arguments):
    """The ranks of a run, by the variables that torchrun sets: rank r runs on the machine ``machines[r]``, in a folder of its name."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(len(machines)), "TORCHELASTIC_RUN_ID": "here"}
    shared |= {"OMP_NUM_THREADS": "1", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": str(len(machines) // len(set(machines)))}
    places = (f"--trainer.num_nodes={len(set(machines))}", f"--trainer.devices={shared['LOCAL_WORLD_SIZE']}")
    ranks = []
    for rank, machine in enumerate(machines):
        (folder / machine).mkdir(exist_ok=True)
        own = {"RANK": str(rank), "LOCAL_RANK": str(machines[:rank].count(machine)), "HOPTRAIN_MACHINE": machine}
        command = [sys.executable, "-m", "hoptrain.trainers.cli", "fit", "--config", QUICKSTART, *SHORT, *places, *map(str, arguments)]
        options = {"cwd": folder / machine, "env": os.environ | shared | own, "start_new_session": True}
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options))
    return ranks


def processes_in(folder):
    """Processes whose folder this is: ranks, their watches, samplers and carriers; by id, with their command lines."""
    found = {}
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if os.readlink(process / "cwd").startswith(str(folder)):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def ended(folder, ranks, seconds):
    """What the ranks said; all of their processes have ended."""
    try:
        told = [rank.communicate(timeout=seconds) for rank in ranks]
        deadline = time.monotonic() + 5
        while processes_in(folder) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes_in(folder) == {}
        return told
    finally:
        for pid in processes_in(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for rank in ranks:
            rank.communicate()


def in_two(folder, graph):
    """The digits in two parts: each machine's folder has what it needs alone."""
    write_partition(load_dataset("digits-knn"), folder / "parts", 2, "range", graph=graph)
    for machine in range(2):
        (folder / f"m{machine}").mkdir()
        for entry in (folder / "parts").iterdir():
            if entry != part_folder(folder / "parts", 1 - machine):
                (folder / f"m{machine}" / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return in_two(tmp_path_factory.mktemp("digits"), "whole")


def place(folder, parts, machines="01"):
    for name, of in zip("01", machines, strict=True):
        (folder / f"m{name}").mkdir(parents=True)
        (folder / f"m{name}" / "parts").symlink_to(parts / f"m{of}")


def learnt(runs):
    """Weights at the end, and scores of each validation."""
    weights = torch.load(runs / "version_0/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    with open(runs / "version_0/metrics.csv") as file:
        scores = [(row["val_loss"], row["val_acc"]) for row in csv.DictReader(file) if row.get("val_acc")]
    return {name: tensor.numpy().tobytes() for name, tensor in weights.items()}, scores


def test_two_machines_learn_what_one_does(tmp_path, parts, tmp_path_factory):
    small = ("--trainer.max_epochs=2", "--data.batch_size=32", "--data.sampler.fanouts=[4,3]")
    one = (*small, f"--trainer.default_root_dir={tmp_path / 'one'}")
    plain = ended(tmp_path, start(tmp_path, ["m0", "m0"], *one), START_S)
    expected = learnt(tmp_path / "one")
    assert len(expected[1]) == 2
    parted = in_two(tmp_path_factory.mktemp("parted"), "parted")
    for graph, of_graph, lookahead in (("whole", parts, 128), ("parted", parted, 16)):
        folder = tmp_path / graph
        place(folder, of_graph)
        two = (f"--trainer.default_root_dir={folder}", "--data.partitions=parts", "--data.memory=300KiB", f"--data.lookahead={lookahead}")
        told = ended(folder, start(folder, ["m0", "m1"], *small, *two), START_S)
        assert [out.splitlines()[-1:] for out, _ in told] == [out.splitlines()[-1:] for out, _ in plain], told
        assert "test accuracy 0." in told[0][0]
        assert learnt(folder) == expected


EACH_FAULT = pytest.mark.skipif(os.environ.get("HOPTRAIN_FAULTS") != "1", reason="each fault: HOPTRAIN_FAULTS=1")


@pytest.mark.parametrize("what", ["machine", pytest.param("rank", marks=EACH_FAULT), pytest.param("carrier", marks=EACH_FAULT)])
def test_a_machine_that_is_lost_is_named(tmp_path, parts, what):
    place(tmp_path, parts)
    many = ("--trainer.max_epochs=5000", f"--trainer.default_root_dir={tmp_path / 'runs'}", "--data.partitions=parts")
    ranks = start(tmp_path, ["m0", "m1"], *many)
    deadline = time.monotonic() + START_S
    while not (tmp_path / "runs/version_0/checkpoints/last.ckpt").exists():
        assert time.monotonic() < deadline
        assert all(rank.poll() is None for rank in ranks), [rank.communicate() for rank in ranks]
        time.sleep(0.1)
    processes = processes_in(tmp_path / "m1")
    [carrier] = [pid for pid, command in processes.items() if "trainers.parts.carrier" in command]
    for pid in {"machine": processes, "rank": [ranks[1].pid], "carrier": [carrier]}[what]:
        os.kill(pid, signal.SIGKILL)
    (_, first), (_, second) = ended(tmp_path, ranks, 30)
    cause = (
        "failed: InputError: the process that exchanges rows with other machines was killed"
        if what == "carrier"
        else "(was killed|is gone)"
    )
    assert re.search(f"hoptrain: rank 0 ends, because rank 1 {cause}", first), (first, second)
