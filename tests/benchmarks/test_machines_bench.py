"""The benchmark of several machines counts the fewest possible bytes, and fewer bytes are sent with a cache than without."""

import json
import subprocess
import sys

import pytest

from hoptrain.benchmarks.machines.memory import _most
from hoptrain.benchmarks.machines.namespaces import joined, lacking
from hoptrain.benchmarks.machines.what_if_machines import gradients_sent, predict
from hoptrain.trainers.cli import main


def test_counts(tmp_path):
    options = ("--quick", "--only", "counts", "--scale", "0.0005", "--machines", "2", "--methods", "range", "--batch-size", "4")
    assert main(["bench", "machines", *options, "--shares", "0", "0.2", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    whole, partitioned = found["records"][:2], found["records"][2:]
    for none, cached in (whole, partitioned):
        assert (
            none["rounds"] == none["windows"] + 2 + 2 * 2 * none["sampled_windows"]
        )  # one more in each of the two epochs; two for each of the two hops
        assert cached["sent"] < none["sent"] < none["unplanned"]
    none, cached = whole
    assert none["sent"] == none["minimum"] + 2 * none["rounds"] * 8
    assert none["sampled_windows"] == none["samples"] == 0
    assert partitioned[0]["samples"] > 0
    assert [record["unplanned"] - record["samples"] for record in partitioned] == [none["unplanned"]] * 2
    assert partitioned[0]["sampled_windows"] == 2
    batches = none["steps"] * 4
    of_round, of_question, of_answer, of_batch = 8, 16, 32, 32
    heads = (
        of_round * 2 * partitioned[0]["rounds"]
        + 2 * partitioned[0]["sampled_windows"] * 2 * (of_question + of_answer)
        + 2 * batches * of_batch
    )
    assert partitioned[0]["sent"] == partitioned[0]["minimum"] + heads
    assert found["summary"]["bytes_over_minimum"] < 1.02
    for record in found["records"]:
        assert record["optimum"] <= record["sent"] < 1.2 * record["optimum"]
    assert found["summary"]["bytes_over_optimum"] == max(record["sent"] / record["optimum"] for record in found["records"])
    assert found["summary"]["bytes_saved_by_cache"] == partitioned[1]["unplanned"] / partitioned[1]["sent"]


def test_codes_send_a_quarter(tmp_path):
    options = (
        "--quick",
        "--only",
        "counts",
        "--scale",
        "0.0005",
        "--machines",
        "2",
        "--methods",
        "range",
        "--batch-size",
        "4",
        "--shares",
        "0",
    )
    assert main(["bench", "machines", *options, "--features", "as-stored", "int8", "--out", str(tmp_path)]) == 0
    numbers, _, codes, _ = json.loads((tmp_path / "results.json").read_text())["records"]
    assert (numbers["features"], codes["features"]) == ("float32", "int8")
    assert numbers["unplanned"] / codes["unplanned"] == (4 * 100 + 4) / (100 + 4)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("--graphs", "digits-knn"),
            "graphs has digits-knn: memory is compared with a small data set of the same kind; name a synthetic:NAME data set",
        ),
        (("--features", "int8"), "features are ['int8']: memory is measured with the stored features; leave --features out"),
        (("--cache-mib", "0"), "cache-mib is 0: must be at least 1 MiB; give 1 or more"),
    ],
)
def test_what_memory_is_not_measured_of(tmp_path, capsys, options, line):
    assert main(["bench", "machines", "--quick", "--only", "memory", "--scale", "0.0005", *options, "--out", str(tmp_path)]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.timeout(400)  # trains on two machines several times
def test_memory_beside_the_share(tmp_path):
    """The measured memory is at least half the size of a machine's files, and is divided by their size plus that of the cache."""
    options = ("--quick", "--only", "memory", "--scale", "0.05", "--topologies", "partitioned", "--methods", "range", "--batch-size", "64")
    assert main(["bench", "machines", *options, "--cache-mib", "16", "--fanouts", "10", "5", "--out", str(tmp_path)]) == 0
    [record] = json.loads((tmp_path / "results.json").read_text())["records"]
    assert record["outcome"] == "ended"
    assert record["share"] > 0.05 * 2_449_029 * 100 * 4 / 2  # a machine has at least half of the features
    assert record["beyond"] > 0.5 * record["share"]
    assert record["memory_over_share"] == record["beyond"] / (record["share"] + (16 << 20))


@pytest.mark.parametrize(
    ("sent", "mbit", "expected"),
    [
        (0.0, 8.0, 1.0 + 3.00504),  # the gradients' 3 MB with headers
        (1e6, 8.0, 4.00504 + 3.00504 / 4.00504),  # rows cost nothing while the step computes
        (4.00504e6, 8.0, 4.00504 + 3.00504),  # rows take as long as the whole step, so the network is always busy
        (9e6, 8.0, 9.0 + 3.00504),  # the network limits the speed
        (9e6, 8e3, 1.00300504 + 0.009 * 0.00300504 / 1.00300504),
    ],
)
def test_a_predicted_step(sent, mbit, expected):
    gradients = gradients_sent(2_000_000, 4)
    assert gradients == 3e6 + 12 * 420
    assert predict(1.0, sent=sent, gradients=gradients, mbit=mbit) == pytest.approx(expected)


def test_bad_input(tmp_path, capsys):
    assert main(["bench", "machines", "--machines", "3", "--out", str(tmp_path)]) == 2
    assert "machines are [3]: 4 ranks are distributed over 2 or 4 machines; give 2, 4 or both" in capsys.readouterr().err


def test_a_rate_is_a_number_of_megabits(tmp_path, capsys):
    assert main(["bench", "machines", "--rate-mbit", "0", "--out", str(tmp_path)]) == 2
    assert "rate-mbit is 0: must be at least 1 Mbit/s; give 1 or more" in capsys.readouterr().err


def test_missing_namespaces_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("hoptrain.benchmarks.machines.namespaces.os.geteuid", lambda: 1000)
    assert main(["bench", "machines", "--quick", "--scale", "0.0005", "--only", "wire", "--out", str(tmp_path)]) == 0
    assert "wire: skipped, since network namespaces cannot be created: this user is not root" in capsys.readouterr().err
    assert json.loads((tmp_path / "results.json").read_text())["records"] == []


LISTEN = "import socket; s = socket.create_server(('', 7000)); print(flush=True); c = s.accept()[0]; print(sum(map(len, iter(lambda: c.recv(1 << 16), b''))))"
SEND = "import socket; s = socket.create_connection(('{0}', 7000), 5); s.sendall(bytes(1 << 20)); s.close()"


@pytest.mark.skipif(bool(lacking()), reason=f"no network namespaces: {lacking()}")
def test_machines_in_namespaces_send_what_is_counted_until_one_is_cut_off():
    with joined(2) as network:
        first, second = ([*network.inside(machine), sys.executable, "-c"] for machine in range(2))
        with subprocess.Popen([*first, LISTEN], stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout.readline() == "\n"
            before = network.sent()
            subprocess.run([*second, SEND.format(network.addresses[0])], check=True, timeout=30)
            assert int(listener.communicate(timeout=30)[0]) == 1 << 20
        sent = [after - earlier for after, earlier in zip(network.sent(), before, strict=True)]
        assert 1 << 20 < sent[1] < 1.1 * (1 << 20)
        assert sent[0] < 100_000
        network.cut(1)
        assert subprocess.run([*second, SEND.format(network.addresses[0])], check=False, capture_output=True, timeout=30).returncode == 1
    assert lacking() == ""


def test_a_single_look_does_not_count():
    """The benchmark ignores a single large measurement, since a shared page may count twice if a process ends in between."""
    assert _most([3, 5, 5, 90, 5, 4, 5]) == 5
    assert _most([3, 7]) == 5
    assert _most([]) == 0
