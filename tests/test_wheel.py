"""The wheel alone, without the checkout: all of the packages, the configurations by name, and a training."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
import yaml

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
FLOORS = ("benchmarks", "engine", "kernels", "samplers", "trainers")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since setuptools leaves its scratch beside the sources."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--null", "--files-from=-", "-cf", source / "tree.tar"], cwd=ROOT, input=tracked, check=True)
    subprocess.run(["tar", "-xf", "tree.tar"], cwd=source, check=True)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", out, source], check=True)
    return next(out.glob("*.whl"))


def test_the_wheel_has_every_module_kernel_and_configuration(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {f"hoptrain/{path.relative_to(ROOT)}" for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}
    configs = {f"hoptrain/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    kernels = {f"hoptrain/{path.relative_to(ROOT)}" for path in (ROOT / "kernels").rglob("*.cu")}
    assert kernels
    doors = {str(path.relative_to(ROOT)) for path in (ROOT / "hoptrain").rglob("*.py")}  # rglob follows no links
    assert names == modules | configs | kernels | doors | {"hoptrain/py.typed"}


@pytest.mark.timeout(400)
def test_a_user_without_the_checkout_trains_the_quickstart(wheel, tmp_path):
    """The environment has hoptrain from the wheel, and what it needs from the folder where this one has it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    site = tmp_path / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    (site / "needed.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "NUMBA_ENABLE_CUDASIM"))}
    environment |= {"HOPTRAIN_CACHE": str(tmp_path / "cache")}

    def hoptrain(*arguments):
        command = [tmp_path / "env" / "bin" / "python", "-m", "hoptrain.trainers.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [tmp_path / "env" / "bin" / "python", "-c", "import hoptrain; print(hoptrain.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert found == f"{site}/hoptrain/__init__.py\n"
    listed = hoptrain("configs")
    assert set(yaml_names()) <= {line.split()[0] for line in listed.splitlines() if line}
    trained = hoptrain("fit", "--config", "quickstart", "--trainer.max_steps", "5", "--trainer.enable_progress_bar", "false")
    assert trained.splitlines()[-1].startswith("test accuracy ")


def yaml_names():
    """The configurations that a run can be made of."""
    return [path.stem for path in (ROOT / "configs").glob("*.yaml") if "data" in yaml.safe_load(path.read_text())]
