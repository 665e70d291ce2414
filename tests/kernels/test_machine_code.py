import ast
import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import numba
import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.kernels import machine_code
from hoptrain.kernels.cpu import csc
from hoptrain.kernels.machine_code import closure, kept_in, private_cache_root, private_folder, remove_damaged, sources_hash

KERNELS = Path(machine_code.__file__).parent


@pytest.fixture
def kernels(tmp_path):
    return shutil.copytree(KERNELS, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(autouse=True)
def _read_again():
    machine_code.text_of.cache_clear()


def hashes(kernels):
    """Return the hash that names the machine code folder of each module."""
    machine_code.text_of.cache_clear()
    return {path.relative_to(kernels): sources_hash(closure(path, kernels)) for path in kernels.glob("c*/**/*.py")}


@lru_cache
def imports(path):
    """Return the modules of the kernels that a file imports, according to Python's own parser."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.Import) and any(alias.name.startswith("hoptrain") for alias in node.names)), (
            "closure() reads `from` alone"
        )
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hoptrain.kernels"):
            base = KERNELS.joinpath(*node.module.split(".")[2:])
            of_names = [(base / f"{alias.name}.py", base / alias.name / "__init__.py", base / "__init__.py") for alias in node.names]
            for files in [(base.with_suffix(".py"),)] if base.with_suffix(".py").is_file() else of_names:
                found.add(next(file for file in files if file.is_file()))
    return found


def test_closure_has_all_that_a_module_imports():
    for path in KERNELS.glob("**/*.py"):
        files = closure(path)
        assert path in files
        assert set().union(*map(imports, files)) <= files
        assert files - {path} <= set().union(*map(imports, files)), "and nothing else"


@pytest.mark.parametrize(("edited", "kept", "changed"), [
    ("shared/labor.py", "cpu/nodewise/neighbor.py", "cpu/nodewise/labor.py"),  # imported directly
    ("shared/draws.py", "cpu/csc.py", "cpu/nodewise/neighbor.py"),  # imported by offsets.py, which it imports
    ("cpu/csc.py", "cpu/nodewise/neighbor.py", "cpu/csc.py"),
    ("cuda/draw.py", "cpu/nodewise/neighbor.py", "cuda/draw.py"),
])  # fmt: skip
def test_an_edit_changes_the_hash_of_what_imports_the_file_alone(kernels, edited, kept, changed):
    before = hashes(kernels)
    (kernels / edited).write_text((kernels / edited).read_text() + "\n")
    after = hashes(kernels)
    assert before[Path(kept)] == after[Path(kept)]
    assert before[Path(changed)] != after[Path(changed)]
    expected = {path.relative_to(kernels) for path in kernels.glob("c*/**/*.py") if kernels / edited in closure(path, kernels)}
    assert {path for path in before if before[path] != after[path]} == expected


def test_folder_is_named_by_the_hash_and_the_versions():
    folder = Path(csc.columns_sorted.stats.cache_path).parent
    assert folder.name == f"csc-{sources_hash(closure(csc.__file__))}-numba{numba.__version__}-numpy{np.__version__}-{machine_code._SEALED}"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Use a separate folder for temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def substitute(temporary):
    return temporary / f"hoptrain-{os.getuid()}"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_root_is_private_and_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "new" / "cache"))
    root = private_cache_root()
    assert root == tmp_path / "new" / "cache" / "numba"
    assert mode(root) == 0o700
    assert private_cache_root() == root


def test_root_without_the_variable_is_below_home(tmp_path, monkeypatch):
    monkeypatch.delenv("HOPTRAIN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert private_cache_root() == tmp_path / ".cache" / "hoptrain" / "numba"


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o722, 0o777])
def test_root_that_others_may_write_is_refused(tmp_path, monkeypatch, temporary, bits):
    root = tmp_path / "numba"
    root.mkdir()
    root.chmod(bits)
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path))
    assert private_cache_root() == substitute(temporary)
    assert mode(substitute(temporary)) == 0o700


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o1777])
def test_folder_above_that_others_may_write_is_refused_unless_sticky(tmp_path, monkeypatch, temporary, bits):
    above = tmp_path / "above"
    (above / "cache" / "numba").mkdir(parents=True, mode=0o700)
    above.chmod(bits)
    monkeypatch.setenv("HOPTRAIN_CACHE", str(above / "cache"))
    assert private_cache_root() == (above / "cache" / "numba" if bits == 0o1777 else substitute(temporary))


def test_sticky_folder_itself_is_refused(tmp_path):
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    with refused("/sticky", "changed other users", error=PermissionError):
        private_folder(tmp_path / "sticky")


@pytest.mark.parametrize(("umask", "above"), [(0, 0o755), (0o022, 0o755), (0o027, 0o750), (0o077, 0o700)])
def test_a_new_folder_is_private_and_those_above_can_be_read(tmp_path, umask, above):
    """A new cache folder is private, and its new parent folders are readable as the umask permits, but writable for the owner only."""
    before = os.umask(umask)
    try:
        private_folder(tmp_path / "one" / "two" / "three")
    finally:
        os.umask(before)
    assert [mode(tmp_path / path) for path in ("one", "one/two", "one/two/three")] == [above, above, 0o700]


def test_links_are_followed_once(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert private_folder(tmp_path / "link" / "numba") == tmp_path / "real" / "numba"


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """Return a function that makes a folder of another user: as root by chown, otherwise by replacing this user's id."""

    def make(path):
        path.mkdir(parents=True)
        if os.getuid() == 0:
            os.chown(path, 12345, -1)
        else:
            uid = os.getuid()
            monkeypatch.setattr(os, "getuid", lambda: uid + 1)

    return make


@pytest.mark.parametrize("place", ["above", "above/numba"])
def test_root_of_another_user_is_refused(tmp_path, monkeypatch, temporary, foreign, place):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "above"))
    foreign(tmp_path / place)
    assert private_cache_root().is_relative_to(temporary)


