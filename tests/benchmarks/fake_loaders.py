"""Loaders that tests run in other processes. They are in a separate module so that these processes import little."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

from hoptrain.benchmarks.baselines import hoptrain
from hoptrain.engine import InputError


def slow(data, keep=1.0, delay=0.02):
    """A slowed-down loader of hoptrain that reports only a share of the edges."""
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
