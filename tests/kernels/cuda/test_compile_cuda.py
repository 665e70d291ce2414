"""Machine code for CUDA is kept on disk: compiled and loaded here without a device, which only runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from unittest import mock
from numba.cuda.core import sigutils
from numba.cuda.cudadrv import runtime
from numba.cuda.dispatcher import _Kernel
from resources import device
from hoptrain.kernels.cuda.compile import KERNELS
from hoptrain.kernels.cuda.scan import add_sums

dispatcher, signatures = KERNELS["add_sums"]
arguments, _ = sigutils.normalize_signature(signatures[0])
without_a_device = mock.patch.object(_Kernel, "bind", lambda kernel: kernel._codelibrary.get_cubin((int(sys.argv[1]), 0, "")))
with device(int(sys.argv[1]), 0), without_a_device, mock.patch.object(runtime.runtime, "get_version", lambda: (13, 0)):
    kernel = dispatcher.compile(arguments)
found = dispatcher.stats
print(json.dumps([sum(found.cache_hits.values()), sum(found.cache_misses.values()), kernel.entry_name]))
"""


@pytest.mark.long
def test_machine_code_is_loaded_by_the_second_process(tmp_path):
    """And that of another architecture is not."""
    here = str(Path(__file__).parent)
    environment = os.environ | {"HOPTRAIN_CACHE": str(tmp_path), "PYTHONPATH": here, "NUMBA_ENABLE_CUDASIM": "0"}
    found = []
    for major in ("9", "9", "8"):
        child = subprocess.run([sys.executable, "-c", SCRIPT, major], env=environment, stdout=subprocess.PIPE, check=True, timeout=60)
        found.append(json.loads(child.stdout))
    assert [hits_and_misses for *hits_and_misses, _ in found] == [[0, 1], [1, 0], [0, 1]]
    assert found[0][2] == found[1][2]
