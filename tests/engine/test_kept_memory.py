"""Large freed blocks are used again without new pages from the system, unless the user configured malloc."""

import os
import subprocess
import sys

import pytest

from hoptrain.engine import machine

pytestmark = pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="a setting of glibc")
SCRIPT = """
import resource
import numpy as np
from hoptrain.engine.machine import keep_freed_memory
{first}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.full({mib} << 17, 1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(max(faults() for _ in range(3)))
"""


def most_faults(first, mib=100, **environment):
    """Run a script that allocates, fills and frees ``mib`` MiB twice, and return its page faults.

    NumPy's huge pages are switched off.
    """
    environment = (
        {name: value for name, value in os.environ.items() if "MALLOC" not in name} | {"NUMPY_MADVISE_HUGEPAGE": "0"} | environment
    )
    script = SCRIPT.format(first=first, mib=mib)
    return int(subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout)


def test_a_block_is_used_again():
    assert most_faults("") > 10_000
    assert most_faults("keep_freed_memory()") < 1_000


def test_what_is_very_large_goes_back():
    assert most_faults("keep_freed_memory()", mib=600) > 10_000


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_stays(name):
    value = {"MALLOC_MMAP_THRESHOLD_": "1000000", "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1000000"}[name]
    assert most_faults("keep_freed_memory()", **{name: value}) > 10_000


@pytest.mark.parametrize(
    ("most", "expected"), [(512 << 20, [(-3, 512 << 20), (-1, (2 << 30) - 1)]), (32 << 20, [(-3, 32 << 20), (-1, (2 << 30) - 1)]), (0, [])]
)
def test_what_an_older_library_refuses_is_not_half_done(monkeypatch, most, expected):
    """If malloc rejects a mmap threshold, hoptrain sets a smaller one; if malloc rejects all, hoptrain sets no other limit either."""
    taken = []

    class Library:
        @staticmethod
        def mallopt(name, value):
            is_taken = name != machine._M_MMAP_THRESHOLD or value <= most
            taken.extend([(name, value)] * is_taken)
            return int(is_taken)

    for name in list(os.environ):
        if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES":
            monkeypatch.delenv(name)
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: Library)
    machine.keep_freed_memory()
    assert taken == expected
