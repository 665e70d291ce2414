"""A run on several machines that is killed and restarted ends with the weights of an undisturbed one.

By default one run is tested, on a partitioned graph. ``HOPTRAIN_FAULTS=N`` tests N / 10 runs with a replicated graph and N / 10
with a partitioned one; HOPTRAIN_FAULTS_SEED draws who is killed.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from ranks.on_machines import EACH_FAULT, QUICKSTART, SHORT, START_S, digits_in_parts, ended, free_port, learnt, place, processes_in, send

RUNS = int(os.environ.get("HOPTRAIN_FAULTS", "1")) // 10 or 1
SEED = int(os.environ.get("HOPTRAIN_FAULTS_SEED", "1"))
STRUCK = {"machine": "", "rank": "trainers.cli", "comm": "multinode.comm_process", "filler": r"worker import main; main\(\) 0 "}
pytestmark = pytest.mark.timeout(4 * START_S)


@pytest.fixture(scope="module", params=[pytest.param("replicated", marks=EACH_FAULT), "partitioned"])
def parts(tmp_path_factory, request):
    return digits_in_parts(tmp_path_factory.mktemp("digits"), graph=request.param)


def start_agents(folder, port, restarts=2):
    """Start torchrun on both machines."""
    agents = []
    for machine in range(2):
        torchrun = ["--nnodes=2", f"--node-rank={machine}", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
        torchrun += [f"--max-restarts={restarts}", "-m", "hoptrain.trainers.cli"]
        options = ["--trainer.max_epochs=4", "--trainer.num_nodes=2", "--trainer.devices=1", "--data.partitions=parts", "--ckpt_path=last"]
        options += ["--data.sampler.fanouts=[4,3]", "--data.batch_size=8", f"--trainer.default_root_dir={folder / 'runs'}"]
        command = [sys.executable, "-m", "torch.distributed.run", *torchrun, "fit", "--config", str(QUICKSTART), *SHORT, *options]
        environment = os.environ | {"HOPTRAIN_MACHINE": str(machine), "OMP_NUM_THREADS": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        agents.append(subprocess.Popen(command, cwd=folder / f"m{machine}", env=environment, **pipes))
    return agents


def wait_until_trained(folder, agents):
    """Wait until the checkpoint of an epoch exists, so that the next epoch has begun or is about to."""
    deadline = time.monotonic() + START_S
    while not (folder / "runs/version_0/checkpoints/last.ckpt").exists():
        assert time.monotonic() < deadline
        assert all(agent.poll() is None for agent in agents), [agent.communicate() for agent in agents]
        time.sleep(0.02)


def result(folder, outputs):
    """Return the final weights, and a summary line of the test."""
    weights, _ = learnt(folder / "runs")
    return weights, re.findall(r"test accuracy 0\.\d+", outputs[0][0])


@pytest.fixture(scope="module")
def undisturbed(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    place(folder, parts)
    return result(folder, ended(folder, start_agents(folder, free_port()), START_S))


@pytest.mark.parametrize("number", range(RUNS))
def test_torchrun_starts_ranks_again(tmp_path, parts, undisturbed, number):
    """If one process of a machine, or all except torchrun, is killed, torchrun starts the ranks again, and the weights do not change."""
    place(tmp_path, parts)
    draw, who = random.Random(1000 * SEED + number), STRUCK[list(STRUCK)[number % len(STRUCK)]]
    agents = start_agents(tmp_path, free_port())
    wait_until_trained(tmp_path, agents)
    machine = draw.randrange(2)
    found = processes_in(tmp_path / f"m{machine}")
    send([pid for pid, command in found.items() if pid != agents[machine].pid and re.search(who, command)], signal.SIGKILL)
    outputs = ended(tmp_path, agents, 2 * START_S)
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert "Restored all states from the checkpoint" in outputs[0][1]
    assert result(tmp_path, outputs) == undisturbed


@EACH_FAULT
def test_a_run_is_started_again_by_hand(tmp_path, parts, undisturbed):
    """If a whole machine is killed, including torchrun, the other machine ends, and a restart of both has the same weights."""
    place(tmp_path, parts)
    agents = start_agents(tmp_path, free_port())
    wait_until_trained(tmp_path, agents)
    send(processes_in(tmp_path / "m1"), signal.SIGKILL)
    agents[1].communicate()
    agents[0].terminate()
    ended(tmp_path, agents[:1], START_S)
    outputs = ended(tmp_path, agents := start_agents(tmp_path, free_port()), START_S)
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert result(tmp_path, outputs) == undisturbed


@EACH_FAULT
def test_a_folder_that_one_machine_lacks_is_named_on_both(tmp_path, parts):
    place(tmp_path, parts)
    shutil.rmtree(tmp_path / "m1" / "parts")
    agents = start_agents(tmp_path, free_port(), restarts=0)
    outputs = ended(tmp_path, agents, START_S)
    line = "parts holds no partitioned data set: name a folder that 'hoptrain data partition' wrote"
    assert re.search(f"^hoptrain: rank 0 ends, because rank 1 failed: InputError: {line}", outputs[0][1], re.MULTILINE), outputs
    assert re.search(f"^hoptrain: {line}$", outputs[1][1], re.MULTILINE), outputs
