"""The floors below the trainers are plain NumPy and Numba: a sampler process must start fast and hold no GPU context."""

import subprocess
import sys

import pytest

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
