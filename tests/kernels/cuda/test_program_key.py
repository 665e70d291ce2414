"""Cache keys of sampling programs: equal for equal programs, and different after any change to the compiled code."""

from types import SimpleNamespace

import pytest

from hoptrain.kernels.cuda.programs import kept
from hoptrain.kernels.cuda.programs.key import NoKeyError, text_of

SOURCE = """
import math
import types
from collections import namedtuple

import numpy as np
from numba import njit
from numba.extending import register_jitable

from hoptrain.samplers import STOP, SamplingProgram, randint, bernoulli, has_edge

Pair = namedtuple("Pair", "first second")
NUMBER, TABLE, PAIR = 1, np.array([1, 1]), Pair(1, 1)
settings = types.ModuleType("settings")
settings.added, settings.unread = 1, object()


@njit
def deeper(n):
    return n + NUMBER


@njit
def helper(n):
    return deeper(n) + 1


settings.helper = njit(lambda n: n + 1)


def made(closed, ending):
    class Walk(SamplingProgram):
        output = "walks"
        steps = 2

        def __init__(self):
            self.factor = 2

        def next(self, transit, step, rng, more=ending):
            if bernoulli(rng, 0.5) or has_edge(transit, transit.node, 0) or step in (3, 4, 5):
                return STOP
            number = helper(closed) + int(TABLE[0]) + settings.added + settings.helper(more) + PAIR.second + self.factor + len(Pair(1, 2))
            return randint(rng, np.int64(math.floor(number)))

    return Walk()


program = made(1, 1)
"""


def walker(old="", new=""):
    """Return the program of ``SOURCE`` with a change."""
    source = SOURCE.replace(old, new)
    assert source != SOURCE or not new
    exec(compile(source, "<edited>", "exec"), names := {"__name__": __name__})
    return names["program"]


def key(*change):
    return text_of([type(walker(*change)).next])


CHANGES = {
    "the function": ("0.5", "0.25"),
    "a constant's type": ("Pair(1, 2)", "Pair(1, 2.0)"),
    "a constant": ("4, 5)", "4, 6)"),
    "a global number": ("PAIR = 1", "PAIR = 2"),
    "an element": ("[1, 1]", "[2, 1]"),
    "an array's type": ("[1, 1]", "[1.0, 1.0]"),
    "a field": ("Pair(1, 1)", "Pair(1, 3)"),
    "the order of fields": ("first second", "second first"),
    "a module's number": ("unread = 1", "unread = 2"),
    "a module's function": ("lambda n: n + 1", "lambda n: n + 2"),
    "a function": ("deeper(n) + 1", "deeper(n) - 1"),
    "a function of a function": ("n + NUMBER", "n - NUMBER"),
    "a circle of functions": ("n + NUMBER", "n + NUMBER if n < 9 else helper(n - 1)"),
    "a function's options": ("njit\ndef deeper", "njit(fastmath=True)\ndef deeper"),
    "what is closed over": ("made(1,", "made(2,"),
    "a default": (", 1)\n", ", 2)\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change_is_seen(change):
    assert key(*change) != key()


def test_lines_and_comments_are_not_seen():
    assert key("NUMBER, TABLE", "# a comment\n\nNUMBER, TABLE") == key()
    assert key("settings.added, settings.unread = 1, object()", "settings.added, settings.unread = 1, [object()]") == key()


@pytest.mark.parametrize(
    "change",
    [
        ("njit\ndef helper", "register_jitable\ndef helper"),  # a function whose source only Numba knows has no cache key
        ("NUMBER, TABLE, PAIR = 1", "NUMBER, TABLE, PAIR = object()"),
        ("import math", "math = object()"),
        ("made(1,", "made(object(),"),
    ],
)
def test_functions_without_source_have_no_key(change):
    with pytest.raises(NoKeyError):
        key(*change)


@pytest.mark.parametrize("can_be_written", [True, False])
def test_a_file_of_machine_code_appears_whole_and_leaves_nothing_beside_it(tmp_path, monkeypatch, can_be_written):
    monkeypatch.setattr(kept, "dumps", lambda kernel: b"machine code")
    files = kept.ProgramFiles("walk", (), tmp_path)
    kernel = SimpleNamespace(codegen=SimpleNamespace(magic_tuple=lambda: ("none",)), launch_config_sensitive=False)
    files.save_overload((), kernel)
    (path,) = tmp_path.iterdir()
    if not can_be_written:
        path.unlink()
        path.mkdir()  # no file can be moved there
        files.save_overload((), kernel)
    assert [*tmp_path.iterdir()] == [path]
    assert kept.unsealed(path) == (b"machine code" if can_be_written else None)
