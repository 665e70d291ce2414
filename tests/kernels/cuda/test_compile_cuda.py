"""The machine code of CUDA kernels is cached on disk. Compiling and loading need no device."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_program_key import CHANGES

from hoptrain.kernels.cuda.programs import kept

SCRIPT = """
import json, sys
from unittest import mock
from numba import typeof
from numba.cuda.core import sigutils
from numba.cuda.cudadrv import runtime
from numba.cuda.dispatcher import CUDADispatcher, _Kernel
from resources import device


def compiled(which, major, *change):
    if which == "program":
        from programs import of_walks
        from test_program_key import walker
        dispatcher, arguments = of_walks(walker(*change))
    else:
        from hoptrain.kernels.cuda import KERNELS
        dispatcher, signatures = KERNELS[which]
        arguments, _ = sigutils.normalize_signature(signatures[0])
    without_a_device = mock.patch.object(_Kernel, "bind", lambda kernel: kernel._codelibrary.get_cubin((major, 0, "")))
    with device(major, 0), without_a_device, mock.patch.object(runtime.runtime, "get_version", lambda: (13, 0)):
        kernel = dispatcher.compile(arguments)
    assert dispatcher[1, 32] is dispatcher[1, 32]
    assert CUDADispatcher.configure.cache_info().misses == 0  # the one that all kernels would share
    found = dispatcher.stats
    return [sum(found.cache_hits.values()), sum(found.cache_misses.values()), kernel.entry_name]

print(json.dumps([compiled(*each) for each in json.loads(sys.argv[1])]))
"""


def compiled(folder, *what):
    """Compile or load kernels in a new process with its cache in ``folder``; return hits, misses and the name of each."""
    here = str(Path(__file__).parent)
    environment = os.environ | {"HOPTRAIN_CACHE": str(folder), "PYTHONPATH": here, "NUMBA_ENABLE_CUDASIM": "0"}
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(what)], env=environment, stdout=subprocess.PIPE, check=True, timeout=250
    )
    return json.loads(child.stdout)


def test_machine_code_is_loaded_by_the_second_process(tmp_path):
    """A second process loads the machine code that the first one compiled, but not for another architecture."""
    [first], [second], [other] = (compiled(tmp_path, ["add_sums", major]) for major in (9, 9, 8))
    assert (first[:2], second[:2], other[:2]) == ([0, 1], [1, 0], [0, 1])
    assert first[2] == second[2]


def test_machine_code_of_a_program_is_loaded_while_nothing_of_it_changed(tmp_path):
    """An edited program, or one with renamed parameters, is compiled again; a program without a cache key is compiled each time."""
    edited, renamed, unkeyed = (
        CHANGES["a function of a function"],
        ("factor", "divisor"),
        ("njit\ndef helper", "register_jitable\ndef helper"),
    )
    programs = [["program", *words] for words in ([9], [8], [9, *edited], [9, *renamed], [9, *unkeyed])]
    first, second = (compiled(tmp_path, *programs) for _ in range(2))
    assert [each[:2] for each in first] == [[0, 1]] * 5
    assert [each[:2] for each in second] == [[1, 0]] * 4 + [[0, 1]]
    assert [name for *_, name in first[:4]] == [name for *_, name in second[:4]]


class Codegen:
    """A stub of Numba's code generator without an architecture."""

    @staticmethod
    def magic_tuple():
        return ("none",)


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: bytes(len(content)), lambda content: b"garbage" + content])
def test_damaged_machine_code_of_a_program_counts_as_none(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(kept, "dumps", pickle.dumps)
    context = SimpleNamespace(refresh=lambda: None, codegen=lambda: Codegen)
    kernel = SimpleNamespace(codegen=Codegen, launch_config_sensitive=False)
    files = kept.ProgramFiles("kernel", (), tmp_path / "programs")
    files.save_overload((), kernel)
    assert files.load_overload((), context) == kernel
    (path,) = (tmp_path / "programs").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert files.load_overload((), context) is None
