"""Where the machine code of kernels is kept, so that no later process compiles it again.

Numba's own cache looks at the file of the cached function only; an edit of a shared function that was inlined into it goes unnoticed. Here
a folder is named by a hash of all sources that can be compiled into a kernel, so any edit starts a fresh one.
"""

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

CACHE_ROOT_VARIABLE = "HOPTRAIN_NUMBA_ROOT"
"""By this a trainer tells its sampler processes where it keeps machine code."""


@contextlib.contextmanager
def kept_in(folder):
    """Numba keeps the machine code of what is decorated meanwhile in ``folder``: it reads the setting when a function is decorated.

    It is put back, since the user's own kernels share the process.
    """
    import numba

    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def cache_folder(target, compiler):
    """The folder for the kernels of ``target``, "cpu" or "cuda", as ``compiler`` (its name and version) compiles them."""
    folder = CACHE_ROOT / f"{sources_hash(Path(__file__).parent, target)}-{compiler}"
    with contextlib.suppress(OSError):  # a full disk is no reason to fail: Numba looks for another place
        folder.mkdir(mode=0o700, exist_ok=True)  # by us, since Numba would leave the mode to the umask
    return folder


def sources_hash(kernels, target):
    """Hash of the Python sources that end up in kernels of ``target``, names and contents in a fixed order; ``kernels`` is the folder of all."""
    digest = hashlib.sha256()
    for path in sorted([*kernels.glob(f"{target}/**/*.py"), *kernels.glob("shared/*.py")]):
        digest.update(str(path.relative_to(kernels)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def private_cache_root():
    """A folder that is ours alone: in ``$HOPTRAIN_CACHE`` or ``~/.cache/hoptrain``, else ``hoptrain-UID`` among the temporary files.

    Where neither can be used, a new folder that goes when the process ends. A sampler process, which ends without tidying up, is told the
    folder of its trainer. Numba's cache files are pickles: reading one that somebody else could write would run their code.
    """
    if CACHE_ROOT_VARIABLE in os.environ:
        return Path(os.environ[CACHE_ROOT_VARIABLE])
    places = (
        lambda: Path(os.environ.get("HOPTRAIN_CACHE") or Path.home() / ".cache" / "hoptrain") / "numba",
        lambda: Path(tempfile.gettempdir()) / f"hoptrain-{os.getuid()}",
    )
    for place in places:
        with contextlib.suppress(OSError, RuntimeError):  # Path.home() raises RuntimeError where there is none
            return private_folder(place())
    folder = tempfile.mkdtemp(prefix="hoptrain-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def private_folder(path):
    """Make the folder if need be, for this user alone, and what is missing above it, for others to read; returns its path without links.

    Raises:
        OSError: it cannot be made or written, or others could write into it or put another in its place: it or a folder above belongs to
            somebody who is neither us nor root, or can be written by group or others (above it, a sticky folder like /tmp is fine).
    """
    path = path.resolve()
    for folder in (*reversed(path.parents), path):
        folder.mkdir(mode=0o700 if folder == path else 0o755, exist_ok=True)  # above it others may keep what is theirs
        status = folder.lstat()  # of a link that was put here since: everybody may write it, so it is refused
        is_shared = status.st_mode & 0o022 and (folder == path or not status.st_mode & stat.S_ISVTX)
        if is_shared or status.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{folder} can be changed by others")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written")
    return path


CACHE_ROOT = private_cache_root()
