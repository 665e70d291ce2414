"""What NVRTC makes of the CUDA C++ of the package, without a device: it comes as a wheel with numba-cuda."""

import functools
import re
from pathlib import Path

from cuda.bindings import nvrtc

from hoptrain.kernels.cuda import native

FOLDER = Path(native.__file__).parent


def _ask(function, *arguments):
    """The results of a function of NVRTC's, or what it says went wrong."""
    error, *results = function(*arguments)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {error}")
    return results[0] if results else None


@functools.cache
def compile_source(name, arch, source=None):
    """(PTX, the assembler's report) of NAME.cu, or of another source, for an architecture such as "sm_80", by the options of a launch."""
    path = FOLDER / f"{name}.cu"
    text = native.source(name) if source is None else source
    options = [*native.OPTIONS, f"--gpu-architecture={arch}", "--generate-line-info", "--ptxas-options=-v"]
    program = _ask(nvrtc.nvrtcCreateProgram, text.encode(), str(path).encode(), 0, [], [])
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = b" " * _ask(nvrtc.nvrtcGetProgramLogSize, program)
        _ask(nvrtc.nvrtcGetProgramLog, program, log)
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(log.decode())
        ptx = b" " * _ask(nvrtc.nvrtcGetPTXSize, program)
        _ask(nvrtc.nvrtcGetPTX, program, ptx)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0").decode(), log.rstrip(b"\0").decode()


def text_of(ptx, kernel):
    """A kernel's part of a module's PTX."""
    begin = ptx.index(f".entry {kernel}(")
    files = re.findall(r"^\s*\.file\s.*$", ptx, re.MULTILINE)
    return "\n".join([*files, ptx[begin : ptx.index("\n}", begin) + 2]])


def kernels_of(ptx):
    """The names of a module's kernels."""
    return re.findall(r"\.entry (\w+)\(", ptx)
