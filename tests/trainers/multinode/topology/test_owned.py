"""Full-neighbour evaluation on partitions equals that of one machine, and a rank holds only its shard. Ranks are threads, two per machine."""

import threading
import weakref
from collections import defaultdict
from threading import current_thread

import numpy as np
import pytest
import torch
from ranks import in_threads

from hoptrain import GNN, layerwise_inference, load_dataset
from hoptrain.engine import Dataset
from hoptrain.engine.features.quantized import codes_of
from hoptrain.engine.partition.exchange import LocalExchange
from hoptrain.engine.partition.folder import write_partition
from hoptrain.engine.partition.rows import CommGroups, open_partitioned
from hoptrain.trainers.models import inference
from hoptrain.trainers.multinode.owned import Computed

MACHINES, EACH = 2, 2
RANKS, WIDTH = MACHINES * EACH, 13
OPTIONS = {"normalize": False, "device": torch.device("cpu")}


@pytest.fixture(autouse=True)
def _one_thread_a_rank():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return the digits with float32 features and with quantised ones."""
    folder = tmp_path_factory.mktemp("digits")
    load_dataset("digits-knn").save(folder / "int4", features="int4")
    return {"stored": load_dataset("digits-knn"), "int4": Dataset.open(folder / "int4")}


def model_of(arch, data):
    torch.manual_seed(1)
    return GNN(arch, data.num_features, WIDTH, data.num_classes, num_layers=3).eval()


def scores_of_one_machine(model, data, of_rank, monkeypatch):
    """Return the logits of ranks on one machine, which share all features."""
    parts, barrier = [None] * RANKS, threading.Barrier(RANKS, timeout=60)

    def gather(part, share, total, device, free):
        parts[int(current_thread().name)] = part
        barrier.wait()
        whole = torch.cat(parts)[:total]
        barrier.wait()
        return whole

    monkeypatch.setattr(inference, "gather_parts", gather)
    ranks = [
        lambda rank=rank: layerwise_inference(model, data, of_rank[rank], rank=rank, world_size=RANKS, **OPTIONS) for rank in range(RANKS)
    ]
    return in_threads(ranks)


def scores_of_machines(model, folder, of_rank):
    """Return the logits of each rank, with partitions on several machines."""
    exchanges = LocalExchange.among(RANKS)

    def score(rank):
        data = open_partitioned(folder, CommGroups(machines=None, ranks=lambda: exchanges[rank]))
        codes_of(data.x).settle([[0, 1], [2, 3]], rank // EACH)
        try:
            return layerwise_inference(model, data, of_rank[rank], rank=rank, world_size=RANKS, **OPTIONS)
        except BaseException:
            exchanges[rank].abort()
            raise

    return in_threads([lambda rank=rank: score(rank) for rank in range(RANKS)])


@pytest.mark.parametrize("asked", ["some for each rank", "none for some"])
@pytest.mark.parametrize(("arch", "graph", "features"), [
    ("sage", "partitioned", "stored"), ("gcn", "partitioned", "stored"), ("sage", "replicated", "stored"), ("gcn", "replicated", "int4"),
    ("sage", "partitioned", "int4"),
])  # fmt: skip
def test_scores_are_those_of_one_machine(tmp_path, monkeypatch, plain, arch, graph, features, asked):
    data = plain[features]
    write_partition(data, tmp_path / "parts", MACHINES, "stream", graph=graph)
    model = model_of(arch, data)
    of_rank = np.array_split(np.random.default_rng(2).permutation(data.graph.num_nodes)[:300], RANKS)
    if asked == "none for some":
        of_rank = [of_rank[0], *(own[:0] for own in of_rank[1:])]
    sizes, chunks = {}, inference.chunks  # by rank, since ranks have different numbers of chunks

    def unequal(indptr, nodes, most):
        rank = current_thread().name
        sizes[rank] = sizes.get(rank, 300 + 100 * int(rank)) + 50
        return chunks(indptr, nodes, sizes[rank])

    monkeypatch.setattr(inference, "chunks", unequal)
    found = scores_of_machines(model, tmp_path / "parts", of_rank)
    sizes.clear()
    expected = scores_of_one_machine(model, data, of_rank, monkeypatch)
    for own, one in zip(found, expected, strict=True):
        torch.testing.assert_close(own, one)
        if graph == "replicated":  # each rank has the same nodes as on one machine, so sums are equal
            assert torch.equal(own, one)


@pytest.mark.parametrize("graph", ["replicated", "partitioned"])
def test_a_rank_holds_its_share_of_a_layer_and_a_chunk(tmp_path, monkeypatch, plain, graph):
    """During inference a rank holds only its shard of a layer's rows and the inputs of a few chunks, computed or fetched."""
    data, chunk = plain["stored"], 150
    write_partition(data, tmp_path / "parts", MACHINES, "range", graph=graph)
    model, number = model_of("sage", data), data.graph.num_nodes
    chunks, layer, start, take = inference.chunks, model.layer, Computed.__init__, Computed.__getitem__
    seen, held, shares = defaultdict(list), defaultdict(list), defaultdict(list)  # for each rank
    monkeypatch.setattr(inference, "chunks", lambda indptr, nodes, most: chunks(indptr, nodes, chunk))

    def started(self, own, *others):
        start(self, own, *others)
        seen[current_thread().name].append(weakref.ref(self._own))
        shares[current_thread().name].append(len(self._own))

    def taken(self, rows):
        found = take(self, rows)
        seen[current_thread().name].append(weakref.ref(found))
        return found

    def counted(*inputs):
        rank = current_thread().name
        held[rank].append(sum(len(rows) for each in seen[rank] if (rows := each()) is not None))
        return layer(*inputs)

    monkeypatch.setattr(Computed, "__init__", started)
    monkeypatch.setattr(Computed, "__getitem__", taken)
    monkeypatch.setattr(model, "layer", counted)
    scores_of_machines(model, tmp_path / "parts", np.array_split(np.arange(number), RANKS))
    for rank in map(str, range(RANKS)):
        assert shares[rank][0] < max(held[rank]) <= shares[rank][0] + 4 * chunk < number
    assert [sum(each) for each in zip(*shares.values(), strict=True)] == [number] * len(shares["0"])  # no row is on two ranks
