"""The decorator of every CPU kernel, and where its machine code is kept.

Numba's own cache looks at the file of the cached function only; an edit of a shared function that was inlined into it goes unnoticed. Here
the folder is named by a hash of all sources under ``kernels/``, so any edit starts a fresh one.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import numba
from numba import njit

_MODES = {"boundscheck": False, "error_model": "numpy", "nogil": True}


def cpu_kernel(function=None, *, parallel=False):
    """Compile for the CPU: no GIL, no bounds checks (callers validate), C division, machine code cached on disk."""
    if function is None:
        return lambda f: cpu_kernel(f, parallel=parallel)
    # Numba reads the setting when the function is decorated. It is put back, since the user's own kernels share the process.
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_CACHE_DIR)
    try:
        return njit(function, cache=True, parallel=parallel, **_MODES)
    finally:
        numba.config.CACHE_DIR = before


def sources_hash(folder):
    """Hash of every Python source under ``folder``: names and contents, in a fixed order."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def private_cache_root():
    """``$HOPTRAIN_CACHE`` or ``~/.cache/hoptrain``, if it is ours alone; otherwise a new private folder.

    Numba's cache files are pickles: reading one that somebody else could write would run their code.
    """
    root = Path(os.environ.get("HOPTRAIN_CACHE") or Path.home() / ".cache" / "hoptrain") / "numba"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = root.stat()
    except (OSError, RuntimeError):
        return Path(tempfile.mkdtemp(prefix="hoptrain-numba-"))
    if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(root, os.W_OK):
        return root
    return Path(tempfile.mkdtemp(prefix="hoptrain-numba-"))


_CACHE_DIR = private_cache_root() / f"{sources_hash(Path(__file__).parents[1])}-numba{numba.__version__}"
