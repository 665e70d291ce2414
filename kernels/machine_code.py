"""Where the machine code of kernels is kept, so that no later process compiles it again.

Numba's own cache looks at the file of the cached function only; an edit of a shared function that was inlined into it goes unnoticed. Here
the folder of a module's kernels is named by a hash of that module and of all kernel modules that it imports, directly or not. So an edit
compiles again what imports the edited file, and no stale code can be loaded.
"""

import atexit
import contextlib
import functools
import hashlib
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

KERNELS = Path(__file__).parent
_IMPORT = re.compile(r"^[ \t]*from hoptrain\.kernels\.?([\w.]*) import (\([^)]*\)|[^#\n]*)", re.MULTILINE)

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


def code_folder(path, compiler):
    """Return the folder for the kernels of the module at ``path``, as ``compiler`` (its name and version) compiles them."""
    return _made(f"{Path(path).stem}-{sources_hash(closure(path))}-{compiler}")


def cache_folder(target, compiler):
    """Return the folder for what can be compiled from any source of ``target``, "cpu" or "cuda": the programs of users."""
    return _made(f"{target}-{sources_hash([*KERNELS.glob(f'{target}/**/*.py'), *KERNELS.glob('shared/*.py')])}-{compiler}")


def _made(name):
    folder = CACHE_ROOT / f"{name}-{_SEALED}"
    with contextlib.suppress(OSError):  # a full disk is no reason to fail: Numba looks for another place
        folder.mkdir(mode=0o700, exist_ok=True)  # by us, since Numba would leave the mode to the umask
    return folder


def sources_hash(paths):
    """Return a hash of the names and contents of Python files, whatever their order."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.parent.name}/{path.name}".encode() + b"\0" + text_of(path).encode() + b"\0")
    return digest.hexdigest()[:16]


def closure(path, kernels=KERNELS):
    """Return the files that a module's kernels are compiled from: itself and the modules of ``kernels`` that it imports, directly or not."""
    found, waiting = set(), {Path(path)}
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= _imported(text_of(file), kernels) - found
    return found


def _imported(text, kernels):
    """Return the files that a text imports. It is read by a pattern: to parse it takes fourteen times as long, in every process that starts."""
    files = set()
    for package, names in _IMPORT.findall(text):
        base = kernels.joinpath(*package.split("."))
        if base.with_suffix(".py").is_file():
            files.add(base.with_suffix(".py"))
        else:  # a package: its modules, and what lies in its __init__.py
            for name in re.findall(r"\w+", names):
                modules = (base / f"{name}.py", base / name / "__init__.py", base / "__init__.py")
                files.add(next(file for file in modules if file.is_file()))
    return files


@functools.cache
def text_of(path):
    """Return the text of a file, read once a process."""
    return path.read_text()


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
