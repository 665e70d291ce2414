"""The contents of the wheel; tests/pages/test_first_hour.py uses it without the checkout."""

import zipfile

from wheel_case import ROOT, build_wheel

FLOORS = ("benchmarks", "engine", "kernels", "samplers", "trainers")


def test_the_wheel_has_every_module_kernel_and_configuration(tmp_path):
    names = {name for name in zipfile.ZipFile(build_wheel(tmp_path)).namelist() if ".dist-info/" not in name}
    modules = {f"hoptrain/{path.relative_to(ROOT)}" for floor in FLOORS for path in (ROOT / floor).rglob("*.py")}
    configs = {f"hoptrain/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    kernels = {f"hoptrain/{path.relative_to(ROOT)}" for path in (ROOT / "kernels").rglob("*.cu")}
    assert kernels
    doors = {str(path.relative_to(ROOT)) for path in (ROOT / "hoptrain").rglob("*.py")}  # rglob follows no links
    assert names == modules | configs | kernels | doors | {"hoptrain/py.typed"}
