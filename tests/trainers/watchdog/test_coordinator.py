"""The coordinator reports the first failure. No test waits, since the time is an argument."""

import pytest

from hoptrain.trainers.watchdog.coordinator import ARRIVAL_S, SILENCE_S, STILL_S, WINDOW_S, Coordinator, Failure


@pytest.fixture
def coordinator():
    coordinator = Coordinator(3)
    beat(coordinator, 0.0)
    return coordinator


def beat(coordinator, now, states=("", "", ""), **message):
    for rank, state in enumerate(states):
        if state is not None:
            coordinator.update(rank, {"state": state, **message}, now)
    return coordinator.decide(now)


def go_on(coordinator, seconds, states=("", "", ""), begin=0.0):
    """Send heartbeats for some seconds or up to a failure; return the failure and its second."""
    for now in range(1, int(seconds) + 1):
        if (failure := beat(coordinator, begin + now, states)) is not None:
            return failure, now
    return None, seconds


def test_ranks_that_work_are_left_alone(coordinator):
    assert go_on(coordinator, 10 * ARRIVAL_S) == (None, 10 * ARRIVAL_S)


def test_a_death_counts_at_once(coordinator):
    coordinator.update(2, {"kind": "died", "text": "was killed by SIGKILL"}, 1.0)
    assert coordinator.decide(1.0) == Failure(2, "died", "rank 2 was killed by SIGKILL")


def test_an_exception_waits_for_the_death_that_it_may_come_from(coordinator):
    coordinator.update(0, {"kind": "failed", "text": "failed: RuntimeError: no idea"}, 1.0)
    assert coordinator.decide(1.0 + WINDOW_S / 2) is None
    coordinator.update(1, {"kind": "died", "text": "was killed by SIGSEGV"}, 1.0 + WINDOW_S / 2)
    assert coordinator.decide(1.0 + WINDOW_S / 2).text == "rank 1 was killed by SIGSEGV"


def test_a_broken_connection_is_the_consequence_of_any_other_failure(coordinator):
    coordinator.update(0, {"kind": "lost", "text": "failed: RuntimeError: Connection closed by peer"}, 1.0)
    coordinator.update(1, {"kind": "failed", "text": "failed: ValueError: mine"}, 1.5)
    coordinator.update(2, {"kind": "failed", "text": "failed: ValueError: later"}, 1.6)
    assert coordinator.decide(1.0 + WINDOW_S) == Failure(1, "failed", "rank 1 failed: ValueError: mine")


def test_a_broken_connection_is_reported_if_there_is_no_other_failure(coordinator):
    coordinator.update(0, {"kind": "lost", "text": "failed: RuntimeError: Connection closed by peer"}, 1.0)
    assert beat(coordinator, 1.0 + WINDOW_S) == Failure(0, "failed", "rank 0 failed: RuntimeError: Connection closed by peer")


def test_the_first_verdict_stands(coordinator):
    coordinator.update(2, {"kind": "asked", "text": "was asked to end"}, 1.0)
    first = coordinator.decide(1.0)
    coordinator.update(1, {"kind": "died", "text": "was killed by SIGKILL"}, 1.0)
    assert coordinator.decide(2.0) is first
    assert first == Failure(2, "asked", "rank 2 was asked to end")


def test_ranks_that_all_leave_with_code_0_disturb_nobody(coordinator):
    for rank in range(3):
        coordinator.update(rank, {"kind": "left", "text": "ended by sys.exit(0)"}, 1.0)
    assert coordinator.decide(1.0).kind == "over"


def test_one_that_leaves_alone_with_code_0_is_a_failure(coordinator):
    coordinator.update(1, {"kind": "left", "text": "ended by sys.exit(0)"}, 1.0)
    assert go_on(coordinator, 60) == (Failure(1, "failed", "rank 1 ended by sys.exit(0)"), 1 + SILENCE_S)


def test_a_rank_that_is_done_may_go(coordinator):
    coordinator.update(1, {"done": True}, 1.0)
    coordinator.update(1, {"kind": "died", "text": "has ended, and so has its watchdog"}, 1.0)
    assert go_on(coordinator, 3 * SILENCE_S, ("", None, "")) == (None, 3 * SILENCE_S)


def test_a_machine_that_is_cut_off(coordinator):
    coordinator.update(1, {"state": "", "place": "epoch 2, step 31"}, 0.0)
    failure, when = go_on(coordinator, 60, ("", None, ""))
    assert failure == Failure(1, "died", "rank 1 is cut off: no message came from its machine for 10 s (last seen at epoch 2, step 31)")
    assert when == SILENCE_S + 1


def test_a_rank_that_is_stopped_alone(coordinator):
    failure, when = go_on(coordinator, 60, ("stopped", "", ""))
    assert failure == Failure(0, "died", "rank 0 was stopped (SIGSTOP) and not continued for 10 s")
    assert when == SILENCE_S + 1


def test_a_job_that_is_suspended_with_all_its_ranks(coordinator):
    assert go_on(coordinator, 600, ("stopped",) * 3) == (None, 600)
    assert go_on(coordinator, SILENCE_S, ("stopped", "", "stopped"), begin=600) == (
        None,
        SILENCE_S,
    )  # the ranks do not continue at the same moment
    assert go_on(coordinator, 600, begin=620) == (None, 600)


def test_a_rank_that_does_nothing_while_another_waits_for_it(coordinator):
    coordinator.update(0, {"arrived": True}, 0.0)
    coordinator.update(1, {"place": "model.py, line 3, in __init__"}, 0.0)
    failure, when = go_on(coordinator, 60, ("still", "still", ""))
    assert failure.text == (
        "rank 1 has not arrived: it was idle for 12 s while another rank waits for it (last seen at model.py, line 3, in __init__)"
    )
    assert when == STILL_S + 1


def test_a_rank_that_works_long_before_it_arrives(coordinator):
    coordinator.update(0, {"arrived": True}, 0.0)
    assert go_on(coordinator, 600, ("still", "", "")) == (None, 600)


def test_ranks_that_all_wait_before_they_arrive_may(coordinator):
    """Ranks may wait for a download or a lock without limit before the rendezvous."""
    assert go_on(coordinator, 600, ("still",) * 3) == (None, 600)


def test_a_rank_that_was_never_heard_of():
    failure, when = go_on(Coordinator(3), 600, ("", "", None))
    assert failure.text == "rank 2 has not arrived: no message came from it for 120 s"
    assert when == ARRIVAL_S + 1
