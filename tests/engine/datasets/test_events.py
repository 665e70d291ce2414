"""Event data sets: files are read, splits equal PyG's, and each input error is reported in one line."""

import numpy as np
import torch
from cases.mistakes import Mistake, each_of
from torch_geometric.data import Data, TemporalData

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


def file_of_events(folder, **changes):
    """Write an event file with changes, and read it."""
    np.savez(folder / "bent.npz", **{"src": SRC, "dst": DST, "t": T} | changes)
    return load_events("bent", root=folder)


def file_without_destinations(tmp_path):
    np.savez(tmp_path / "other.npz", src=SRC)
    load_events("other", root=tmp_path)


def torn_file(tmp_path):
    (tmp_path / "torn.npz").write_bytes(b"PK")
    load_events("torn", root=tmp_path)


MISTAKES = {
    "times out of order": Mistake(
        lambda: events(t=np.array([5, 7, 6, 9])), value="event 2 has time 6", rule="before 7 order time", remedy="sort t"
    ),
    "times in halves": Mistake(lambda: events(t=T / 2), value="t is float64", rule="whole numbers 2**53", remedy="smaller unit"),
    "times without a sign": Mistake(lambda: events(t=T.astype(np.uint64)), value="t is uint64", rule="integers int64", remedy="convert"),
    "fewer times than events": Mistake(lambda: events(t=T[:3]), value="src 4, dst 4, t 3", rule="event one each", remedy="equal length"),
    "no events": Mistake(
        lambda: events(src=SRC[:0], dst=SRC[:0], t=T[:0]), value="src 0, dst 0, t 0", rule="least one", remedy="equal length"
    ),
    "a negative source": Mistake(lambda: events(src=SRC - 1), value="node -1", rule="source event 5 nodes", remedy="drop larger num_nodes"),
    "a destination beyond the nodes": Mistake(
        lambda: events(num_nodes=4), value="node 4", rule="destination event 4 nodes", remedy="drop larger num_nodes"
    ),
    "an entry of destinations beyond the nodes": Mistake(
        lambda: events(destinations=np.array([9])), value="node 9", rule="destinations 5 nodes", remedy="larger num_nodes"
    ),
    "sources in halves": Mistake(
        lambda: events(src=SRC / 2), value="src is a float64", rule="ids one-dimensional integer", remedy="convert"
    ),
    "fewer messages than events": Mistake(
        lambda: events(messages=np.zeros((3, 2))), value="(3, 2)", rule="messages row 4 events", remedy="reshape"
    ),
    "a message that is no number": Mistake(
        lambda: events(messages=np.full((4, 1), np.nan)), value="messages[0, 0] is nan", rule="finite", remedy="replace nan_to_num"
    ),
    "no event to train on": Mistake(
        lambda: events(ends=(0, 2)), value="ends are 0 and 2", rule="training event satisfy validation", remedy="numbers of events"
    ),
    "an end behind the last event": Mistake(
        lambda: events(ends=(2, 5)), value="ends are 2 and 5", rule="validation ends satisfy 4", remedy="numbers of events"
    ),
    "shares above all events": Mistake(
        lambda: events().divided(0.6, 0.5), value="0.6", rule="val_ratio test_ratio 0.5 below", remedy="lower"
    ),
    "a share without an event": Mistake(
        lambda: events(t=np.array([1, 1, 1, 1])).divided(0, 0.01), value="test_ratio is 0.01", rule="no event 4", remedy="larger share 0"
    ),
    "splits without ends": Mistake(
        lambda: events().splits, value="events", rule="no ends training validation", remedy="Events(ends=...) divided()"
    ),
    "a name without a file": Mistake(
        lambda tmp_path: load_events("nowhere", root=tmp_path),
        value="nowhere",
        rule="not machine nowhere.npz",
        remedy="put root $HOPTRAIN_DATA",
    ),
    "a file without destinations": Mistake(
        file_without_destinations, value="no dst, t", rule="other.npz events src", remedy="another file"
    ),
    **{
        f"{what} as ends": Mistake(
            lambda tmp_path, ends=ends: file_of_events(tmp_path, ends=ends),
            value=shown,
            rule="bent.npz ends two integers",
            remedy="convert leave",
        )
        for what, ends, shown in (
            ("three numbers", [2, 3, 4], "int64 of shape (3,)"),
            ("one number", 2, "int64 of shape ()"),
            ("fractions", [0.5, 0.7], "float64 of shape (2,)"),
        )
    },
    **{
        f"{what} as num_nodes": Mistake(
            lambda tmp_path, size=size: file_of_events(tmp_path, num_nodes=size),
            value=shown,
            rule="bent.npz num_nodes integer",
            remedy="convert leave",
        )
        for what, size, shown in (("two numbers", [7, 8], "int64 of shape (2,)"), ("a text", "7", "<U1 of shape ()"))
    },
    "Data that has no events": Mistake(
        lambda: Events.from_pyg(Data(x=torch.zeros(3, 1))), value="no src, dst, t", rule="Data PyG TemporalData", remedy="arrays Events"
    ),
    "a file that is torn": Mistake(torn_file, value="torn.npz", rule="read .npz without pickles", remedy="fetch"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
