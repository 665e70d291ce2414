"""Ranks gather each other's values, and no rank waits forever."""

from types import SimpleNamespace

import torch
from cases.mistakes import refused
from ranks import in_threads, meetings

from hoptrain.engine.gpu_memory.meeting import meeting_of


def test_all_hear_all_again_and_again():
    ranks = meetings(3)

    def say(rank):
        return lambda: [rank.exchange(question, {"rank": rank.rank, "said": said}) for question, said in (("a", None), ("b", "x"))]

    expected = [[{"rank": rank, "said": said} for rank in range(3)] for said in (None, "x")]
    assert in_threads([say(rank) for rank in ranks]) == [expected] * 3


def test_a_rank_that_does_not_come_is_named():
    ranks = meetings(3, patience_s=0.05)
    for rank in (ranks[0], ranks[2]):
        with refused("rank 1", "all where within 0", "ranks iterate loaders alike", RuntimeError):
            rank.exchange("where it is", 1)


def test_without_a_process_group_there_is_no_rendezvous(monkeypatch):
    assert meeting_of(2) is None
    group = SimpleNamespace(size=lambda: 2, rank=lambda: 1, get_group_store=dict)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "group", SimpleNamespace(WORLD=group))
    assert (meeting_of(1), meeting_of(3)) == (None, None)  # loaders with another number of ranks than the group
    assert meeting_of(2).rank == 1
