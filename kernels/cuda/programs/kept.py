"""Machine code of a program's kernels on disk, by all that is compiled into it.

Numba-cuda's own cache would not do: it looks at the file of the kernel, not at the user's functions, and takes the class of the program's
parameters, which each process makes anew, for another one. A file holds one kernel for one set of types and one architecture; what it is named
by is found when it is compiled, since that is when Numba reads global values.
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
"""Where the machine code of programs is kept."""


def program_kernel(*functions):
    """A decorator: compile for CUDA a kernel that is made of ``functions`` of the user's, besides ours."""

    def register(function):
        kernel = jit(function)
        if not config.ENABLE_CUDASIM:
            kernel._cache = ProgramFiles(function.__qualname__, functions)
        return kernel

    return register


def program_function(function):
    """A device function that is made of functions of the user's; the simulator interprets it: compiled ones take no arrays there."""
    return function if config.ENABLE_CUDASIM else cuda.jit(device=True)(function)


class ProgramFiles:
    """What a dispatcher of numba-cuda's asks for kernels on disk, as ``numba.cuda.core.caching._Cache`` has it."""

    def __init__(self, name, functions, folder=FOLDER):
        """Name the kernel, the user's functions that it is made of, and the folder of the files."""
        self._name, self._functions, self._folder = name, functions, folder
        self.cache_path = str(folder)

    def load_overload(self, arguments, context):
        """The kernel for some types; None if it is not there."""
        context.refresh()
        path = self._path(arguments, context.codegen())
        content = None if path is None else unsealed(path)
        return None if content is None else pickle.loads(content)

    def save_overload(self, arguments, kernel):
        """Keep a kernel. A full disk is no reason to fail."""
        path = self._path(arguments, kernel.codegen)
        if path is None or kernel.launch_config_sensitive:
            return
        own = path.with_suffix(f".{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                own.write_bytes(sealed(dumps(kernel)))
                own.replace(path)  # whole or not at all, for whoever reads it meanwhile
            finally:
                own.unlink(missing_ok=True)

    def _path(self, arguments, codegen):
        """The file of a kernel; None where it cannot be told what it is made of."""
        try:
            functions = text_of(self._functions)
        except NoKeyError:
            return None
        parts = self._name, functions, *map(_type_text, arguments), codegen.magic_tuple()
        return self._folder / hashlib.sha256(repr(parts).encode()).hexdigest()


def _type_text(kind):
    """A type; of a named tuple also the names, by which its kernel reads it."""
    if isinstance(kind, types.BaseTuple):
        return f"{kind}{getattr(kind, 'fields', '')}({', '.join(map(_type_text, kind.types))})"
    return str(kind)
