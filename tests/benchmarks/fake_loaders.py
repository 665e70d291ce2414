"""What tests run in other processes. It is in a separate module so that these processes import little."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

from hoptrain.engine import InputError


def slow(data, keep=1.0, delay=0.02):
    """A slowed-down loader of hoptrain that reports only a share of the edges."""
    from hoptrain.benchmarks.baselines import hoptrain  # here, since most of these processes sample nothing

    make = hoptrain.open_loader("all", data)

    def make_slow(case, workers):
        def epoch():
            for edges, x in make(case, 0)():
                time.sleep(delay)
                yield int(edges * keep), x

        return epoch

    return make_slow


def absent(data):
    raise InputError("not installed")


def dies(data):
    return lambda case, workers: partial(os._exit, 3)


class Here:
    """A stand-in for ``Child`` whose object lives in this process, which has imported all libraries."""

    def __init__(self, make, *args, environment, patience):
        self.make, self.served = partial(make, *args), None

    def call(self, method, *args):
        self.served = self.served or self.make()
        return getattr(self.served, method)(*args)

    def cpu_seconds(self):
        return 0.0

    def close(self):
        self.served = None


class Counter:
    def __init__(self, start):
        if start < 0:
            raise InputError("start is negative")
        self.value = start

    def add(self, number):
        self.value += number
        return self.value

    def fail(self):
        raise KeyError("what went wrong")

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def variable(self, name):
        return os.environ.get(name)

    def spin(self, seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def start_another(self):
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
