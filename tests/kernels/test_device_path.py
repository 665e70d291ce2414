"""The script ``.ci/device_path.py`` lists the files that run on a device, and detects changes to them."""

import importlib.util
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / ".ci" / "device_path.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("device_path", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_that_a_file_imports_belong_to_it(script, tmp_path):
    for name, text in {"a": "from hops import b", "b": "def f():\n    import hops.c", "c": "import numpy", "d": "import hops.a"}.items():
        (tmp_path / "hops").mkdir(exist_ok=True)
        (tmp_path / "hops" / f"{name}.py").write_text(text)
    found = script.closure({tmp_path / "hops" / "a.py"}, tmp_path)
    assert {path.stem for path in found} == {"a", "b", "c"}


def test_comments_and_docstrings_are_no_change(script, tmp_path):
    texts = [
        '"""One."""\ndef f(x):\n    """Two."""\n    return x  # three\n',
        "def f(x):\n\n    return (x)\n",
        "def f(x):\n    return -x\n",
    ]
    contents = []
    for text in texts:
        (tmp_path / "a.py").write_text(text)
        contents.append(script.content(tmp_path / "a.py"))
    assert contents[0] == contents[1] != contents[2]


def test_what_changed_is_named(script, tmp_path, monkeypatch, capsys):
    now = script.hashes()
    assert {
        "kernels/cuda/scan.py",
        "kernels/shared/draws.py",
        "samplers/cuda/drivers.py",
        "samplers/base.py",
        "tests/ptx/machine.py",
    } <= now.keys()
    monkeypatch.setattr(script, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(script, "hashes", now.copy)
    assert [script.main(), script.main("record"), script.main()] == [1, 0, 0]
    now["samplers/base.py"] = "another"
    capsys.readouterr()
    assert script.main() == 1
    assert capsys.readouterr().out == "samplers/base.py of the device path changed since make test-cuda passed\n"
