"""Compiles the package's CUDA C++ with NVRTC, which needs no device and is installed with numba-cuda."""

import functools
import re
from pathlib import Path

from cuda.bindings import nvrtc

from hoptrain.kernels.cuda import native

FOLDER = Path(native.__file__).parent


def _ask(function, *arguments):
    """Call a function of NVRTC, and return its results or raise its error."""
    error, *results = function(*arguments)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {error}")
    return results[0] if results else None


@functools.cache
def compile_source(name, arch, source=None):
    """Compile NAME.cu, or another source, for an architecture such as "sm_80"; return its PTX and the assembler's report."""
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
    """Return the part of a module's PTX that belongs to a kernel."""
    begin = ptx.index(f".entry {kernel}(")
    files = re.findall(r"^\s*\.file\s.*$", ptx, re.MULTILINE)
    return "\n".join([*files, ptx[begin : ptx.index("\n}", begin) + 2]])


def kernels_of(ptx):
    """Return the names of a module's kernels."""
    return re.findall(r"\.entry (\w+)\(", ptx)
