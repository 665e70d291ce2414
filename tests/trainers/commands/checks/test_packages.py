import importlib.metadata

import pytest

from hoptrain.trainers.commands.checks import machine, packages
from hoptrain.trainers.commands.checks.finding import GIB, Finding


@pytest.fixture
def installed(monkeypatch):
    """Return a function that replaces the versions of the installed packages; all other packages are missing."""

    def replace(**versions):
        def version(name):
            if name.replace("-", "_") in versions:
                return versions[name.replace("-", "_")]
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "version", version)

    return replace


@pytest.fixture
def torch_facts(monkeypatch):
    """Return a function that replaces the facts that torch reports."""
    return lambda **facts: monkeypatch.setattr(packages, "torch_facts", lambda: facts)


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """Return a function that replaces /proc by a folder with the given driver version, or without a driver."""

    def replace(text):
        monkeypatch.setattr(machine, "PROC", tmp_path)
        if text:
            (tmp_path / "driver/nvidia").mkdir(parents=True)
            (tmp_path / "driver/nvidia/version").write_text(text)

    return replace


OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version:  gcc version 12.3.0\n"


@pytest.mark.parametrize(
    ("facts", "status", "found"),
    [
        ({"version": "2.13.0+cpu", "cuda": None, "gpus": []}, "ok", "2.13.0+cpu, built for CPU only"),
        ({"version": "2.13.0", "cuda": "13.0", "gpus": []}, "ok", "2.13.0, built for CUDA 13.0"),
        ({"version": "2.12.1", "cuda": None, "gpus": []}, "note", "2.12.1, built for CPU only; hoptrain is tested with 2.13.0"),
        ({"error": "crashed with SIGILL"}, "wrong", "torch 2.13.0 does not load: crashed with SIGILL"),
    ],
)
def test_torch(installed, torch_facts, facts, status, found):
    installed(torch="2.13.0")
    torch_facts(**facts)
    finding = packages.check_torch()
    assert (finding.status, finding.found) == (status, found)
    assert bool(finding.remedy) == (status != "ok")


def test_torch_absent(installed):
    installed()
    assert packages.check_torch() == Finding("torch", "wrong", "not installed", "pip install torch==2.13.0")


CPU = {"version": "2.13.0", "cuda": None, "gpus": []}
CUDA = {"version": "2.13.0", "cuda": "13.0", "gpus": []}


@pytest.mark.parametrize(
    ("facts", "text", "status", "found"),
    [
        (CPU, "", "note", "none found: training runs on the CPU"),
        (CUDA, "", "note", "none found: training runs on the CPU"),
        ({"error": "crashed"}, OPEN_DRIVER, "note", "none found: training runs on the CPU"),
        (CPU, OPEN_DRIVER, "note", "driver 580.95.05 is loaded, but torch is built for the CPU only"),
        (CUDA, OPEN_DRIVER, "wrong", "driver 580.95.05 is loaded, but torch (CUDA 13.0) sees no GPU: training would run on the CPU"),
        (CUDA | {"gpus": [["A", 80 * GIB], ["B", 24 * GIB]]}, OPEN_DRIVER, "ok", "A (80 GiB), B (24 GiB); driver 580.95.05, CUDA 13.0"),
        (CUDA | {"gpus": [["A", 80 * GIB]]}, "", "ok", "A (80 GiB); driver unknown, CUDA 13.0"),
    ],
)
def test_gpu(torch_facts, driver, facts, text, status, found):
    torch_facts(**facts)
    driver(text)
    finding = packages.check_gpu()
    assert (finding.status, finding.found) == (status, found)


@pytest.mark.parametrize(("text", "version"), [("", None), ("something else", "unknown"), (OPEN_DRIVER, "580.95.05")])
def test_driver(driver, text, version):
    driver(text)
    assert machine.driver() == version


@pytest.mark.parametrize("distribution", ["pytorch_lightning", "lightning"])
@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_compromised_lightning(installed, distribution, version):
    installed(**{"pytorch_lightning": "2.6.6", distribution: version})
    finding = packages.check_lightning()
    assert finding.status == "wrong"
    assert f"{version} is a compromised release" in finding.found
    assert "pip uninstall" in finding.remedy


def test_lightning(installed):
    installed(pytorch_lightning="2.6.6")
    assert packages.check_lightning() == Finding("Lightning", "ok", "pytorch-lightning 2.6.6")
    installed()
    assert packages.check_lightning().status == "wrong"


def test_numba(installed, monkeypatch):
    installed(numba="0.68.1", llvmlite="0.50.0")
    monkeypatch.setattr(packages, "ask_child", lambda code: {})
    assert packages.check_numba() == Finding("numba", "ok", "numba 0.68.1, llvmlite 0.50.0")
    monkeypatch.setattr(packages, "ask_child", lambda code: {"error": "ImportError: no LLVM"})
    assert packages.check_numba().found == "numba 0.68.1, llvmlite 0.50.0 do not load: ImportError: no LLVM"
    installed(numba="0.68.1")
    assert packages.check_numba().found == "numba 0.68.1, llvmlite not installed"


def test_required(installed):
    installed(ogb="1.3.6")
    assert packages.required("ogb") == Finding("ogb", "ok", "ogb 1.3.6")
    assert packages.required("torch-geometric") == Finding("torch-geometric", "wrong", "not installed", "pip install torch-geometric")


@pytest.mark.parametrize(("text", "remedy"), [("", ""), (OPEN_DRIVER, "pip install 'hoptrain[cuda]'")])
def test_optional(installed, driver, text, remedy):
    driver(text)
    installed(other="14.0")
    assert packages.optional("gpu", ("first", "other"), "GPUs", needs_driver=True) == Finding("gpu", "ok", "other 14.0")
    missing = packages.optional("numba-cuda", ("numba-cuda",), "GPUs", needs_driver=True)
    assert missing == Finding("numba-cuda", "note", "not installed: optional, for GPUs", remedy)
    assert packages.optional("dgl", ("dgl",), "DGL").remedy == ""


@pytest.mark.parametrize(("text", "remedy"), [("", ""), (OPEN_DRIVER, "pip install 'hoptrain[cuda]'")])
def test_cupy_decides_which_kernels_gather(installed, driver, text, remedy):
    driver(text)
    installed()
    assert packages.check_cupy() == Finding("CuPy", "note", "not installed: Numba's kernels gather features on GPUs", remedy)
    installed(cupy_cuda13x="14.2.0")
    assert packages.check_cupy() == Finding("CuPy", "ok", "cupy-cuda13x 14.2.0: CUDA C++ kernels gather features on GPUs")
