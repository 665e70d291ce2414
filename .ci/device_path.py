"""Tells whether the code that runs on a GPU, or its tests, changed since ``make test-cuda`` passed.

    python .ci/device_path.py          names what changed; exits with 1 if anything did
    python .ci/device_path.py record   writes the hashes of now into tests/device_path.json, which is committed; ``make test-cuda`` does it at its end

The device path is ``ROOTS``, all files of the project that these import, directly or not, the sources in CUDA C++, and the tests of all these. An edit
of comments and docstrings is no change.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]
RECORD = PROJECT / "tests" / "device_path.json"
ROOTS = [
    "kernels/cuda/**/*.py",
    "samplers/cuda/**/*.py",
    "samplers/loader/device_*.py",
    "engine/gpu_memory/*.py",
]
TESTS = ["tests/ptx/*.py", "tests/cpp/*.py", "tests/kernels/cuda/**/*.py", "tests/samplers/cuda/**/*.py", "tests/golden/*.py"]
OTHERS = ["kernels/cuda/native/*", "tests/cpp/*", "constraints.txt"]


def files_of(patterns: list[str]) -> set[Path]:
    """The files of the project that fit one of the patterns."""
    return {path for pattern in patterns for path in PROJECT.glob(pattern) if path.is_file()}


def imported(path: Path, folder: Path) -> Iterator[Path]:
    """The files of the project, or of the tests, that a file imports; ``folder`` is where its modules are looked for."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
        for name in names:
            place = folder / name.replace(".", "/")
            yield from (file.resolve() for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


def closure(roots: set[Path], folder: Path) -> set[Path]:
    """``roots`` and all files that they import, directly or not."""
    found: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting.extend(imported(path, folder))
    return found


def content(path: Path) -> bytes:
    """What a file does: a Python file's syntax tree without docstrings, any other file's bytes."""
    if path.suffix != ".py":
        return path.read_bytes()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return ast.dump(tree).encode()


def hashes() -> dict[str, str]:
    """The hash of each file of the device path, by its path in the project."""
    paths = closure(files_of(ROOTS), PROJECT) | closure(files_of(TESTS), PROJECT / "tests") | files_of(OTHERS)
    return {str(path.relative_to(PROJECT)): hashlib.sha256(content(path)).hexdigest()[:16] for path in sorted(paths)}


def main(command: str = "") -> int:
    """Record the hashes of now, or compare with those recorded; returns the exit code."""
    now = hashes()
    if command == "record":
        RECORD.write_text(json.dumps(now, indent=0) + "\n")
        return 0
    passed = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    changed = sorted(name for name in now.keys() | passed.keys() if now.get(name) != passed.get(name))
    if not changed:
        print(f"the {len(now)} files of the device path are those with which make test-cuda passed")
        return 0
    others = f" and {len(changed) - 3} others" if len(changed) > 3 else ""
    print(f"{', '.join(changed[:3])}{others} of the device path changed since make test-cuda passed")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
