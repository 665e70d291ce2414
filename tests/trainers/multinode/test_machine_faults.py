"""A fault on one of two machines only delays the run, or ends both machines within seconds with the machine's name and the cause.

First a process pauses, or a sampler process is killed while a machine sends slowly; then a fault ends the run. By default one run is
tested, on a partitioned graph. ``HOPTRAIN_FAULTS=N`` tests N runs with a replicated graph and N with a partitioned one, with three faults
each; HOPTRAIN_FAULTS_SEED draws others, HOPTRAIN_FAULTS_RECORD names a log file. With root rights, machines are network namespaces.
"""

import os
import random
import re
import signal
import time
from contextlib import contextmanager, nullcontext

import pytest
import torch
from ranks.on_machines import MAIN, START_S, digits_in_parts, ended, learnt, place, processes_in, send, start

from hoptrain.benchmarks.machines.namespaces import joined, lacking

RUNS = int(os.environ.get("HOPTRAIN_FAULTS", "1"))
SEED = int(os.environ.get("HOPTRAIN_FAULTS_SEED", "1"))
NAMED_S = 30
PROCESSES = {
    "rank": "trainers.cli",
    "comm": "multinode.comm_process",
    "filler": r"worker import main; main\(\) 0 ",
    "sampler": r"worker import main; main\(\) [1-9]",
    "watchdog": "watchdog.process",
    "machine": "",
}
LOST = "rank {rank} (has ended|was killed|is cut off: no message came from its machine for 10 s)"
STOPPED = r"was stopped \(SIGSTOP\)"
FATAL = {
    "machine cut off": "rank {rank} is cut off: no message came from its machine for 10 s",
    "rank KILL": LOST,
    "comm STOP": f"rank {{rank}} failed: InputError: the process that exchanges rows with other machines {STOPPED}",
    "machine KILL": LOST,
    "filler STOP": f"rank {{rank}} failed: InputError: the process that fetches rows of other machines {STOPPED}",
    "rank STOP": f"rank {{rank}} {STOPPED} and not continued for 10 s",
    "comm KILL": "rank {rank} failed: InputError: the process that exchanges rows with other machines was killed",
    "machine STOP": LOST,
    "filler KILL": "rank {rank} failed: .* was killed",
    "watchdog KILL": "rank {rank} ",
    "part CUT": "rank {rank} failed: .* it was (removed or )?cut off while it was in use; copy it again",
}
AT_START = {
    "other parts": "has positions of nodes with checksum .* all machines need the same",
    "other graph": "rank 1 on .* has a graph that is (replicated|partitioned), but rank 0 on .* (replicated|partitioned): all machines need the same",
    "other version": "rank 1 on .* has hoptrain 9.9, but rank 0 on .*: all machines need the same",
    "no part": r"rank 1 on .* has no part-1 in .*: it is machine 1 of 2; copy it there",
}
SMALL = ("--data.partitions=parts", "--data.feature_cache=150KiB", "--data.sampler.fanouts=[4,3]", "--data.batch_size=16")
ENDLESS, SHORT_RUN = (*SMALL, "--trainer.max_epochs=5000"), (*SMALL, "--trainer.max_epochs=40")
GRAPHS = ("replicated", "partitioned")
PLAYED = GRAPHS if "HOPTRAIN_FAULTS" in os.environ else ("partitioned",)  # features are exchanged in the same way with a replicated graph
pytestmark = pytest.mark.timeout(3 * START_S)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Return the digits in two partitions: with a replicated graph, a partitioned graph, and other partition bounds."""
    cuts = {graph: ("range", graph) for graph in GRAPHS} | {f"other {graph}": ("stream", graph) for graph in GRAPHS}
    return {name: digits_in_parts(tmp_path_factory.mktemp("digits"), *cut) for name, cut in cuts.items()}


def network():
    return joined(2) if not lacking() else nullcontext()


def record(*facts):
    if "HOPTRAIN_FAULTS_RECORD" in os.environ:
        with open(os.environ["HOPTRAIN_FAULTS_RECORD"], "a") as file:
            print(*facts, sep="\t", file=file)


def victims(folder, which):
    """Return the processes of a machine."""
    return [pid for pid, command in processes_in(folder).items() if re.search(PROCESSES[which], command)]


def wait_until_trained(folder, ranks):
    deadline = time.monotonic() + START_S
    while not (folder / "runs/version_0/checkpoints/last.ckpt").exists():
        assert time.monotonic() < deadline
        assert all(rank.poll() is None for rank in ranks), [rank.communicate() for rank in ranks]
        time.sleep(0.05)


def disturb(folder, net, draw):
    """Slow down a machine and pause a process for a moment, or kill a sampler process, which is replaced.

    Return a description of the fault.
    """
    machine, who = draw.randrange(2), draw.choice(["rank", "comm", "filler", "machine", "sampler"])
    if net:
        net.slow(machine, 500)
    pids = victims(folder / f"m{machine}", who)
    send(pids, signal.SIGKILL if who == "sampler" else signal.SIGSTOP)
    time.sleep(draw.uniform(0.5, 3))
    send(pids, signal.SIGCONT)
    if net:
        net.slow(machine, 1_000_000)
    return f"{who} of machine {machine} {'killed' if who == 'sampler' else 'paused'}" + (", slowed" if net else "")


@contextmanager
def running(folder, parts, *options):
    place(folder, parts)
    with network() as net:
        yield net, start(folder, ["m0", "m1"], f"--trainer.default_root_dir={folder / 'runs'}", *options, network=net)


@pytest.mark.parametrize("graph", PLAYED)
@pytest.mark.parametrize("number", range(RUNS))
def test_a_machine_that_is_struck_ends_all_with_its_name(tmp_path, parts, number, graph):
    draw, name = random.Random(1000 * SEED + number), list(FATAL)[number % len(FATAL)]
    (which, what), machine = name.split(" ", 1), draw.randrange(2)
    with running(tmp_path, parts[graph], *ENDLESS) as (net, ranks):
        wait_until_trained(tmp_path, ranks)
        done = disturb(tmp_path, net, draw)
        time.sleep(draw.uniform(0, 2))
        assert all(rank.poll() is None for rank in ranks), (done, [rank.communicate() for rank in ranks])
        pids, begin = victims(tmp_path / f"m{machine}", which) if which in PROCESSES else [], time.monotonic()
        if what == "cut off":
            if net is None:
                pytest.skip(f"no cable can be pulled: {lacking()}")
            net.cut(machine)
        elif what == "CUT":
            os.truncate(tmp_path / f"m{machine}" / "parts" / f"part-{machine}" / "x.npy", 300)
        else:
            assert pids
            send(pids, getattr(signal, f"SIG{what}"))
        other = ranks[1 - machine].communicate(timeout=NAMED_S)[1]
        seconds = time.monotonic() - begin
        if what == "STOP":
            send(pids, signal.SIGCONT)
        [(_, own)] = ended(tmp_path, [ranks[machine]], NAMED_S)
    line = (re.findall(r"^hoptrain: .*", other, re.MULTILINE) or [""])[-1]
    record(graph, number, name, machine, done, f"{seconds:.1f}", line)
    assert re.search(FATAL[name].format(rank=machine), line), (line, own[-1500:])
    assert torch.load(tmp_path / "runs/version_0/checkpoints/last.ckpt", weights_only=True)["epoch"] >= 0


@pytest.mark.usefixtures("forkserver")
@pytest.mark.parametrize("graph", PLAYED)
@pytest.mark.parametrize("number", range(RUNS // 5 or 1))
def test_a_machine_that_does_not_fit_is_named(tmp_path, parts, number, graph):
    name, options = list(AT_START)[number % len(AT_START)], {"forked": MAIN}
    if name == "other version":
        options.clear()  # the version is read at the start of a process
        (tmp_path / "newer" / "hoptrain-9.9.dist-info").mkdir(parents=True)
        (tmp_path / "newer" / "hoptrain-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: hoptrain\nVersion: 9.9\n")
        options["variables"] = {"m1": {"PYTHONPATH": os.pathsep.join([str(tmp_path / "newer"), os.environ.get("PYTHONPATH", "")])}}
    begin = time.monotonic()
    first, second = (parts[graph] / f"m{machine}" for machine in range(2))
    [other] = set(GRAPHS) - {graph}
    seconds = {"other parts": parts[f"other {graph}"] / "m1", "other graph": parts[other] / "m1", "no part": first}
    place(tmp_path, (first, seconds.get(name, second)))
    ranks = start(tmp_path, ["m0", "m1"], f"--trainer.default_root_dir={tmp_path / 'runs'}", *ENDLESS, **options)
    outputs = ended(tmp_path, ranks, START_S)
    lines = [(re.findall(r"^hoptrain: .*", errors, re.MULTILINE) or [""])[-1] for _, errors in outputs]
    record(graph, number, name, 1, "", f"{time.monotonic() - begin:.1f}", lines[0])
    for line in lines:
        assert re.search(AT_START[name], line), outputs


@pytest.mark.skipif(RUNS == 1, reason="more runs: HOPTRAIN_FAULTS=10")
@pytest.mark.parametrize("graph", PLAYED)
@pytest.mark.parametrize("number", range(RUNS // 10 or 1))
def test_a_run_that_is_disturbed_learns_the_same(tmp_path, parts, undisturbed, number, graph):
    draw = random.Random(1000 * SEED + number)
    with running(tmp_path, parts[graph], *SHORT_RUN) as (net, ranks):
        wait_until_trained(tmp_path, ranks)
        done = [disturb(tmp_path, net, draw) for _ in range(3)]
        outputs = ended(tmp_path, ranks, START_S)
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert learnt(tmp_path / "runs") == undisturbed[graph]
    record(graph, number, "disturbed", "", "; ".join(done), "", "")


@pytest.fixture(scope="module")
def undisturbed(parts, tmp_path_factory):
    """Return the weights of an undisturbed run for each graph. Logits of a partitioned graph are summed in another order."""
    found = {}
    for graph in PLAYED:
        folder = tmp_path_factory.mktemp(f"undisturbed-{graph}")
        with running(folder, parts[graph], *SHORT_RUN) as (_, ranks):
            ended(folder, ranks, START_S)
        found[graph] = learnt(folder / "runs")
    weights = [weights for weights, _ in found.values()]
    assert all(each == weights[0] for each in weights)
    return found
