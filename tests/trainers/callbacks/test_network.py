"""Network settings are checked before any rank starts, and ranks of one machine listen on loopback alone."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases.mistakes import Mistake, each_of, refused
from ranks.on_machines import free_port
from torch import distributed

from hoptrain.trainers.callbacks import network
from hoptrain.trainers.callbacks.network import check_files, check_interfaces, check_port, is_one_machine, prepare_network
from hoptrain.trainers.callbacks.rendezvous import serve

VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that variables set meanwhile are restored
        monkeypatch.delenv(name)


@pytest.mark.parametrize("port", [None, "1", "29500", "65535", "029500"])
def test_a_port(port):
    check_port(port)


def test_an_interface_that_is_none():
    with refused("'lo,nosuch0'", "GLOO_SOCKET_IFNAME network interfaces machine", "lo, give unset"):
        check_interfaces("lo,nosuch0")
    for value in ("lo", "", None):
        check_interfaces(value)


def test_too_few_files(monkeypatch):
    monkeypatch.setattr(network.resource, "getrlimit", lambda _: (32, 1024))
    with refused("open files is 32", "limit 2 ranks 72", "raise 'ulimit -n 72'"):
        check_files(2)
    monkeypatch.setattr(network.resource, "getrlimit", lambda _: (72, 1024))
    check_files(2)


@pytest.mark.parametrize(
    ("num_nodes", "world_size", "here", "is_one"), [(1, 2, None, True), (1, 2, "2", True), (1, 4, "2", False), (2, 2, None, False)]
)
def test_ranks_of_one_machine_connect_by_its_loopback(monkeypatch, num_nodes, world_size, here, is_one):
    if here:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    trainer = SimpleNamespace(num_nodes=num_nodes, world_size=world_size)
    assert is_one_machine(trainer) == is_one
    prepare_network(trainer)
    expected = ("127.0.0.1", "lo") if is_one else (None, None)
    assert (os.environ.get("MASTER_ADDR"), os.environ.get("GLOO_SOCKET_IFNAME")) == expected


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", (other := socket.if_nameindex()[-1][1]))
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    prepare_network(SimpleNamespace(num_nodes=1, world_size=2))
    assert (os.environ["MASTER_ADDR"], os.environ["GLOO_SOCKET_IFNAME"]) == ("localhost", other)


def listeners():
    """Return the addresses and ports at which this process listens, in the format of the kernel."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(entry))
        except FileNotFoundError:
            continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {tuple(row[1].split(":")) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


def test_a_process_group_listens_on_the_loopback_alone(monkeypatch):
    """A process group on one machine listens on the loopback only: torch finds the existing store, and gloo uses the interface."""
    port, before = free_port(), listeners()
    prepare_network(SimpleNamespace(num_nodes=1, world_size=2))
    store = serve("127.0.0.1", port, 1, 20.0)
    for name, value in {"MASTER_PORT": str(port), "WORLD_SIZE": "1", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    distributed.init_process_group("gloo")
    try:
        found = listeners() - before
        assert {address for address, _ in found} == {"0100007F"}  # 127.0.0.1
        assert f"{port:04X}" in {each for _, each in found}
    finally:
        distributed.destroy_process_group()
        del store


def prepare_with(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    prepare_network(SimpleNamespace(num_nodes=1, world_size=2))


MISTAKES = {
    **{
        f"the port {name}": Mistake(
            lambda port=port: check_port(port), value=f"'{port}'", rule="MASTER_PORT port [1, 65535]", remedy="free unset one machine"
        )
        for name, port in (
            ("above the last", "70000"),
            ("just above the last", "65536"),
            ("of 5000 digits", "9" * 5000),
            ("0", "0"),
            ("-1", "-1"),
            ("1.5", "1.5"),
            ("as a word", "abc"),
            ("of no letters", ""),
            ("behind a blank", " 80"),
            ("as a raised digit", "²"),
        )
    },
    "a port in the environment": Mistake(
        lambda monkeypatch: prepare_with(monkeypatch, "MASTER_PORT", "abc"),
        value="'abc'",
        rule="MASTER_PORT port [1, 65535]",
        remedy="free unset one machine",
    ),
    "an interface in the environment": Mistake(
        lambda monkeypatch: prepare_with(monkeypatch, "GLOO_SOCKET_IFNAME", "nosuch0"),
        value="'nosuch0'",
        rule="GLOO_SOCKET_IFNAME network interfaces machine",
        remedy="give unset",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
