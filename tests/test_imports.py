"""The floors below the trainers are plain NumPy and Numba: a sampler process must start fast and hold no GPU context."""

import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.yaml"
HEAVY = ("torch", "pytorch_lightning", "lightning", "dgl", "cupy", "torch_geometric", "ogb", "sklearn", "pandas")


@pytest.mark.parametrize("floor", ["kernels", "engine", "samplers"])
def test_lower_floors_import_nothing_heavy(floor):
    code = (
        f"import sys, pkgutil, importlib, hoptrain.{floor} as floor\n"
        "for module in pkgutil.walk_packages(floor.__path__, floor.__name__ + '.'): importlib.import_module(module.name)\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_starts_without_torch():
    code = "import sys; from hoptrain.trainers.cli import main; code = main(['data', 'list']); sys.exit(code or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    [
        "from hoptrain.trainers import GraphDataModule, LinkPredictor, NodeClassifier",
        f"from hoptrain.trainers.cli import main\nmain(['fit', '--config', {str(QUICKSTART)!r}, '--trainer.max_epochs=1', '--data.num_workers=0'])",
    ],
    ids=["classes", "fit"],
)
def test_ordinary_runs_know_of_no_pipeline(program, tmp_path):
    code = f"import sys\n{program}\nprint([name for name in sys.modules if name.startswith('hoptrain.trainers.pipeline')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
