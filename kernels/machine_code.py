"""Where the machine code of kernels is kept, so that no later process compiles it again.

Numba's own cache looks at the file of the cached function only; an edit of a shared function that was inlined into it goes unnoticed. Here
a folder is named by a hash of all sources that can be compiled into a kernel, so any edit starts a fresh one.
"""

import atexit
import contextlib
import functools
import hashlib
import io
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

CACHE_ROOT_VARIABLE = "HOPTRAIN_NUMBA_ROOT"
"""By this a trainer tells its sampler processes where it keeps machine code."""


_SEALED = "sealed"
"""In the name of a folder whose files end with a checksum."""
_DIGEST_BYTES = 16


@contextlib.contextmanager
def kept_in(folder):
    """Let Numba keep the machine code of what is decorated meanwhile in ``folder``, in files with checksums.

    Numba reads both settings when a function is decorated. They are put back, since the user's own kernels share the process.
    """
    import numba
    import numba.core.caching

    caching = [sys.modules[name] for name in ("numba.core.caching", "numba.cuda.core.caching") if name in sys.modules]
    before = numba.config.CACHE_DIR, [module.IndexDataCacheFile for module in caching]
    numba.config.CACHE_DIR = str(folder)
    for module in caching:
        module.IndexDataCacheFile = _with_checksums(module.IndexDataCacheFile)
    try:
        yield
    finally:
        numba.config.CACHE_DIR, classes = before
        for module, files in zip(caching, classes, strict=True):
            module.IndexDataCacheFile = files


@functools.cache
def _with_checksums(files):
    """Return a subclass of Numba's class of a function's cache files to which a damaged file is a missing one.

    Numba unpickles what it finds: of a file that a power cut left empty, short or full of zeros that is an error which ends the run, and machine code
    with a flipped bit runs.
    """

    class Checked(files):
        def save(self, key, data):
            with contextlib.suppress(OSError):  # a full disk is no reason to fail
                super().save(key, data)

        def _load_index(self):
            return {} if unsealed(self._index_path) is None else super()._load_index()

        def _load_data(self, name):
            path = self._data_path(name)
            if unsealed(path) is None:
                raise OSError(f"{path} is damaged")  # Numba compiles again and writes over it
            return super()._load_data(name)

        @contextlib.contextmanager
        def _open_for_write(self, filepath):
            with super()._open_for_write(filepath) as file:
                content = io.BytesIO()
                yield content
                file.write(sealed(content.getvalue()))

    return Checked


def sealed(content):
    """Return the bytes of a file that ``unsealed`` reads."""
    return content + hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def unsealed(path):
    """Return the content of a file that was written of ``sealed`` bytes; None where it cannot be read or is damaged."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    return content[:-_DIGEST_BYTES] if content == sealed(content[:-_DIGEST_BYTES]) else None


def remove_damaged(root):
    """Remove the damaged files of machine code below ``root``; returns how many are whole and how many were removed."""
    counts = [0, 0]
    for path in root.glob(f"*-{_SEALED}/**/*"):
        if path.is_file() and path.suffix in (".nbi", ".nbc", ""):  # others are being written
            is_damaged = unsealed(path) is None
            counts[is_damaged] += 1
            if is_damaged:
                path.unlink(missing_ok=True)
    return tuple(counts)


def cache_folder(target, compiler):
    """The folder for the kernels of ``target``, "cpu" or "cuda", as ``compiler`` (its name and version) compiles them."""
    folder = CACHE_ROOT / f"{sources_hash(Path(__file__).parent, target)}-{compiler}-{_SEALED}"
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
