"""Events: read, divided as PyG divides them, and every mistake in one line."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, TemporalData

from hoptrain.engine import InputError
from hoptrain.engine.datasets.events import Events, load_events

SRC, DST, T = np.array([0, 2, 0, 1]), np.array([3, 4, 3, 4]), np.array([5, 5, 6, 9])


def events(**changes):
    return Events(**{"src": SRC, "dst": DST, "t": T} | changes)


def test_a_file(tmp_path):
    messages = np.arange(8).reshape(4, 2)
    np.savez(tmp_path / "met.npz", src=SRC.astype(np.int32), dst=DST, t=T.astype(float), msg=messages, ends=[2, 3], num_nodes=7)
    data = load_events("met", root=tmp_path)
    assert (data.name, data.num_nodes, data.message_channels, data.ends) == ("met", 7, 2, (2, 3))
    assert (data.src.tolist(), data.t.tolist(), data.t.dtype, data.destinations.tolist()) == (SRC.tolist(), T.tolist(), np.int64, [3, 4])
    assert {name: numbers.tolist() for name, numbers in data.splits.items()} == {"train": [0, 1], "val": [2], "test": [3]}
    assert np.array_equal(load_events(str(tmp_path / "met.npz")).messages, messages.astype(np.float32))
    assert "val" not in events(ends=(2, 2)).splits


def test_division_and_arrays_are_those_of_pyg():
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 60, 200))
    columns = {"src": rng.integers(0, 9, 200), "dst": rng.integers(9, 20, 200), "t": t, "msg": rng.random((200, 3), dtype=np.float32)}
    theirs = TemporalData(**{name: torch.from_numpy(column) for name, column in columns.items()})
    data = Events.from_pyg(theirs)
    assert np.array_equal(data.messages, columns["msg"])
    for shares in ((0.15, 0.15), (0.3, 0.2), (0.5, 0.1)):
        parts = theirs.train_val_test_split(*shares)
        assert [len(numbers) for numbers in data.divided(*shares).splits.values()] == [part.num_events for part in parts]


def test_the_graph_has_each_event_in_both_directions():
    graph = events().graph()
    found = zip(graph.indices.tolist(), graph.destinations().tolist(), graph.times.tolist(), strict=True)
    both = {(u, v, k) for k, (u, v) in enumerate(zip(SRC.tolist(), DST.tolist(), strict=True))}
    assert set(found) == both | {(v, u, k) for u, v, k in both}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"t": np.array([5, 7, 6, 9])}, "events: event 2 has time 6 and the one before 7: events are in the order of time; sort them by t"),
        ({"t": T / 2}, "events: t is float64 and not all of it whole: .*count a smaller unit"),
        ({"t": T.astype(np.uint64)}, "events: t is uint64"),
        ({"t": T[:3]}, "events: src 4, dst 4, t 3 entries: an event has one of each"),
        ({"src": SRC[:0], "dst": SRC[:0], "t": T[:0]}, "events: src 0, dst 0, t 0 entries: .*there is at least one"),
        ({"src": SRC - 1}, "events: the source of event 0 is vertex -1, but the graph has the 5 vertices 0 to 4"),
        ({"num_nodes": 4}, "events: the destination of event 1 is vertex 4, but the graph has the 4 vertices 0 to 3"),
        ({"destinations": np.array([9])}, "events: the entry of destinations, 0 is vertex 9"),
        ({"src": SRC / 2}, "events: src is a float64 array"),
        ({"messages": np.zeros((3, 2))}, r"events: messages have shape \(3, 2\): they are a row of numbers for each of 4 events"),
        ({"messages": np.full((4, 1), np.nan)}, r"events: messages\[0, 0\] is nan"),
        ({"ends": (0, 2)}, "events: ends are 0 and 2: training has an event at least"),
        ({"ends": (2, 5)}, "events: ends are 2 and 5"),
    ],
)
def test_mistakes(changes, line):
    with pytest.raises(InputError, match=line) as caught:
        events(**changes)
    assert "\n" not in str(caught.value)


def test_mistakes_of_splits_and_files(tmp_path):
    with pytest.raises(InputError, match=r"val_share is 0\.6 and test_share 0\.5: both are at least 0 and together below 1"):
        events().divided(0.6, 0.5)
    with pytest.raises(InputError, match=r"test has no event: test_share is 0\.01 of 4 events"):
        events(t=np.array([1, 1, 1, 1])).divided(0, 0.01)
    with pytest.raises(InputError, match="events has no ends of training and validation"):
        _ = events().splits
    with pytest.raises(InputError, match="nowhere is not on this machine"):
        load_events("nowhere", root=tmp_path)
    np.savez(tmp_path / "other.npz", src=SRC)
    with pytest.raises(InputError, match="has no dst, t: events are src, dst and t"):
        load_events("other", root=tmp_path)
    for key, value in (("ends", [2, 3, 4]), ("ends", 2), ("ends", [0.5, 0.7]), ("num_nodes", [7, 8]), ("num_nodes", "7")):
        np.savez(tmp_path / "bent.npz", src=SRC, dst=DST, t=T, **{key: value})
        with pytest.raises(InputError, match=rf"bent\.npz: {key} is .* of shape .*: it is (two integers|an integer); correct it"):
            load_events("bent", root=tmp_path)
    with pytest.raises(InputError, match="Data has no src, dst, t: events are PyG's TemporalData"):
        Events.from_pyg(Data(x=torch.zeros(3, 1)))
    (tmp_path / "torn.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"torn.npz cannot be read"):
        load_events("torn", root=tmp_path)
