"""Layers below the trainers import only NumPy and Numba, so that sampler processes start fast and hold no GPU context."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hoptrain.engine.datasets import load_dataset

QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.yaml"
HEAVY = ("torch", "pytorch_lightning", "lightning", "dgl", "cupy", "torch_geometric", "ogb", "sklearn", "pandas")


def test_lower_floors_import_nothing_heavy():
    program = (
        "import pkgutil, importlib\n"
        "for name in ('kernels', 'engine', 'samplers'):\n"
        "    floor = importlib.import_module(f'hoptrain.{name}')\n"
        "    for module in pkgutil.walk_packages(floor.__path__, f'{floor.__name__}.'): importlib.import_module(module.name)"
    )
    assert imported_by(program, HEAVY) == []


def test_the_command_starts_without_what_takes_long():
    program = (
        "from contextlib import suppress\n"
        "from hoptrain.trainers.cli import main\n"
        "for arguments in (['--help'], ['data', 'list'], ['configs'], ['doctor', '--help']):\n"
        "    with suppress(SystemExit): main(arguments)"
    )
    assert imported_by(program, (*HEAVY, "scipy.linalg", "rich")) == []


def test_a_run_imports_no_library_that_it_does_not_use(tmp_path):
    """A run of ``fit`` imports no unused library.

    Lightning's torchmetrics and Numba's BLAS check would import parts of SciPy, which take longer than all of hoptrain.
    """
    load_dataset("digits-knn")  # the first opening converts it with scikit-learn
    options = [
        "fit",
        "--config",
        str(QUICKSTART),
        "--trainer.max_epochs=1",
        "--data.num_workers=0",
        f"--trainer.default_root_dir={tmp_path}",
    ]
    modules = (
        "scipy.linalg",
        "scipy.signal",
        "scipy.stats",
        "sklearn",
        "torch_geometric",
        "ogb",
        "pandas",
        "dgl",
        "matplotlib",
        "hoptrain.benchmarks",
        "hoptrain.trainers.pipeline",
    )
    assert imported_by(f"from hoptrain.trainers.cli import main\nassert main({options}) == 0", modules) == []


def test_a_worker_imports_no_other_sampler():
    program = "import hoptrain.engine.queue.worker, hoptrain.samplers.loader.task\nfrom hoptrain.samplers import NeighborSampler"
    others = [f"hoptrain.samplers.{module}" for module in ("layerwise", "programs", "seeds", "subgraphs", "nodewise.labor")]
    assert imported_by(program, (*HEAVY, "scipy.linalg", *others)) == []


APART = (
    "engine.partition", "engine.gpu_memory", "engine.storage", "samplers.superbatch", "samplers.cuda", "samplers.loader.device_feed",
    "samplers.loader.feature_cache", "samplers.loader.topology", "samplers.distributed", "kernels.cuda", "trainers.multinode",
    "trainers.pipeline", "trainers.watchdog", "pyg", "dgl",
)  # fmt: skip
"""Subpackages that a run imports only if it uses them; ``pyproject.toml`` has the import contract."""
EPOCH = "data = load_dataset('digits-knn')\nfor batch in SampleLoader(data, NeighborSampler([2]), split='val'): pass"


@pytest.mark.parametrize(
    "program",
    [
        f"from hoptrain import NeighborSampler, SampleLoader, load_dataset\n{EPOCH}",
        "from hoptrain import LinkPredictor, NodeDataModule, NodeClassifier, NeighborSampler",
    ],
    ids=["loader", "task"],
)
def test_a_plain_graph_imports_no_partition_storage_device_or_watch(program):
    load_dataset("digits-knn")  # the first opening converts it with scikit-learn
    assert imported_by(program, tuple(f"hoptrain.{module}" for module in APART)) == []


def imported_by(program, modules):
    """Return which of ``modules`` a fresh interpreter has imported after running ``program``."""
    code = f"import sys\n{program}\nprint([name for name in {modules} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout.splitlines()[-1])
