"""Cache folders for the interpreter's machine code and the kernels' PTX, named by hashes of the sources."""

import hashlib
from pathlib import Path

import numba
import numba_cuda
from numba import njit

import hoptrain.kernels
from hoptrain.kernels.bare import linked_bare
from hoptrain.kernels.machine_code import CACHE_ROOT, kept_in


def _folder(name, sources, version):
    digest = hashlib.sha256(version.encode())
    for path in sorted(sources):
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    folder = CACHE_ROOT / f"{name}-{digest.hexdigest()[:16]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


_HERE = Path(__file__).parent
_SOURCES = [_HERE / f"{name}.py" for name in ("ops", "arithmetic", "watch", "machine")]
_CODE, _BARE = (_folder(name, _SOURCES, numba.__version__) for name in ("ptx-machine", "ptx-machine-bare"))
TEXTS = _folder("ptx-texts", Path(hoptrain.kernels.__file__).parent.rglob("*.py"), numba_cuda.__version__)


def compiled(function):
    """Compile a function of the interpreter. Editing any of its sources starts a new cache, since they are inlined into each other."""

    def make(**without):
        with kept_in(_BARE if without else _CODE):
            return njit(function, cache=True, error_model="numpy", **without)

    return linked_bare(make)
