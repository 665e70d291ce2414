"""How a new Python process is started: it imports from where this one does, never from the folder that it is started in.

``python -c`` and ``python -m`` put the current folder first: a ``struct.py`` or ``copy.py`` that lies there would run in the child, as code of whoever
wrote the folder.
"""

import os
import sys


def python(*arguments: object) -> list[str]:
    """Return the command of a Python process with these arguments; it needs ``import_path()`` in its environment."""
    return [sys.executable, "-P", *map(str, arguments)]


def import_path() -> dict[str, str]:
    """Return the environment variable by which a child imports from where this process does: a user's classes lie beside their script."""
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
