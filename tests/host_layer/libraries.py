"""Builds the libraries that emulate a CUDA device: ``python tests/host_layer/libraries.py OUT``, with the Python whose torch will use them.

libcuda.so.1 and libcudart.so.13 come from ``device/``. The other libraries that torch links (cuBLAS, cuDNN, NCCL ...) are stubs whose
functions compute nothing. The build needs g++ and binutils.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).with_name("device")
FLAGS = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-shared", "-fPIC"]
SUCCEED = ("libcublas.", "libcublasLt.", "libcusparse.")
"""Libraries whose stubs report success; the functions of other stubs report an error, since no test needs them."""
HANDLES = ("cublasCreate_v2", "cusparseCreate")
"""Functions that return a handle through their first argument."""
SIZES = {"cusparseSpMM_bufferSize": 11, "cusparseCsr2cscEx2_bufferSize": 15, "cusparseXcoosort_bufferSizeExt": 7}
"""Functions that return a buffer size through the argument of this number (cusparse.h)."""
NOT_SUPPORTED = 801
"""Error code of the runtime for functions that the emulated device lacks."""


def package(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed for {sys.executable}: run make test-host-layer")
    return Path(next(iter(spec.submodule_search_locations)))


def output_of(*command: str | Path) -> str:
    """Return what a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(libraries: list[Path], provided: set[str]) -> dict[str, set[str]]:
    """Return the functions that torch's libraries import from each other library, by its file name, without ``provided``."""
    names, functions = set(), set()
    for library in libraries:
        names |= set(re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "--dynamic", "--wide", library)))
        functions |= {line.split()[-1] for line in output_of("nm", "--dynamic", "--undefined-only", library).splitlines()}
    system = ["libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "libgomp.", "ld-linux"]
    names = {name for name in names if not name.startswith(tuple(system)) and name not in provided}
    # The library of a symbol without version follows from its prefix: ncclAllReduce is in libnccl.so.2, cuFileRead in libcufile.so.0.
    stems = sorted(((re.sub(r"^lib|(_host)?\.so.*", "", name).lower(), name) for name in names), reverse=True)
    found: dict[str, set[str]] = {name: set() for name in names}
    for function in functions:
        plain, _, version = function.partition("@")
        owner = (
            version.lstrip("@") if version.lstrip("@") in names else next((n for stem, n in stems if plain.lower().startswith(stem)), None)
        )
        if owner is not None and version[:6] not in ("GLIBC_", "GLIBCX"):
            found[owner].add(plain)
    return found


def stub(name: str, functions: set[str], out: Path, version: str | None) -> None:
    """Build a library whose functions compute nothing."""
    code = 0 if name.startswith(SUCCEED) else NOT_SUPPORTED if name.startswith("libcudart.") else 1
    lines = ["#include <stddef.h>"]
    for function in sorted(functions):
        if function == "cuptiGetResultString":
            lines.append(f'int {function}(int result, const char** text) {{ *text = "no profiler is played"; return 0; }}')
        elif function in HANDLES:
            lines.append(f"int {function}(void** handle) {{ *handle = (void*)16; return 0; }}")
        elif function in SIZES:
            arguments = ", ".join([f"void* a{i}" for i in range(SIZES[function] - 1)])
            lines.append(f"int {function}({arguments}, size_t* bytes) {{ *bytes = 0; return 0; }}")
        else:
            lines.append(f"int {function}(void) {{ return {code}; }}")
    source, versions = out / "stub.c", out / "stub.map"
    source.write_text("\n".join(lines) + "\n")
    versions.write_text(f"{version} {{ global: *; }};\n")
    script = [f"-Wl,--version-script={versions}"] if version else []
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", source, f"-Wl,-soname,{name}", *script, "-o", out / name], check=True)
    source.unlink()
    versions.unlink()


def version_of(name: str, libraries: list[Path]) -> str | None:
    """Return the symbol version that torch's libraries expect of a library."""
    known = "".join(output_of("readelf", "--version-info", "--wide", library) for library in libraries)
    found = re.search(rf"File: {re.escape(name)}\s+Cnt: \d+\n.*?Name: (\S+)", known)
    return found and found[1]


def build(out: Path) -> None:
    """Build all libraries into a folder."""
    if missing := [tool for tool in ("g++", "gcc", "nm", "readelf") if shutil.which(tool) is None]:
        raise SystemExit(
            f"{', '.join(missing)} is not on the PATH: install a C++ compiler and binutils, for instance by 'apt-get install g++'"
        )
    out.mkdir(parents=True, exist_ok=True)
    torch, nvidia = package("torch") / "lib", package("nvidia.cu13")
    real = nvidia / "lib" / "libcudart.so.13"
    real.unlink(missing_ok=True)  # torch looks there before it follows LD_LIBRARY_PATH
    libraries = sorted(torch.glob("*.so"))
    include = ["-I", nvidia / "include"]
    driver, runtime = out / "libcuda.so.1", out / "libcudart.so.13"
    own = [SOURCES / "driver.cpp", SOURCES / "device.cpp"]
    subprocess.run(["g++", *FLAGS, *include, "-Wl,-Bsymbolic", f"-Wl,-soname,{driver.name}", *own, "-o", driver], check=True)
    provided = {path.name for path in (*libraries, *(nvidia / "lib").iterdir(), driver)}
    for name, functions in sorted(needed(libraries, provided).items()):
        if name != runtime.name:
            stub(name, functions, out, version_of(name, libraries))
    refused = out / "refused.cpp"
    text = (SOURCES / "runtime.cpp").read_text()
    refusals = sorted(function for function in needed(libraries, provided)[runtime.name] if not re.search(rf"\b{function}\(", text))
    refused.write_text("".join(f'extern "C" int {function}() {{ return {NOT_SUPPORTED}; }}\n' for function in refusals))
    versions = out / "runtime.map"
    versions.write_text(f"{runtime.name} {{ global: cuda*; __cuda*; local: *; }};\n")
    script = [f"-Wl,-soname,{runtime.name}", f"-Wl,--version-script={versions}"]
    subprocess.run(["g++", *FLAGS, *include, *script, SOURCES / "runtime.cpp", refused, driver, "-o", runtime], check=True)
    print(f"built {len(list(out.glob('*.so.*')))} libraries in {out}; the device refuses what torch links besides: {', '.join(refusals)}")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
