"""The rules of the architecture: small subpackages, short functions, no circular imports, and every subpackage in the package."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = ("kernels", "engine", "samplers", "trainers", "benchmarks")
ADAPTERS = ("hoptrain/pyg", "hoptrain/dgl")
MAX_FILES, MAX_FUNCTION_LINES = 15, 60


def sources() -> dict[str, Path]:
    """Return the files of the library by module name."""
    files = (path for layer in (*LAYERS, *ADAPTERS) for path in sorted((ROOT / layer).rglob("*.py")))
    names = ((path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."), path) for path in files)
    return {"hoptrain." + name.removeprefix("hoptrain.").removesuffix(".__init__"): path for name, path in names}


def imported(tree: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """Return the library modules that a file imports anywhere: at its top, in a function, or for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in modules else node.module for name in named)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other (Tarjan's strongly connected components) with two or more modules."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in arrows[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            found.append(sorted(stack[place:]))
            del stack[place:]

    for module in arrows:
        if module not in index:
            visit(module)
    return [circle for circle in found if len(circle) > 1]


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]


def test_no_circle_of_imports():
    modules = sources()
    arrows = {name: set(imported(ast.parse(path.read_text()), modules)) - {name} for name, path in modules.items()}
    assert circles(arrows) == []


def test_subpackages_are_small():
    folders = {path.parent for path in sources().values()} | {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert {str(folder.relative_to(ROOT)): n for folder in folders if (n := len(list(folder.glob("*.py")))) > MAX_FILES} == {}


def test_functions_are_short():
    long = {}
    for name, path in sources().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES:
                long[f"{name}.{node.name}"] = node.end_lineno - node.lineno + 1
    assert long == {}


def test_every_subpackage_is_packaged():
    """Every folder with modules has an ``__init__.py``; otherwise the wheel would lack it, and import-linter would ignore it.

    ``tests/test_wheel.py`` compares the wheel with the sources.
    """
    assert {path.parent for path in sources().values() if not path.with_name("__init__.py").exists()} == set()


def test_names_of_test_files_are_unique():
    """All test files have different names, since pytest cannot collect two test files of one name in different folders."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("__init__.py", "conftest.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
