"""A pytest plugin that measures the processor time of each test and prints or records it.

Processor time (user and system, of this process and of the children it waited for) hardly depends on what else runs on the machine.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

LEAST_S = 0.1
"""Tests that take less are not recorded."""
RECORD = Path(__file__).parents[1] / "durations.json"


class Durations:
    """Processor seconds of each test, measured where it runs and added up where it is reported.

    Args:
        record: Whether to write the seconds into ``tests/durations.json``, beside those of tests that did not run.
    """

    def __init__(self, record):
        self.record = record
        self.seconds = defaultdict(float)
        self.before = 0.0

    def pytest_runtest_logstart(self):
        self.before = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        now = processor_seconds()
        report.processor_seconds, self.before = now - self.before, now
        return report

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.processor_seconds

    def pytest_terminal_summary(self, terminalreporter):
        slowest = sorted(self.seconds.items(), key=lambda test: -test[1])[:10]
        terminalreporter.section(f"{sum(self.seconds.values()):.0f} s of processor time in {len(self.seconds)} tests; the slowest ten")
        for test, seconds in slowest:
            terminalreporter.line(f"{seconds:7.2f} s {test}")
        if self.record:
            before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
            known = {test: seconds for test, seconds in before.items() if test not in self.seconds}
            known |= {test: round(seconds, 2) for test, seconds in self.seconds.items() if seconds >= LEAST_S}
            RECORD.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")


def processor_seconds():
    return sum(os.times()[:4])
