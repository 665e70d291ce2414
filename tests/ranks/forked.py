"""Python processes forked from one that has done the slow imports, for tests that do not test how a process starts."""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).parents[1]
CONTEXT = multiprocessing.get_context("forkserver")


def begin():
    """Start the process that others are forked from. It sees the CUDA simulator, and finds the tests' modules by its path."""
    CONTEXT.set_forkserver_preload(["ranks.warm"])
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NUMBA_ENABLE_CUDASIM": "1"}
    with mock.patch.dict(os.environ, environment), contextlib.chdir(TESTS):
        process = CONTEXT.Process(target=_check)
        process.start()
        process.join()
    assert process.exitcode == 0, "ranks.warm cannot be imported"


def _check():
    sys.exit("ranks.warm" not in sys.modules)  # multiprocessing ignores an ImportError


def processor_seconds():
    """Return the processor time of the process that others are forked from, and of those that have ended."""
    pid = multiprocessing.forkserver._forkserver._forkserver_pid
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Forked:
    """A process that runs a Python program as ``python -c`` does, with the methods of ``subprocess.Popen`` that tests use.

    A test that makes one needs the fixture ``forkserver``.
    """

    def __init__(self, program, *arguments, cwd=None, env=None):
        self._files = [os.memfd_create("output"), os.memfd_create("errors")]
        outputs = [f"/proc/{os.getpid()}/fd/{file}" for file in self._files]
        job = (program, [*map(str, arguments)], str(cwd or Path.cwd()), dict(env or os.environ), outputs)
        self._process = CONTEXT.Process(target=_run, args=job)
        self._process.start()
        self.pid = self._process.pid
        self._texts = None

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
        """Wait for the end, and return the texts of stdout and stderr."""
        self.wait(timeout)
        if self._texts is None:
            self._texts = tuple(Path(f"/proc/self/fd/{file}").read_text() for file in self._files)
            for file in self._files:
                os.close(file)
        return self._texts

    def kill(self):
        self._process.kill()


def _run(program, arguments, cwd, environment, outputs):
    for number, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<forked>", "exec"), main.__dict__)