def test_root_that_cannot_be_made_is_replaced(tmp_path, monkeypatch, temporary):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "file"))
    assert private_cache_root() == substitute(temporary)
    assert private_cache_root() == substitute(temporary), "the same for the next process"


def test_no_home(tmp_path, monkeypatch, temporary):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOPTRAIN_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert private_cache_root() == substitute(temporary)


WHERE = """
from hoptrain.engine.queue.pool import WorkerPool
from hoptrain.kernels.machine_code import CACHE_ROOT
from reference.tasks import Numbers

print(CACHE_ROOT, CACHE_ROOT.is_dir())
pool = WorkerPool(Numbers(), 1)
for _, facts in pool.run(0, range(1)):
    print(facts["cache"])
pool.close()
"""


def test_last_resort_is_a_folder_that_goes_with_the_process(tmp_path, temporary):
    """If the cache and the temporary folder are unsafe, the process uses a temporary folder of its own.

    Sampler processes, which may be killed, use their parent's folder, which is removed at exit.
    """
    (tmp_path / "file").touch()
    substitute(temporary).mkdir()
    substitute(temporary).chmod(0o777)
    tests = str(Path(__file__).parents[1])
    environment = os.environ | {"HOPTRAIN_CACHE": str(tmp_path / "file"), "TMPDIR": str(temporary), "PYTHONPATH": tests}
    child = subprocess.run([sys.executable, "-c", WHERE], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    root, exists, of_worker = child.stdout.split()
    assert (Path(root).parent, exists, of_worker) == (temporary, "True", root)
    assert Path(root).name.startswith("hoptrain-numba-")
    assert list(temporary.iterdir()) == [substitute(temporary)]


def test_importing_leaves_the_setting_of_numba_alone():
    code = (
        "import numba; before = numba.config.CACHE_DIR; import hoptrain.kernels.cpu.csc; assert numba.config.CACHE_DIR == before, 'changed'"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"NUMBA_CACHE_DIR": "users-own"}, check=True, timeout=60)


RUN = """
import numpy as np
from hoptrain.kernels.cpu import csc, shuffle

csc.columns_sorted(np.zeros(1, np.int64), np.zeros(0, np.int32))
shuffle.random_words(1, 0, 0, 0, 0)
compiled = lambda module: sum(sum(kernel.stats.cache_misses.values()) for kernel in vars(module).values() if hasattr(kernel, "stats"))
print(compiled(csc), compiled(shuffle))
"""


def test_only_what_imports_an_edited_file_is_compiled_again(tmp_path, kernels):
    """After an edit, only kernels that import the edited file are compiled again.

    Four processes run a copy of the kernels, and count compilations of a kernel without imports and of one that uses Philox.
    """
    (tmp_path / "hoptrain").mkdir()
    shutil.copy(KERNELS.parent / "__init__.py", tmp_path / "hoptrain")
    kernels.rename(tmp_path / "hoptrain" / "kernels")

    def compiled():
        environment = os.environ | {"HOPTRAIN_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
        run = [sys.executable, "-c", RUN]
        return subprocess.run(run, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout

    assert [compiled(), compiled()] == ["1 1\n", "0 0\n"]
    for edited, expected in [("cpu/csc.py", "1 0\n"), ("shared/philox.py", "0 1\n")]:
        with (tmp_path / "hoptrain" / "kernels" / edited).open("a") as file:
            file.write("# edited\n")
        assert compiled() == expected


def twice(number):
    return number + number


def call(folder):
    """Return cache hits and misses of a function whose machine code is kept in ``folder``."""
    with kept_in(folder):
        kernel = numba.njit(twice, cache=True)
    assert kernel(21) == 42
    return sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "garbage": lambda content: b"garbage" + content,
    "a flipped bit": lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_machine_code_is_compiled_again(tmp_path, suffix, damage):
    """Damaged machine code is compiled and written again, instead of ending the run with Numba's EOFError or UnpicklingError."""
    assert call(tmp_path) == (0, 1)
    (path,) = tmp_path.rglob(f"*.{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert [call(tmp_path), call(tmp_path)] == [(0, 1), (1, 0)], "written again, whole"


def test_machine_code_that_cannot_be_kept_ends_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    assert [call(tmp_path), call(tmp_path)] == [(0, 1), (0, 1)]


def test_damaged_files_are_removed(tmp_path):
    call(tmp_path / "0123-numba-sealed")
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(b"")
    unsealed = tmp_path / "0123-numba" / "other.nbi"  # of an earlier version
    unsealed.parent.mkdir()
    unsealed.touch()
    assert [remove_damaged(tmp_path), remove_damaged(tmp_path)] == [(1, 1), (1, 0)]
    assert not index.exists()
    assert unsealed.exists()


def test_the_users_own_kernels_are_kept_as_numba_does(tmp_path):
    before = numba.core.caching.IndexDataCacheFile
    call(tmp_path)
    assert numba.core.caching.IndexDataCacheFile is before
