"""Ranks started one by one: a rank that waits for a missing rank fails soon, with one line.

``HOPTRAIN_FAULTS=1`` also lets rank 0 fail (``make test-faults``).
"""

import os
import re
import socket
import threading

import pytest
from ranks.forked import Forked
from ranks.on_machines import EACH_FAULT, START_S, digits_in_parts, ended, free_port, place, start

from hoptrain.engine import InputError
from hoptrain.trainers.callbacks.rendezvous import serve, wait_for_ranks

FIT = """
import sys
from hoptrain.trainers.callbacks import rendezvous
from hoptrain.trainers.cli import main
rendezvous.RENDEZVOUS_S = 6.0
sys.exit(main())
"""


def call(ranks, world_size, port):
    """Run each rank in a thread, and return its result or error; ``ranks`` has the timeout of each."""
    heard, stores = {}, []

    def one(rank, patience_s):
        try:
            stores.append(wait_for_ranks("127.0.0.1", port, rank, world_size, patience_s))
            heard[rank] = ""
        except InputError as error:
            heard[rank] = str(error)

    threads = [threading.Thread(target=one, args=each) for each in ranks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard


def test_the_rendezvous_of_all_ranks():
    assert call({0: 60, 1: 60, 2: 60}, 3, free_port()) == dict.fromkeys(range(3), "")


def test_all_hear_who_has_not_come_of_the_first_whose_time_is_over():
    heard = call({0: 1, 1: 60}, 4, free_port())
    line = "rank 2, 3 of 4 has not arrived at the rendezvous within 1 s: it was not started, or it has failed"
    assert heard.keys() == {0, 1}
    assert all(each.startswith(line) for each in heard.values()), heard


def test_rank_0_that_does_not_come_is_named_with_the_place_where_it_should_be():
    port = free_port()
    assert call({1: 2}, 2, port)[1].startswith(
        f"rank 0 of 2 has not arrived at 127.0.0.1:{port} (MASTER_ADDR and MASTER_PORT) within 2 s: "
    )


def test_a_run_that_is_prepared_twice_has_one_store():
    port = free_port()
    store = serve("127.0.0.1", port, 1, 5.0)
    assert serve("127.0.0.1", port, 1, 5.0) is store
    del store
    serve("127.0.0.1", port, 1, 5.0)  # the port is free once the store is unreferenced


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        assert call({0: 5}, 2, port)[0].startswith(f"rank 0 cannot listen at port {port} (")


@pytest.mark.timeout(2 * START_S)
@pytest.mark.usefixtures("forkserver")
@pytest.mark.parametrize("failing", [pytest.param(0, marks=EACH_FAULT), 1])
def test_a_rank_that_fails_before_the_rendezvous_ends_the_other(tmp_path, tmp_path_factory, failing):
    """If a rank fails before the rendezvous, here since its machine lacks the partitions, the other rank ends with one line."""
    place(tmp_path, digits_in_parts(tmp_path_factory.mktemp("digits")))
    (tmp_path / f"m{failing}" / "parts").rename(tmp_path / f"m{failing}" / "elsewhere")
    options = ("--data.partitions=parts", f"--trainer.default_root_dir={tmp_path / 'runs'}")
    ranks = start(tmp_path, ["m0", "m1"], *options, forked=FIT)
    outputs = ended(tmp_path, ranks, START_S)
    lines = [(re.findall(r"^hoptrain: .*", errors, re.MULTILINE) or [""])[-1] for _, errors in outputs]
    assert re.search("parts holds no partitioned data set", lines[failing]), outputs
    assert lines[1 - failing].startswith(f"hoptrain: rank {failing} of 2 has not arrived "), outputs
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert "Traceback" not in outputs[1 - failing][1]


SCRIPT = """
from pytorch_lightning import Trainer
from hoptrain import NodeDataModule, NeighborSampler, NodeClassifier
from hoptrain.trainers.callbacks import rendezvous
rendezvous.RENDEZVOUS_S = {seconds}
data = NodeDataModule("digits-knn", NeighborSampler([4, 3]), partitions="parts", num_workers=0, seed=1)
task = NodeClassifier(data.num_features, data.num_classes, num_layers=2)
trainer = Trainer(
    max_steps=2, limit_val_batches=1, accelerator="cpu", num_nodes=2, devices=1, use_distributed_sampler=False, logger=False, enable_checkpointing=False
)
trainer.fit(task, data)
"""


@pytest.mark.timeout(2 * START_S)
@pytest.mark.usefixtures("forkserver")
@pytest.mark.parametrize(("present", "seconds"), [(1, 2.0), (2, 100.0)])
def test_a_script_with_lightning_s_trainer_has_the_rendezvous_too(tmp_path, tmp_path_factory, present, seconds):
    place(tmp_path, digits_in_parts(tmp_path_factory.mktemp("digits")))
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    own = [{"NODE_RANK": str(rank), "HOPTRAIN_MACHINE": f"m{rank}"} for rank in range(present)]
    script = SCRIPT.format(seconds=seconds)
    ranks = [Forked(script, cwd=tmp_path / f"m{rank}", env=shared | own[rank]) for rank in range(present)]
    outputs = ended(tmp_path, ranks, START_S)
    if present == 2:
        assert [rank.returncode for rank in ranks] == [0, 0], outputs
    else:
        assert "InputError: rank 1 of 2 has not arrived at the rendezvous within 2 s: it was not started, or it has failed" in outputs[0][1]
