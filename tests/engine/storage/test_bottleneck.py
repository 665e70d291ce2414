"""If a run waits for feature rows, the message names the cause, from measured times alone."""

import pytest

from hoptrain.engine.storage.bottleneck import slow_rows
from hoptrain.engine.storage.filler import Filled
from hoptrain.engine.timeline import Totals

READ = Filled(num_used=1000, num_missed=250, num_reads=200, num_bytes=8_000_000, read_s=3.0, work_s=1.0)


@pytest.mark.parametrize(
    ("filled", "remedy"),
    [
        (READ, "25% of the rows are read): all rows fit in data.feature_cache, so each is read once: a faster disk"),
        (
            READ._replace(num_fetched=600, num_rounds=7, fetch_s=4.0),
            "in 7 rounds): all rows fit in data.feature_cache, so each is read once: a larger data.prefetch_steps, or a faster network",
        ),
    ],
)
def test_more_memory_is_not_advised_where_all_rows_fit(filled, remedy):
    assert slow_rows(Totals(elapsed=10.0), filled, 2.0, holds_all=True).endswith(remedy)


@pytest.mark.parametrize(
    ("elapsed", "wait_s", "filled", "sentence"),
    [
        (
            10.0,
            4.0,
            READ,
            "bottleneck: the disk (trainer waited 40% of the time for rows; 50 reads and 2 MB a second, 25% of the rows are read): "
            "more data.feature_cache, or a faster disk",
        ),
        (
            10.0,
            2.0,
            READ._replace(read_s=0.5),
            "bottleneck: sampling ahead, to know which rows to read (trainer waited 20% of the time for rows): smaller fanouts, or a larger batch_size",
        ),
        (
            10.0,
            2.0,
            READ._replace(num_fetched=600, num_rounds=7, fetch_s=4.0),
            "bottleneck: rows of other machines (trainer waited 20% of the time for rows; 150 rows a second in 7 rounds): "
            "more data.feature_cache, a larger data.prefetch_steps, or a faster network",
        ),
        (10.0, 0.9, READ, None),
        (0.0, 0.0, READ, None),
    ],
)
def test_it_follows_the_shares(elapsed, wait_s, filled, sentence):
    assert slow_rows(Totals(elapsed=elapsed), filled, wait_s) == sentence
