"""Channels read nothing before the key matches, and reject malformed messages after it."""

import json
import socket

import pytest

from hoptrain.trainers.watchdog import channel as channel_module
from hoptrain.trainers.watchdog.channel import Channel

KEY = "0123456789abcdef"


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, KEY), theirs


def test_messages_after_the_key(ends):
    channel, theirs = ends
    other = Channel(theirs)
    other.send_key(KEY)
    other.send(rank=1)
    assert channel.receive() == [], "the key alone"
    assert channel.receive() == [{"rank": 1}]


def test_a_key_in_pieces(ends):
    channel, theirs = ends
    for piece in (KEY[:5], KEY[5:], "\n"):
        theirs.sendall(piece.encode())
        assert channel.receive() == []
    theirs.sendall(b'{"rank": 1}\n')
    assert channel.receive() == [{"rank": 1}]


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 60_000 + b"\n",
        b'{"rank": 1, "key": "0123456789abcdef"}\n',
        b"\n" * 20,
        KEY.encode()[:-1] + b"0\n",
        KEY.encode() * 2,
        b"\xff" * 100,
    ],
)
def test_nothing_is_parsed_without_the_key(ends, text, monkeypatch):
    monkeypatch.setattr(channel_module.json, "loads", None)
    channel, theirs = ends
    theirs.sendall(text)
    assert channel.receive() is None


def test_an_end_without_the_key(ends):
    channel, theirs = ends
    theirs.sendall(KEY[:5].encode())
    assert channel.receive() == []
    theirs.close()
    assert channel.receive() is None


@pytest.mark.parametrize(
    "text", [b"[" * 60_000 + b"\n", b'{"a":' * 9_000 + b"\n", b"no\n", b"\xff\n", b"[1]\n", b"1" * 5000 + b"\n", b"x" * 70_000]
)
def test_what_is_malformed_ends_the_connection(text):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        theirs.sendall(text)
        found = channel.receive()
        while found == []:
            found = channel.receive()
        assert found is None


def test_messages_arrive_whole():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        theirs.sendall(json.dumps({"a": 1}).encode() + b'\n{"b"')
        assert channel.receive() == [{"a": 1}]
        theirs.sendall(b": 2}\n")
        assert channel.receive() == [{"b": 2}]
