"""Python processes forked from one that has done the slow imports, for tests that do not test how a process starts.

Conftest loads this module as a plugin, for its fixture ``forkserver``.
"""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import types
import weakref
from pathlib import Path
from unittest import mock

import pytest

TESTS = Path(__file__).parents[1]
SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1", "CUDA_VISIBLE_DEVICES": ""}
CONTEXT = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="session")
def forkserver():
    """Start the process that ``Forked`` forks from; a test that forks needs this fixture.

    The process sees the CUDA simulator, and no GPU: a process that has used one cannot be forked. It finds the tests' modules by its path.
    """
    CONTEXT.set_forkserver_preload(["ranks.warm"])
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", **SIMULATOR}
    with mock.patch.dict(os.environ, environment), contextlib.chdir(TESTS):
        process = CONTEXT.Process(target=_check)
        process.start()
        process.join()
    assert process.exitcode == 0, "ranks.warm cannot be imported"


def _check():
    sys.exit("ranks.warm" not in sys.modules)  # multiprocessing ignores an ImportError


def processor_seconds():
    """Return the processor time of the process that others are forked from, and of its ended children."""
    pid = multiprocessing.forkserver._forkserver._forkserver_pid
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Forked:
    """A process that runs a Python program, with the methods of ``subprocess.Popen`` that tests use.

    Unlike ``python -c``, all forked processes hash strings alike, and none runs ``atexit``. A test that makes one needs the fixture ``forkserver``.
    """

    def __init__(self, program, *arguments, cwd=None, env=None, errors=None):
        """Fork a process; ``errors`` is a file for its stderr."""
        self._files = [os.fdopen(os.memfd_create(name), encoding="utf-8", errors="replace") for name in ("output", "errors")]
        for file in self._files:
            weakref.finalize(self, file.close)
        outputs = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in self._files]
        if errors:
            outputs[1] = str(errors)
        job = (program, [*map(str, arguments)], str(cwd or Path.cwd()), dict(env or os.environ), outputs)
        self._process = CONTEXT.Process(target=_run, args=job)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self._process.exitcode

    def communicate(self, timeout=None):
        """Wait for the end, and return the texts of stdout and stderr so far, to which processes that it has started may add."""
        self.wait(timeout)
        return tuple(_text(file) for file in self._files)

    def kill(self):
        self._process.kill()


def _text(file):
    file.seek(0)
    return file.read()


def _run(program, arguments, cwd, environment, outputs):
    for number, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment | SIMULATOR)
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<forked>", "exec"), main.__dict__)
