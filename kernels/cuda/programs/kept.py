"""A disk cache of the machine code of programs' kernels, keyed by everything that is compiled into a kernel.

Numba-cuda's own cache is not sufficient: it checks the file of the kernel, not the user's functions. It also treats the class of the program's
parameters, which each process creates again, as a different type. A file holds one kernel for one set of types and one architecture. Its key is
computed at compilation, since that is when Numba reads global values.
"""

import contextlib
import hashlib
import pickle
import uuid

from numba import cuda
from numba.core import config, types
from numba.cuda.serialize import dumps

from hoptrain.kernels.cuda.compile import COMPILER, jit
from hoptrain.kernels.cuda.programs.key import NoKeyError, text_of
from hoptrain.kernels.machine_code import cache_folder, sealed, unsealed

FOLDER = cache_folder("cuda", COMPILER) / "programs"
"""Cache folder for the machine code of sampling programs."""


def program_kernel(*functions):
    """Return a decorator that compiles a kernel for CUDA and caches it on disk; ``functions`` are the user's functions that the kernel calls."""

    def register(function):
        kernel = jit(function)
        if not config.ENABLE_CUDASIM:
            kernel._cache = ProgramFiles(function.__qualname__, functions)
        return kernel

    return register


def program_function(function):
    """Compile a device function that calls functions of the user. In the simulator it is interpreted, since compiled functions take no arrays there."""
    return function if config.ENABLE_CUDASIM else cuda.jit(device=True)(function)


class ProgramFiles:
    """A disk cache of one kernel with the interface of ``numba.cuda.core.caching._Cache``, which numba-cuda's dispatchers call."""

    def __init__(self, name, functions, folder=FOLDER):
        """Make a cache for the kernel ``name``, which calls the user's ``functions``, with files in ``folder``."""
        self._name, self._functions, self._folder = name, functions, folder
        self.cache_path = str(folder)

    def load_overload(self, arguments, context):
        """Return the cached kernel for argument types, or None."""
        context.refresh()
        path = self._path(arguments, context.codegen())
        content = None if path is None else unsealed(path)
        return None if content is None else pickle.loads(content)

    def save_overload(self, arguments, kernel):
        """Write a kernel to the cache. Errors of the disk are ignored."""
        path = self._path(arguments, kernel.codegen)
        if path is None or kernel.launch_config_sensitive:
            return
        own = path.with_suffix(f".{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                own.write_bytes(sealed(dumps(kernel)))
                own.replace(path)  # atomic, so that concurrent readers never see a partial file
            finally:
                own.unlink(missing_ok=True)

    def _path(self, arguments, codegen):
        """Return the file of a kernel, or None if its key cannot be computed."""
        try:
            functions = text_of(self._functions)
        except NoKeyError:
            return None
        parts = self._name, functions, *map(_type_text, arguments), codegen.magic_tuple()
        return self._folder / hashlib.sha256(repr(parts).encode()).hexdigest()


def _type_text(kind):
    """Return the text of a type; for a named tuple with the field names, which the kernel's code depends on."""
    if isinstance(kind, types.BaseTuple):
        return f"{kind}{getattr(kind, 'fields', '')}({', '.join(map(_type_text, kind.types))})"
    return str(kind)
