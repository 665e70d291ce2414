"""Folders of the machine code cache, from which later processes load compiled kernels.

Numba's own cache checks only the file of the cached function, so it misses edits of functions that were inlined from other files. Here
the folder name contains a hash of the kernel's module and of all kernel modules that it imports, directly or indirectly. So an edit recompiles
everything that imports the edited file, and stale code is never loaded.
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
"""Environment variable by which a trainer passes its cache folder to its sampler processes."""


_SEALED = "sealed"
"""Suffix in the name of a cache folder whose files end with a checksum."""
_DIGEST_BYTES = 16


@contextlib.contextmanager
def kept_in(folder):
    """Make Numba cache the functions that are decorated within this context in ``folder``, in files with checksums.

    Numba reads the cache settings when a function is decorated. They are restored afterwards, since the user's own kernels share the process.
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
    """Return a subclass of Numba's class of cache files that treats a damaged file like a missing one.

    Numba unpickles files without a check. A file that a power cut left empty, truncated or zeroed would end the run with an error, and machine code
    with a flipped bit would be executed.
    """

    class Checked(files):
        def save(self, key, data):
            with contextlib.suppress(OSError):  # without disk space kernels still run, only uncached
                super().save(key, data)

        def _load_index(self):
            return {} if unsealed(self._index_path) is None else super()._load_index()

        def _load_data(self, name):
            path = self._data_path(name)
            if unsealed(path) is None:
                raise OSError(f"the cached machine code in {path} is damaged")  # the error makes Numba recompile and overwrite the file
            return super()._load_data(name)

        @contextlib.contextmanager
        def _open_for_write(self, filepath):
            with super()._open_for_write(filepath) as file:
                content = io.BytesIO()
                yield content
                file.write(sealed(content.getvalue()))

    return Checked


def sealed(content):
    """Return ``content`` followed by its checksum, in the format that ``unsealed`` reads."""
    return content + hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def unsealed(path):
    """Return the content of a file in the format of ``sealed``; None if it cannot be read or its checksum is wrong."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    return content[:-_DIGEST_BYTES] if content == sealed(content[:-_DIGEST_BYTES]) else None


def remove_damaged(root):
    """Remove damaged machine code files below ``root``. Return the number of intact files and the number of removed ones."""
    counts = [0, 0]
    for path in root.glob(f"*-{_SEALED}/**/*"):
        if path.is_file() and path.suffix in (".nbi", ".nbc", ""):  # files with other suffixes are still being written
            is_damaged = unsealed(path) is None
            counts[is_damaged] += 1
            if is_damaged:
                path.unlink(missing_ok=True)
    return tuple(counts)


def code_folder(path, compiler):
    """Return the cache folder of the kernels of the module at ``path``; ``compiler`` is the compiler's name and version."""
    return _made(f"{Path(path).stem}-{_closure_hash(path)}-{compiler}")


@functools.cache
def _closure_hash(path):
    """Return the hash of a module and of what it imports, computed once in a process: a module has many kernels."""
    return sources_hash(closure(path))


def cache_folder(target, compiler):
    """Return the cache folder of users' sampling programs, which may use any kernel source of ``target``, "cpu" or "cuda"."""
    return _made(f"{target}-{sources_hash([*KERNELS.glob(f'{target}/**/*.py'), *KERNELS.glob('shared/*.py')])}-{compiler}")


def _made(name):
    folder = CACHE_ROOT / f"{name}-{_SEALED}"
    with contextlib.suppress(OSError):  # without disk space Numba looks for another folder
        folder.mkdir(mode=0o700, exist_ok=True)  # created here because Numba would leave the mode to the umask
    return folder


def sources_hash(paths):
    """Return a hash of the names and contents of Python files, independent of the order of ``paths``."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.parent.name}/{path.name}".encode() + b"\0" + text_of(path).encode() + b"\0")
    return digest.hexdigest()[:16]


def closure(path, kernels=KERNELS):
    """Return the source files of a module's kernels: the module and all modules of ``kernels`` that it imports, directly or indirectly."""
    found, waiting = set(), {Path(path)}
    while waiting:
        file = waiting.pop()
        found.add(file)
        waiting |= _imported(text_of(file), kernels) - found
    return found


@functools.cache
def _imported(text, kernels):
    """Return the kernel files that a source text imports. A regular expression finds them 14 times faster than ``ast.parse``, at every start."""
    files = set()
    for package, names in _IMPORT.findall(text):
        base = kernels.joinpath(*package.split("."))
        if base.with_suffix(".py").is_file():
            files.add(base.with_suffix(".py"))
        else:  # imported from a package: the names are modules of the package, or defined in its __init__.py
            for name in re.findall(r"\w+", names):
                modules = (base / f"{name}.py", base / name / "__init__.py", base / "__init__.py")
                files.add(next(file for file in modules if file.is_file()))
    return files


@functools.cache
def text_of(path):
    """Return the text of a file, which is read once in each process."""
    return path.read_text()


def private_cache_root():
    """Return a cache folder that only this user can write: below ``$HOPTRAIN_CACHE`` or ``~/.cache/hoptrain``, else ``hoptrain-UID`` in the temp folder.

    If neither can be used, a new temporary folder is created and removed when the process ends. Sampler processes end without cleanup, so they get
    the folder of their trainer by ``HOPTRAIN_NUMBA_ROOT``. The folder must be private because Numba's cache files are pickles: loading one that
    somebody else wrote would run their code.
    """
    if CACHE_ROOT_VARIABLE in os.environ:
        return Path(os.environ[CACHE_ROOT_VARIABLE])
    places = (
        lambda: Path(os.environ.get("HOPTRAIN_CACHE") or Path.home() / ".cache" / "hoptrain") / "numba",
        lambda: Path(tempfile.gettempdir()) / f"hoptrain-{os.getuid()}",
    )
    for place in places:
        with contextlib.suppress(OSError, RuntimeError):  # Path.home() raises RuntimeError if there is no home folder
            return private_folder(place())
    folder = tempfile.mkdtemp(prefix="hoptrain-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def private_folder(path):
    """Create the folder for this user alone, with missing parents readable by others. Return its path with links resolved.

    Raises:
        OSError: the folder cannot be created or written, or others could write into the folder or replace it. They can if the folder or a parent
            belongs to a user other than this one and root, or is writable by group or others. Sticky parents such as /tmp are accepted.
    """
    path = path.resolve()
    for folder in (*reversed(path.parents), path):
        folder.mkdir(mode=0o700 if folder == path else 0o755, exist_ok=True)  # other users may share the parents
        status = folder.lstat()  # lstat: a link that was put here meanwhile has mode 0o777 and is rejected below
        is_shared = status.st_mode & 0o022 and (folder == path or not status.st_mode & stat.S_ISVTX)
        if is_shared or status.st_uid not in (0, os.getuid()):
            raise PermissionError(f"{folder} can be changed by other users")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"the cache folder {path} cannot be written")
    return path


CACHE_ROOT = private_cache_root()
