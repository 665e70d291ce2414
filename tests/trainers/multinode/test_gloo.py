"""Exchanges by gloo between processes equal exchanges between threads, for messages sent whole or in pieces."""

import json

import pytest
from ranks import in_threads, run_ranks
from ranks.in_rounds import exchanged

from hoptrain.engine.partition.exchange import LocalExchange

PROGRAM = """
    from hoptrain.trainers.multinode import gloo
    from ranks.in_rounds import exchanged
    found = []
    for gloo.MOST_BYTES in (1 << 29, 40):
        found.append(exchanged(gloo.GlooExchange()))
    print(json.dumps(found))
"""


@pytest.mark.usefixtures("forkserver")
def test_as_threads_do(tmp_path):
    expected = in_threads([lambda own=own: exchanged(own) for own in LocalExchange.among(3)])
    outputs, _ = run_ranks(tmp_path, PROGRAM, 3)
    for found in zip(*outputs, strict=True):
        assert list(found) == json.loads(json.dumps(expected))
    assert [len(part) for part in outputs[0][0][2]] == [0, 2 * 7, 2 * 14]
