"""The server listens on the right address, and connections without the key have no effect."""

import selectors
import socket
from contextlib import ExitStack, closing

import pytest

from hoptrain.trainers.watchdog import server as server_module
from hoptrain.trainers.watchdog.channel import Channel
from hoptrain.trainers.watchdog.server import MOST_UNAUTHENTICATED, Server


@pytest.fixture
def selector():
    with selectors.DefaultSelector() as selector:
        yield selector
        for key in list(selector.get_map().values()):
            key.fileobj.close()


@pytest.fixture
def server(selector):
    return Server(selector, "127.0.0.1", 2)


@pytest.fixture
def serve(selector, server):
    """Let the server receive all pending messages, and decide."""

    def serve(now=0.0):
        while ready := selector.select(0.05):
            for key, _ in ready:
                key.data()
        server.tick(now)

    return serve


def connect(server):
    host, port, _ = server.address.split()
    return socket.create_connection((host, int(port)), 10)


def rank(server, number):
    channel = Channel(connect(server))
    channel.send_key(server.address.split()[2])
    channel.send(rank=number)
    return channel


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("text", [b"[" * 60_000 + b"\n", b"x" * 1_000_000, b'{"rank": 0}\n' * 5])
def test_a_stranger_ends_only_his_own_connection(server, serve, text):
    first = rank(server, 0)
    serve()
    with connect(server) as stranger:
        stranger.setblocking(False)
        stranger.send(text)
        serve()
        assert not is_open(stranger)
    second = rank(server, 1)
    serve()
    assert server.ranks == {0, 1}
    assert first.receive() == [{"beat": True}], "and no failure"
    first.close()
    second.close()


def test_strangers_who_only_wait_take_few_files(server, serve):
    with ExitStack() as stack:
        strangers = [stack.enter_context(connect(server)) for _ in range(MOST_UNAUTHENTICATED + 10)]
        serve()
        assert [is_open(each) for each in strangers] == [False] * 10 + [True] * MOST_UNAUTHENTICATED
        stack.enter_context(closing(rank(server, 1)))
        serve(5.0)
        serve(11.0)
        assert not any(map(is_open, strangers))
        assert server.ranks == {1}


def test_a_key_without_a_rank_that_exists(server, serve):
    channel = rank(server, 2)
    serve()
    assert server.ranks == set()
    assert channel.receive() is None
    channel.close()


@pytest.mark.parametrize(
    ("host", "bound"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("debian", "::"), ("elsewhere", "::"), ("127.0.0.2", "127.0.0.2")],
)
def test_the_network_that_is_listened_on(host, bound, monkeypatch):
    def found(name, *_, **__):
        if name == "elsewhere":
            return [(socket.AF_INET, None, 0, "", ("192.0.2.1", 0))]  # an address that RFC 5737 reserves, so no machine has it
        address = {"debian": "127.0.1.1", "localhost": "127.0.0.1"}.get(name, name)
        return [(socket.AF_INET, None, 0, "", (address, 0))]

    monkeypatch.setattr(server_module.socket, "getaddrinfo", found)
    with server_module.listen(host) as listening:
        address = listening.getsockname()[0]
    assert address == (bound if bound != "::" or socket.has_dualstack_ipv6() else "0.0.0.0")
