"""numba-cuda works with NumPy 2.5 and newer, which have no ``row_stack``."""

import subprocess
import sys

import pytest

pytest.importorskip("numba_cuda")

SCRIPT = """
import numpy as np
if hasattr(np, "row_stack"):
    del np.row_stack
{first}
import numba.cuda
import numba.cuda.np.arrayobj
print(hasattr(np, "row_stack"))
"""


@pytest.mark.parametrize(
    ("first", "is_mended"), [("import hoptrain.kernels.numba_cuda", True), ("import hoptrain.kernels.cuda", True), ("", False)]
)
def test_what_numba_cuda_asks_numpy_for_is_there_while_it_asks(monkeypatch, first, is_mended):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "0")
    command = [sys.executable, "-P", "-W", "error:The 'generic' unit", "-c", SCRIPT.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == ((0, "False\n") if is_mended else (1, "")), done.stderr
    assert is_mended or "row_stack" in done.stderr or "'generic' unit" in done.stderr
