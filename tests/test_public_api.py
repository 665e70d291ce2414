"""``import hoptrain`` is fast, and every name in ``dir(hoptrain)`` exists."""

import ast
import subprocess
import sys
from pathlib import Path

import hoptrain

NAMES = [name for name in dir(hoptrain) if name != "__version__"]


def test_importing_it_loads_nothing_heavy():
    code = "import sys, hoptrain; dir(hoptrain); print(sorted({'torch', 'pytorch_lightning', 'numpy', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_is_what_it_says():
    assert len(NAMES) > 20
    assert {name: getattr(hoptrain, name).__name__ for name in NAMES} == {name: name for name in NAMES}


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(hoptrain.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert sorted(alias.name for line in block.body for alias in line.names) == NAMES


def test_a_name_that_it_has_not_is_refused_as_ever():
    assert not hasattr(hoptrain, "NeighbourSampler")
    assert hoptrain.__version__[0].isdigit()
