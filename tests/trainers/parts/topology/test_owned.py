"""Exact evaluation on a graph in parts gives what one machine gives; ranks are threads, two for each machine."""

import dataclasses

import numpy as np
import pytest
import torch
from ranks import in_threads

from hoptrain import GNN, exact_logits, load_dataset
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import open_partition, write_partition
from hoptrain.engine.partition.rows import Links, PartedRows
from hoptrain.trainers.models import inference

MACHINES, EACH = 2, 2


@pytest.fixture(autouse=True)
def _one_thread_a_rank():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("asked", ["some for each rank", "none for some"])
@pytest.mark.parametrize("arch", ["sage", "gcn"])
def test_scores_are_those_of_one_machine(tmp_path, monkeypatch, arch, asked):
    data = load_dataset("digits-knn")
    write_partition(data, tmp_path / "parts", MACHINES, "stream", graph="parted")
    torch.manual_seed(1)
    model = GNN(arch, data.num_features, 8, data.num_classes, num_layers=3).eval()
    options = {"normalize": False, "device": torch.device("cpu")}
    of_rank = np.array_split(np.random.default_rng(2).permutation(data.graph.num_nodes)[:300], MACHINES * EACH)
    if asked == "none for some":
        of_rank = [of_rank[0], *(own[:0] for own in of_rank[1:])]
    sizes = iter([700] * 99 + [3000] * 999)  # chunks, of which ranks have unequal numbers
    chunks = inference.chunks
    monkeypatch.setattr(inference, "chunks", lambda indptr, nodes: chunks(indptr, nodes, next(sizes)))
    exchanges = LocalExchange.among(MACHINES * EACH)

    def score(rank):
        partition = open_partition(tmp_path / "parts")
        rows = PartedRows(partition, Links(machines=None, ranks=lambda: exchanges[rank]))
        rows.settle([[0, 1], [2, 3]], rank // EACH)
        try:
            mine = dataclasses.replace(partition.data, x=rows, validate=False)
            return exact_logits(model, mine, of_rank[rank], rank=rank, world_size=MACHINES * EACH, **options)
        except BaseException:
            exchanges[rank].abort()
            raise

    found = in_threads([lambda rank=rank: score(rank) for rank in range(MACHINES * EACH)])
    monkeypatch.undo()
    for own, nodes in zip(found, of_rank, strict=True):
        torch.testing.assert_close(own, exact_logits(model, data, nodes, **options))
