"""``make`` rejects a Python that is too old before it installs anything."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_a_python_that_is_too_old_is_refused_in_one_line(tmp_path):
    old = tmp_path / "python3.10"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 10, 1); exec(sys.argv[1])" "$2"\n')
    old.chmod(0o755)
    command = ["make", "--silent", "--makefile", ROOT / "Makefile", "train", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}  # these tests run under make too
    done = subprocess.run(command, cwd=ROOT, env=outer, capture_output=True, text=True, check=False)
    first, *others = done.stderr.splitlines()
    assert first == f"PYTHON is {old}, Python 3.10: it must be 3.11 or later; give another, such as PYTHON=python3.13"
    assert all(line.startswith("make: ") for line in others)
    assert done.returncode
    assert not done.stdout
    assert not (tmp_path / "venv").exists()
