"""If a job is suspended as a whole, it reports no timeouts of its own processes after it continues."""

import time

from hoptrain.engine.deadline import Deadline


def test_patience_ends_after_its_seconds(monkeypatch):
    clock = Clock(monkeypatch)
    patience = Deadline(3)
    assert [clock.after(1, patience.is_over) for _ in range(4)] == [False, False, True, True]


def test_time_in_which_the_process_was_stopped_hardly_counts(monkeypatch):
    clock = Clock(monkeypatch)
    patience = Deadline(3)
    assert not clock.after(3600, patience.is_over)
    assert clock.after(1, patience.is_over)


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def after(self, seconds, look):
        self.now += seconds
        return look()
