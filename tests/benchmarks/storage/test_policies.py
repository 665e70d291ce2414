"""The cache policies LRU and S3-FIFO equal slow reference implementations."""

from collections import OrderedDict, deque

import numpy as np
import pytest

from hoptrain.benchmarks.storage.policies import Fixed, Lru, S3Fifo, most_of

V = 300


class SlowLru:
    """A reference LRU: an ordered dictionary whose first row is the least recently used row."""

    def __init__(self, num_slots):
        self.size, self.rows = num_slots, OrderedDict()

    def update(self, rows):
        missed = [row for row in rows if row not in self.rows]
        for row in rows:
            if row in self.rows:
                self.rows.move_to_end(row)
        for row in missed:
            if len(self.rows) == self.size:
                self.rows.popitem(last=False)
            self.rows[row] = True


class SlowS3Fifo:
    """A reference S3-FIFO that follows the pseudocode of the paper; the head of a queue is its right end."""

    def __init__(self, num_slots):
        self.small_size = max(1, num_slots // 10)
        self.main_size = num_slots - self.small_size
        self.small, self.main, self.ghost, self.uses = deque(), deque(), deque(), {}
        self.remembered = set()

    @property
    def rows(self):
        return {*self.small, *self.main}

    def update(self, rows):
        missed = [row for row in rows if row not in self.rows]
        for row in rows:
            if row not in missed:
                self.uses[row] = min(self.uses[row] + 1, 3)
        for row in missed:
            while len(self.small) + len(self.main) >= self.small_size + self.main_size:
                self.evict() if len(self.small) >= self.small_size else self.evict_main()
            (self.main if row in self.remembered else self.small).append(row)
            self.remembered.discard(row)
            self.uses[row] = 0

    def evict(self):
        while len(self.small) >= self.small_size:
            row = self.small.popleft()
            if self.uses[row] > 1:
                if len(self.main) >= self.main_size:
                    self.evict_main()
                self.main.append(row)
                continue
            if len(self.ghost) >= self.main_size:
                self.remembered.discard(self.ghost.popleft())
            self.ghost.append(row)
            self.remembered.add(row)
            return
        self.evict_main()

    def evict_main(self):
        while True:
            row = self.main.popleft()
            if self.uses[row] == 0:
                return
            self.uses[row] -= 1
            self.main.append(row)


@pytest.mark.parametrize(("fast", "slow"), [(Lru, SlowLru), (S3Fifo, SlowS3Fifo)])
@pytest.mark.parametrize("num_slots", [40, 41, 150])
def test_the_same_rows_stay_as_by_a_slow_one(fast, slow, num_slots):
    draw = np.random.default_rng(num_slots)
    distribution = 1 / (1 + np.arange(V))
    one, other = fast(V, num_slots), slow(num_slots)
    for _ in range(200):
        rows = np.sort(draw.choice(V, draw.integers(0, 40), replace=False, p=distribution / distribution.sum()))
        one.update(rows)
        other.update(rows.tolist())
        there = np.flatnonzero(one.slot_of >= 0)
        assert set(there.tolist()) == set(other.rows)
        slots = one.slot_of[there]
        assert len(set(slots.tolist())) == len(slots)
        assert slots.min(initial=0) >= 0
        assert slots.max(initial=0) < num_slots


def test_fixed_rows_are_those_of_the_largest_counts():
    chosen = most_of(np.array([3, 9, 9, 1, 5]), 3)
    assert chosen.tolist() == [1, 2, 4]
    policy = Fixed(5, chosen)
    policy.update(np.array([0, 3]))
    assert policy.slot_of.tolist() == [-1, 0, 1, -1, 2]
