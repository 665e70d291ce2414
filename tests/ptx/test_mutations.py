"""The PTX interpreter detects and names faults that are inserted into the kernels' sources."""

import shutil

import pytest
from cuda_case import needs_cuda

from ptx.test_ptx import TESTS, run_interpreted

pytestmark = [needs_cuda, pytest.mark.timeout(600)]

SCAN = """\
        cuda.syncthreads()
        buffer[thread] += before
"""
MUTATIONS = {
    "a scan without its second barrier": ("scan.py", SCAN, SCAN.split("\n", 1)[1], "test_scan.py", "race: "),
    "a tile that reads beyond its end": (
        "scan.py", "np.int64(rows[b, i]) if i < end[b] else", "np.int64(rows[b, i]) if i <= end[b] + 64 else", "test_scan.py", "scan_tiles: out of bounds",
    ),
    "a minimum that is not atomic": (
        "relabel.py", "            cuda.atomic.min(values, (b, slot), known + e)", "            values[b, slot] = known + e", "test_relabel_cuda.py",
        "insert_edges: race: write after write",
    ),
    "another one in a direct table": (
        "stamped.py", "            cuda.atomic.min(entries, (b, vertex), number)", "            entries[b, vertex] = number", "test_stamped_cuda.py",
        "ask_direct: race: write after write",
    ),
    "a word that is taken without comparing": (
        "stamped.py", "            found = cuda.atomic.cas(words, (b, slot), word, mine)", "            found, words[b, slot] = word, mine",
        "test_stamped_cuda.py", "_packed: race: write after write",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_is_named(name, tmp_path):
    """The interpreter finds and names a fault in the kernels' source; a copy of the package with the fault precedes the installed one."""
    file, good, bad, test, expected = MUTATIONS[name]
    shutil.copytree(TESTS.parent / "hoptrain", tmp_path / "hoptrain", ignore=shutil.ignore_patterns("__pycache__", "results"))
    path = tmp_path / "hoptrain" / "kernels" / "cuda" / file
    text = path.read_text()
    assert text.count(good) == 1
    path.write_text(text.replace(good, bad))
    done = run_interpreted([f"tests/kernels/cuda/{test}", "--ptx-fresh"], before=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert expected in done.stdout
