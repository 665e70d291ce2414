"""Runs on several machines started by the Slurm and Ray files in the repository train like two ranks of one machine."""

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from pytorch_lightning.plugins.environments import SLURMEnvironment
from ranks.on_machines import EACH_FAULT, MAIN, QUICKSTART, SHORT, START_S, digits_in_parts, ended, free_port, learnt, start

LAUNCHERS = Path(__file__).parents[3] / "docs" / "launchers"
SMALL = ("--trainer.max_epochs=1", "--data.batch_size=32", "--data.sampler.fanouts=[4,3]")
pytestmark = pytest.mark.timeout(3 * START_S)

SRUN = """\
#!/bin/bash
# As Slurm's: starts the command once for each task, with the variables that tell tasks apart.
for ((task = 0; task < SLURM_NTASKS; task++)); do
    SLURM_PROCID=$task SLURM_NODEID=$task SLURM_LOCALID=0 HOPTRAIN_MACHINE=n0$task "$@" &
    tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""
SCONTROL = """\
#!/bin/bash
# Prints one after the other, so that who reads the first alone ends it by a signal.
[ "$*" = "show hostnames n[01-02]" ] && printf '127.0.0.1\\n' && sleep 0.2 && printf '127.0.0.2\\n'
"""


def slurm(folder):
    """Return the environment of a Slurm job on two nodes, with stubs of Slurm's commands."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    job = {
        "SLURM_JOB_ID": str(1_230_000 + free_port(range(15_000, 25_000)) - 15000),
        "SLURM_JOB_NAME": "hoptrain",
        "SLURM_JOB_NODELIST": "n[01-02]",
        "SLURM_NNODES": "2",
    }
    job |= {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1", "OMP_NUM_THREADS": "1"}
    return os.environ | job | {"PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return digits_in_parts(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory, forkserver):
    """Return the weights that two ranks of one machine train."""
    folder = tmp_path_factory.mktemp("plain")
    ranks = start(folder, ["m0", "m0"], *SMALL, f"--trainer.default_root_dir={folder / 'runs'}", forked=MAIN)
    outputs = ended(folder, ranks, START_S)
    return outputs[0][0].splitlines()[-2], learnt(folder / "runs")


@pytest.mark.parametrize("by", ["file", pytest.param("srun", marks=EACH_FAULT)])
def test_slurm(tmp_path, parts, plain, by):
    """The batch script, whose tasks run torchrun, and ``srun`` alone, with Slurm's variables read by Lightning, train the same weights."""
    options = [
        "--config",
        QUICKSTART,
        *SHORT,
        *SMALL,
        f"--trainer.default_root_dir={tmp_path / 'runs'}",
        f"--data.partitions={parts / 'parts'}",
    ]
    environment = slurm(tmp_path)
    if by == "file":
        command = ["bash", LAUNCHERS / "slurm.sbatch", *options]
    else:
        environment["MASTER_ADDR"] = "127.0.0.1"  # otherwise the first node of the job, which does not exist here
        command = ["srun", sys.executable, "-m", "hoptrain.trainers.cli", "fit", *options, "--trainer.num_nodes=2", "--trainer.devices=1"]
    job = subprocess.Popen(
        [*map(str, command)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    [(out, errors)] = ended(tmp_path, [job], START_S)
    assert job.returncode == 0, errors
    assert (out.splitlines()[-2], learnt(tmp_path / "runs")) == plain


@pytest.mark.parametrize(("nodes", "first"), [("n[01-04]", "n01"), ("gpu[7,9-12]", "gpu7"), ("a1,b[2-3]", "a1"), ("n05", "n05")])
def test_ranks_and_the_first_node_are_read_from_slurm_s_variables(monkeypatch, nodes, first):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # variables that Lightning sets are restored when the test ends
        monkeypatch.delenv(name)
    variables = {"JOB_ID": "123456", "JOB_NAME": "hoptrain", "NODELIST": nodes, "NTASKS": "8", "NTASKS_PER_NODE": "2"}
    for name, value in (variables | {"PROCID": "5", "LOCALID": "1", "NODEID": "2"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    found = SLURMEnvironment()
    assert (found.main_address, found.main_port) == (first, 15000 + 3456)
    assert (found.world_size(), found.global_rank(), found.local_rank(), found.node_rank()) == (8, 5, 1, 2)


TWO_WORKERS = """
    import os, sys
    import ray
    from ray_train import ScalingConfig, TorchTrainer, learn

    def one(config):
        from ray.train import get_context
        if config["parts"]:
            os.environ["HOPTRAIN_MACHINE"] = str(get_context().get_world_rank())
        learn(config)

    from ray.train import RunConfig
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, runtime_env={"env_vars": {"PYTHONPATH": sys.argv[1], "OMP_NUM_THREADS": "1"}})
    for name, parts in (("one", None), ("two", sys.argv[2])):
        folder = os.path.abspath(name)
        run = RunConfig(storage_path=folder)
        options = {"dataset": "digits-knn", "parts": parts, "folder": folder}
        TorchTrainer(one, train_loop_config=options, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install hoptrain[ray]")
def test_ray(tmp_path, parts):
    """Two Ray workers train the same weights as one machine with all features and as two machines with a partition each."""
    command = [sys.executable, "-c", textwrap.dedent(TWO_WORKERS), LAUNCHERS, parts / "parts"]
    environment = os.environ | {"PYTHONPATH": str(LAUNCHERS), "RAY_TRAIN_V2_ENABLED": "1"}
    run = subprocess.run(
        [*map(str, command)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2 * START_S, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    one, two = (torch.load(tmp_path / name / "last.ckpt", weights_only=True)["state_dict"] for name in ("one", "two"))
    assert {key: tensor.numpy().tobytes() for key, tensor in one.items()} == {key: tensor.numpy().tobytes() for key, tensor in two.items()}
