"""Command line and environment of Python child processes that import from this process's path, never from the current folder.

``python -c`` and ``python -m`` put the current folder first in the import path. A ``struct.py`` or ``copy.py`` in that folder, which may belong to
somebody else, would then run in the child.
"""

import os
import sys


def python(*arguments: object) -> list[str]:
    """Return the command line of a Python process with these arguments. Start it with ``import_path()`` in its environment."""
    return [sys.executable, "-P", *map(str, arguments)]


def import_path() -> dict[str, str]:
    """Return ``PYTHONPATH`` with this process's import path, so that a child can import classes from the user's script folder."""
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
