"""The default number of batches that are sampled together."""

import pytest

from hoptrain.samplers.loader.device_feed import default_bulk


@pytest.mark.parametrize(
    ("batch_size", "steps", "single_item", "bulk"),
    [
        (1024, 193, False, 8),
        (256, 1000, False, 32),
        (1, 1000, False, 64),
        (100_000, 1000, False, 2),
        (1024, 20, False, 5),
        (64, 3, False, 1),
        (1, 1000, True, 8),
    ],
    ids=["usual", "small batches", "the smallest", "large batches", "a short epoch", "three steps", "a subgraph is one item"],
)
def test_default_bulk(batch_size, steps, single_item, bulk):
    assert default_bulk(batch_size, steps, single_item) == bulk
