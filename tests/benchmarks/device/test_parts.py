"""Every part of ``make gpu`` runs on tiny graphs without a GPU, so that bugs in the parts are found early.

Benchmarks run on the interpreter of compiled kernels (``tests/ptx``), training runs in Numba's simulator, and test suites are only collected.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_graph
from cuda_case import needs_cuda

from hoptrain.benchmarks.cases import sampler_cuda
from hoptrain.benchmarks.common import rounds
from hoptrain.benchmarks.device.first_run import PARTS, command_of
from hoptrain.engine import Dataset
from hoptrain.kernels.cuda import thresholds as table
from hoptrain.samplers.cuda import device_sampler
from hoptrain.trainers.cli import main

pytestmark = needs_cuda
ROOT = Path(__file__).parents[3]
IS_INTERPRETED = "ptx.plugin" in sys.modules
interpreted = pytest.mark.skipif(not IS_INTERPRETED, reason="tests/ptx/test_ptx.py runs it on the interpreter")
plain = pytest.mark.skipif(IS_INTERPRETED, reason="needs no device")

BENCHMARKS = ["timing", "counters", "sample", "transit"]
SUITES = [name for name, part in PARTS.items() if "pytest" in part.command]
COMMANDS = {tuple(PARTS[name].command): name for name in reversed(SUITES)}
"""A part of each command of a suite; "tests" and "blocks" differ in a variable that ``test_a_suite_has_tests`` does not need."""
ELSEWHERE = {"doctor", "data", "fit", "precision", "memcheck", "racecheck", "synccheck", "initcheck"}
"""Parts with other tests: the doctor and the program of the sanitizers in tests/trainers/commands/checks, fit below, and precision in
tests/benchmarks/cases/test_accuracy_precisions.py. data only generates a graph."""
TINY = {
    "sampler": "--graphs {} --batch-size 3 --bulks 1 2 --rounds 1",
    "thresholds": "--graph {} --batch-size 3 --bulk 2 --rounds 1 --fanouts 2 2",
}
"""Options that are appended to those of a benchmark and override them."""

FIT = """
import sys
from hoptrain.kernels.cuda.thresholds import Thresholds
from hoptrain.samplers.buffers.workspace import Workspace

start = Workspace.__init__

def init(self, *args, **options):
    start(self, *args, **options)
    self.on_device.thresholds = Thresholds(block=4, max_blocks=2)

Workspace.__init__ = init
from hoptrain.trainers.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Save a data set of 200 nodes and return its folder."""
    path = tmp_path_factory.mktemp("data") / "small"
    Dataset(name="small", graph=make_graph(), x=np.ones((200, 25), np.float32), splits={"train": np.arange(9)}).save(path)
    return str(path)


def arguments_of(name, out):
    """Return the arguments of a part's ``hoptrain`` command."""
    words = command_of(PARTS[name], out)
    return words[words.index("hoptrain.trainers.cli") + 1 :]


def test_each_part_is_tried():
    assert {*BENCHMARKS, *SUITES} | ELSEWHERE == PARTS.keys()


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Use tiny thread blocks instead of the default ones, and no warm-up."""
    for module in (table, device_sampler, sampler_cuda):
        monkeypatch.setattr(module, "THRESHOLDS", table.Thresholds(block=32, max_blocks=2, resident_blocks=1))
    for module in (rounds, sampler_cuda):
        monkeypatch.setattr(module, "WARMUP", 0)


@interpreted
@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark(name, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sampler_cuda, "COPY_BYTES", 1 << 10)
    monkeypatch.setattr(sampler_cuda, "RESULTS", tmp_path)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "A GPU")
    words = ["2,2" if word == "15,10,5" else word for word in arguments_of(name, tmp_path)]
    assert main([*words, *TINY[words[1]].format(folder).split()]) == 0
    assert (tmp_path / name / "results.json").exists()
    assert (tmp_path / "a-gpu_sampler.json").exists() == (name == "timing")


@plain
@pytest.mark.parametrize("name", COMMANDS.values())
def test_a_suite_has_tests(name):
    _, _, *words = command_of(PARTS[name], ROOT)
    command = [sys.executable, "-P", "-m", words[0], "-p", "ptx.plugin", "--collect-only", "-q", *words[1:]]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT / "tests")}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(int(number) for number in re.findall(r"\.py: (\d+)$", done.stdout, re.MULTILINE)) > 50


@plain
@pytest.mark.timeout(300)
def test_fit(tmp_path):
    """The part "fit" trains with sampling in the CUDA simulator and the model on the CPU."""
    options = "--trainer.accelerator cpu --trainer.max_epochs 1 --trainer.limit_train_batches 1 --data.scale 0.0003 --data.batch_size 4"
    command = [sys.executable, "-c", FIT, *arguments_of("fit", tmp_path), *options.split(), "--data.sampler.init_args.fanouts", "[2]"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
