"""Runs whose ranks behave as if they were on several machines, although all are processes of this machine."""

import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

import pytest
import torch

from hoptrain.benchmarks.machines.namespaces import INTERFACE
from hoptrain.engine import load_dataset
from hoptrain.engine.partition.folder import part_folder, write_partition
from ranks.forked import Forked

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
SHORT = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu", "--data.num_workers=1")
EACH_FAULT = pytest.mark.skipif(not os.environ.get("HOPTRAIN_FAULTS"), reason="each fault: HOPTRAIN_FAULTS=1")
START_S = 200  # a busy machine takes a minute to start two ranks


def free_port(ports=range(15_000, 32_000)):
    """Return a free port below the system's ephemeral ports, drawn independently of the seed of trainings.

    Otherwise another test's process could take it before the ranks start.
    """
    for port in SystemRandom().sample(ports, 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("a hundred ports are taken")


COMMAND = (sys.executable, "-m", "hoptrain.trainers.cli")
MAIN = "import sys\nfrom hoptrain.trainers.cli import main\nsys.exit(main())"
"""The command as a program of forked processes."""


def launched(number, machines=1, address="127.0.0.1"):
    """Return the variables that torchrun sets in all ranks of a run."""
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(number),
        "TORCHELASTIC_RUN_ID": "here",
        "OMP_NUM_THREADS": "1",
        "GROUP_RANK": "0",
        "LOCAL_WORLD_SIZE": str(number // machines),
    }


def start(folder, machines, *arguments, network=None, variables=None, forked=None):
    """Start the ranks of a run with torchrun's variables: rank r runs on the machine ``machines[r]``, in a folder of that name.

    With a network, each rank runs on one of its machines. ``variables`` holds environment variables of single machines. ``forked`` is the
    program of forked ranks; without it, each rank starts anew.
    """
    shared = launched(len(machines), len(set(machines)), network.addresses[0] if network else "127.0.0.1")
    shared |= {"GLOO_SOCKET_IFNAME": INTERFACE} if network else {}
    places = (f"--trainer.num_nodes={len(set(machines))}", f"--trainer.devices={shared['LOCAL_WORLD_SIZE']}")
    ranks = []
    for rank, machine in enumerate(machines):
        (folder / machine).mkdir(exist_ok=True)
        own = {"RANK": str(rank), "LOCAL_RANK": str(machines[:rank].count(machine)), "HOPTRAIN_MACHINE": machine}
        command = ["fit", "--config", QUICKSTART, *SHORT, *places, *map(str, arguments)]
        own |= (variables or {}).get(machine, {})
        options = {"cwd": folder / machine, "env": os.environ | shared | own}
        if forked:
            ranks.append(Forked(forked, *command, **options))
            continue
        command = [*(network.inside(rank) if network else []), *COMMAND, *command]
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        ranks.append(subprocess.Popen(command, **options))
    return ranks


def processes_in(folder):
    """Return the processes whose working directory is within a folder, as {id: command line}: ranks, watchdogs, samplers, communication processes."""
    found = {}
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if os.readlink(process / "cwd").startswith(str(folder)):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def send(pids, number):
    """Send a signal to processes, ignoring those that have ended meanwhile because another process has ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def ended(folder, ranks, seconds):
    """Return the output of the ranks, after checking that all of their processes have ended."""
    try:
        outputs = [rank.communicate(timeout=seconds) for rank in ranks]
        deadline = time.monotonic() + 5
        while processes_in(folder) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes_in(folder) == {}
        return outputs
    finally:
        send(processes_in(folder), signal.SIGKILL)
        for rank in ranks:
            rank.communicate()


def digits_in_parts(folder, method="range", graph="replicated", name="digits-knn"):
    """Write the digits, or another data set, in two partitions; the folders m0 and m1 have the files of one machine each."""
    write_partition(load_dataset(str(name)), folder / "parts", 2, method, graph=graph)
    for machine in range(2):
        (folder / f"m{machine}").mkdir()
        for entry in (folder / "parts").iterdir():
            if entry != part_folder(folder / "parts", 1 - machine):
                (folder / f"m{machine}" / entry.name).symlink_to(entry)
    return folder


def place(folder, parts):
    """Copy to each machine of a run its folder of ``parts``: the folders m0 and m1 in a folder, or two given folders."""
    of = parts if isinstance(parts, tuple) else (parts / "m0", parts / "m1")
    for machine, own in enumerate(of):
        (folder / f"m{machine}").mkdir(parents=True)
        shutil.copytree(own, folder / f"m{machine}" / "parts")


def learnt(runs):
    """Return the final weights, and the metrics of each validation."""
    weights = torch.load(runs / "version_0/checkpoints/last.ckpt", weights_only=True)["state_dict"]
    with open(runs / "version_0/metrics.csv") as file:
        scores = [(row["val_loss"], row["val_acc"]) for row in csv.DictReader(file) if row.get("val_acc")]
    return {name: tensor.numpy().tobytes() for name, tensor in weights.items()}, scores
