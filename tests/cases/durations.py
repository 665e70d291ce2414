"""A pytest plugin that measures each test, records its duration, and marks tests as ``long`` by the record.

A duration is the longer of two times: processor time (user and system, with awaited children), which hardly depends on the load, and wall-
clock time, since a test may only wait. Record on an idle machine.
"""

import importlib
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

LONG_S = 0.12
"""Tests with a longer recorded duration run in ``make test-all`` only, unless they are marked ``promise``."""
LEAST_S = 0.06
"""Shorter durations are not recorded."""
RECORD = Path(__file__).parents[1] / "durations.json"
OF_CUDA = (
    "ptx/", "golden/test_golden_cuda.py", "golden/test_bulks_cuda.py", "golden/test_captured_cuda.py", "kernels/cuda/", "samplers/cuda/",
    "benchmarks/device/", "benchmarks/test_bulk_host_bench.py", "trainers/commands/checks/",
)  # fmt: skip
"""Folders and files whose tests are marked ``cuda``; `make test-cuda` runs the long ones of these."""
LIBRARIES = "torch", "pytorch_lightning", "torch_geometric"
"""Libraries that take seconds to import. Worker processes of pytest import them first, so that no test is recorded with that time."""


class Durations:
    """A plugin that measures each test's seconds in the process that runs it, and adds them up in the process that reports them.

    The time of module fixtures counts for no test, since other tests need them too.

    With ``record``, the seconds are written into ``tests/durations.json``, which keeps those of tests that did not run.
    """

    def __init__(self, record):
        self.record = record
        self.known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.total = 0.0
        self.before = self.shared = (0.0, 0.0)

    def pytest_sessionstart(self):
        if "PYTEST_XDIST_WORKER" in os.environ:
            for name in LIBRARIES:
                importlib.import_module(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        """Mark long tests and CUDA tests before pytest evaluates ``-m``."""
        for item in items:
            if item.nodeid.removeprefix("tests/").startswith(OF_CUDA):
                item.add_marker("cuda")
            if self.known.get(item.nodeid, 0) > LONG_S and not item.get_closest_marker("promise"):
                item.add_marker("long")

    def pytest_runtest_logstart(self):
        self.before, self.shared = times(), (0.0, 0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        before = times()
        value = yield
        if fixturedef.scope != "function":
            self.shared = tuple(shared + now - then for shared, now, then in zip(self.shared, times(), before, strict=True))
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = times()
        report.seconds = [after - before for after, before in zip(now, self.before, strict=True)]
        report.shared_seconds = self.shared
        self.before, self.shared = now, (0.0, 0.0)
        return report

    def pytest_runtest_logreport(self, report):
        self.total += report.seconds[0]
        for i, (seconds, shared) in enumerate(zip(report.seconds, report.shared_seconds, strict=True)):
            self.seconds[report.nodeid][i] += seconds - shared

    def pytest_terminal_summary(self, terminalreporter):
        longest = {test: max(both) for test, both in self.seconds.items()}
        terminalreporter.section(f"{self.total:.0f} s of processor time in {len(longest)} tests; the slowest ten")
        for test, seconds in sorted(longest.items(), key=lambda test: -test[1])[:10]:
            terminalreporter.line(f"{seconds:7.2f} s, of the processor {self.seconds[test][0]:7.2f} s {test}")
        if self.record:
            known = {test: seconds for test, seconds in self.known.items() if test not in longest}
            known |= {test: round(seconds, 2) for test, seconds in longest.items() if seconds >= LEAST_S}
            RECORD.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")


def times():
    """Return the processor time so far, also of forked processes, and the wall-clock time, both in seconds."""
    forked = sys.modules.get("ranks.forked")
    return sum(os.times()[:4]) + (forked.processor_seconds() if forked else 0.0), time.perf_counter()
