"""The options of the queue: what cannot be is refused, what is not given stays at its default."""

import pytest

from hoptrain.engine import InputError
from hoptrain.engine.queue.options import QueueOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefetch": 0}, "prefetch is 0: it is at least 1"),
        ({"stall_timeout": 0}, "stall_timeout is 0: it is at least 0.1"),
        ({"max_restarts": -1}, "max_restarts is -1: it is at least 0"),
        ({"slots_dir": "/no/such"}, "slots_dir /no/such cannot hold the queue's files"),
    ],
)
def test_what_cannot_be(options, message):
    with pytest.raises(InputError, match=message):
        QueueOptions(**options)
