"""A child process imports from its parent's paths, and never from its working directory."""

import ast
import os
import subprocess
from pathlib import Path

import hoptrain
from hoptrain.kernels.child_process import import_path, python

ROOT = Path(hoptrain.__file__).parents[1]
IN_THE_PROJECT = {"kernels/child_process.py", "benchmarks/device/first_run.py"}  # the second one runs in the project's folder


def run(code, *arguments):
    return subprocess.run(python("-c", code, *arguments), env=os.environ | import_path(), capture_output=True, text=True, check=True).stdout


def test_a_module_of_the_current_folder_does_not_run(tmp_path, monkeypatch):
    (tmp_path / "struct.py").write_text("print('intruder')")
    monkeypatch.chdir(tmp_path)
    assert run("import struct, sys; print(*sys.argv[1:])", 7, tmp_path) == f"7 {tmp_path}\n"


def test_a_module_beside_the_script_is_found(tmp_path, monkeypatch):
    beside = tmp_path / "script"
    beside.mkdir()
    (beside / "own_sampler.py").write_text("name = 'own'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("script")
    assert run("import own_sampler; print(own_sampler.name)") == "own\n"


def test_every_child_is_started_so():
    found = set()
    for floor in ("kernels", "engine", "samplers", "trainers", "benchmarks", "hoptrain/pyg", "hoptrain/dgl"):
        for path in (ROOT / floor).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if "sys.executable" in text else ():
                if isinstance(node, ast.List | ast.Tuple | ast.Call) and any(
                    ast.unparse(child) == "sys.executable" for child in ast.iter_child_nodes(node)
                ):
                    found.add(str(path.relative_to(ROOT)))
    assert found == IN_THE_PROJECT
