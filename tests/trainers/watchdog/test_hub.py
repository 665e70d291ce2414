"""The verdict names the first failure; nothing here waits, since the hub is told the time."""

import pytest

from hoptrain.trainers.watchdog.hub import ARRIVAL_S, SILENCE_S, STILL_S, WINDOW_S, Hub, Verdict


@pytest.fixture
def hub():
    hub = Hub(3)
    beat(hub, 0.0)
    return hub


def beat(hub, now, states=("", "", ""), **message):
    for rank, state in enumerate(states):
        if state is not None:
            hub.take(rank, {"state": state, **message}, now)
    return hub.decide(now)


def go_on(hub, seconds, states=("", "", ""), begin=0.0):
    """Seconds of heartbeats, up to a verdict; returns it, and when it came."""
    for now in range(1, int(seconds) + 1):
        if (verdict := beat(hub, begin + now, states)) is not None:
            return verdict, now
    return None, seconds


def test_ranks_that_work_are_left_alone(hub):
    assert go_on(hub, 10 * ARRIVAL_S) == (None, 10 * ARRIVAL_S)


def test_a_death_counts_at_once(hub):
    hub.take(2, {"kind": "died", "text": "was killed by SIGKILL"}, 1.0)
    assert hub.decide(1.0) == Verdict(2, "died", "rank 2 was killed by SIGKILL")


def test_an_exception_waits_for_the_death_that_it_may_come_from(hub):
    hub.take(0, {"kind": "failed", "text": "failed: RuntimeError: no idea"}, 1.0)
    assert hub.decide(1.0 + WINDOW_S / 2) is None
    hub.take(1, {"kind": "died", "text": "was killed by SIGSEGV"}, 1.0 + WINDOW_S / 2)
    assert hub.decide(1.0 + WINDOW_S / 2).text == "rank 1 was killed by SIGSEGV"


def test_a_broken_connection_is_the_consequence_of_any_other_failure(hub):
    hub.take(0, {"kind": "lost", "text": "failed: RuntimeError: Connection closed by peer"}, 1.0)
    hub.take(1, {"kind": "failed", "text": "failed: ValueError: mine"}, 1.5)
    hub.take(2, {"kind": "failed", "text": "failed: ValueError: later"}, 1.6)
    assert hub.decide(1.0 + WINDOW_S) == Verdict(1, "failed", "rank 1 failed: ValueError: mine")


def test_a_broken_connection_is_told_where_there_is_no_other_failure(hub):
    hub.take(0, {"kind": "lost", "text": "failed: RuntimeError: Connection closed by peer"}, 1.0)
    assert beat(hub, 1.0 + WINDOW_S) == Verdict(0, "failed", "rank 0 failed: RuntimeError: Connection closed by peer")


def test_the_first_verdict_stands(hub):
    hub.take(2, {"kind": "asked", "text": "was asked to end"}, 1.0)
    first = hub.decide(1.0)
    hub.take(1, {"kind": "died", "text": "was killed by SIGKILL"}, 1.0)
    assert hub.decide(2.0) is first
    assert first == Verdict(2, "asked", "rank 2 was asked to end")


def test_ranks_that_all_leave_with_code_0_disturb_nobody(hub):
    for rank in range(3):
        hub.take(rank, {"kind": "left", "text": "ended by sys.exit(0)"}, 1.0)
    assert hub.decide(1.0).kind == "over"


def test_one_that_leaves_alone_with_code_0_is_a_failure(hub):
    hub.take(1, {"kind": "left", "text": "ended by sys.exit(0)"}, 1.0)
    assert go_on(hub, 60) == (Verdict(1, "failed", "rank 1 ended by sys.exit(0)"), 1 + SILENCE_S)


def test_a_rank_that_is_done_may_go(hub):
    hub.take(1, {"done": True}, 1.0)
    hub.take(1, {"kind": "died", "text": "is gone, and its watch with it"}, 1.0)
    assert go_on(hub, 3 * SILENCE_S, ("", None, "")) == (None, 3 * SILENCE_S)


def test_a_machine_that_is_cut_off(hub):
    hub.take(1, {"state": "", "place": "epoch 2, step 31"}, 0.0)
    verdict, when = go_on(hub, 60, ("", None, ""))
    assert verdict == Verdict(1, "died", "rank 1 is cut off: nothing was heard from its machine for 10 s (last seen at epoch 2, step 31)")
    assert when == SILENCE_S + 1


def test_a_rank_that_is_stopped_alone(hub):
    verdict, when = go_on(hub, 60, ("stopped", "", ""))
    assert verdict == Verdict(0, "died", "rank 0 was stopped (SIGSTOP) and did not go on for 10 s")
    assert when == SILENCE_S + 1


def test_a_job_that_is_suspended_with_all_its_ranks(hub):
    assert go_on(hub, 600, ("stopped",) * 3) == (None, 600)
    assert go_on(hub, SILENCE_S, ("stopped", "", "stopped"), begin=600) == (None, SILENCE_S)  # they do not go on at the same moment
    assert go_on(hub, 600, begin=620) == (None, 600)


def test_a_rank_that_does_nothing_while_another_waits_for_it(hub):
    hub.take(0, {"arrived": True}, 0.0)
    hub.take(1, {"place": "model.py, line 3, in __init__"}, 0.0)
    verdict, when = go_on(hub, 60, ("still", "still", ""))
    assert verdict.text == (
        "rank 1 has not arrived: it does nothing for 12 s while another waits for it (last seen at model.py, line 3, in __init__)"
    )
    assert when == STILL_S + 1


def test_a_rank_that_works_long_before_it_arrives(hub):
    hub.take(0, {"arrived": True}, 0.0)
    assert go_on(hub, 600, ("still", "", "")) == (None, 600)


def test_ranks_that_all_wait_before_they_arrive_may(hub):
    """For a download, or a lock."""
    assert go_on(hub, 600, ("still",) * 3) == (None, 600)


def test_a_rank_that_was_never_heard_of():
    verdict, when = go_on(Hub(3), 600, ("", "", None))
    assert verdict.text == "rank 2 has not arrived: nothing was heard of it for 120 s"
    assert when == ARRIVAL_S + 1
