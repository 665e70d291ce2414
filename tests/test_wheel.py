"""The wheel alone, without the checkout: all of the packages, the configurations by name, and a training."""

import subprocess
import zipfile

import pytest
import yaml
from wheel_case import ROOT, build_wheel, new_environment

pytestmark = pytest.mark.long

FLOORS = ("benchmarks", "engine", "kernels", "samplers", "trainers")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("built"))


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
    site, environment = new_environment(wheel, tmp_path)

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
