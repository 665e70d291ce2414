"""Layer-wise inference equals one forward pass over the whole graph, for any chunks and any number of ranks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ranks import outputs_of
from ranks.forked import Forked

from hoptrain.engine.features.quantized import codes_of, quantize
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models import GNN, inference
from hoptrain.trainers.models.inference import CHUNK_EDGES, EDGE_BYTES, chunks, device_for, edges_in, free_memory, layerwise_inference

NODES = np.array([199, 0, 5, 77])


def make_model(arch):
    torch.manual_seed(0)
    return GNN(arch, 7, 8, 3, 3, heads=2, norm="batch").eval()


def by_blocks(model, data):
    """Return the outputs computed from one mini-batch with all neighbours."""
    batch = NeighborSampler([-1] * 3).sample(data.graph, NODES).to("cpu")
    nodes = batch.node_ids.long()
    x = torch.from_numpy(data.x)
    x = x / x.sum(1, keepdim=True)
    return model(x[nodes], batch.blocks, torch.from_numpy(data.graph.in_degrees()).float()[nodes])


@pytest.mark.parametrize("arch", ["sage", "gat", "gcn", "gin"])
@pytest.mark.parametrize("most_edges", [50, 1 << 20])
def test_equals_full_blocks(dataset, arch, most_edges):
    model = make_model(arch)
    exact = layerwise_inference(model, dataset, NODES, normalize=True, device=torch.device("cpu"), chunk_edges=most_edges)
    torch.testing.assert_close(exact, by_blocks(model, dataset), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("features", ["float32", "uint8", "uint16", "bfloat16", "int8", "int4"])
def test_features_that_fit_are_read_from_a_copy(dataset, features, monkeypatch):
    """Features that fit are read from a copy, which is made in pieces, as stored; logits are bit-identical for every data type."""
    x = dataset.x
    if features.startswith("uint"):
        x = (200 * x).astype(features)
    elif features != "float32":
        x = quantize(x, features)
    data, model = replace(dataset, x=x), make_model("sage")
    options = {"normalize": False, "device": torch.device("cpu"), "chunk_edges": 50}
    each_chunk = layerwise_inference(model, data, NODES, **options)
    copied = []
    monkeypatch.setattr(inference, "GATHERED_BYTES", codes_of(x).nbytes // 3)
    monkeypatch.setattr(inference, "to_device", lambda rows, device: copied.append(len(rows)) or rows)
    num_bytes = codes_of(x).nbytes
    for free, wanted in ((4 * num_bytes - 1, 0), (4 * num_bytes, 0 if features == "uint16" else len(x))):
        copied.clear()
        assert torch.equal(layerwise_inference(model, data, NODES, free_bytes=free, **options), each_chunk)
        assert sum(copied) == wanted
    assert len(copied) > 2 or features == "uint16"


def test_no_nodes_no_logits(dataset):
    scores = layerwise_inference(make_model("sage"), dataset, np.empty(0, np.int64), normalize=False, device=torch.device("cpu"))
    assert scores.shape == (0, 3)


@pytest.mark.parametrize("most", [1, 60, 10_000])
def test_chunks_keep_order_and_bounds(graph, most):
    nodes = np.arange(graph.num_nodes)[::-1].copy()
    parts = list(chunks(graph.indptr, nodes, most))
    assert np.concatenate(parts).tolist() == nodes.tolist()
    assert all(len(part) == 1 or graph.in_degrees()[part].sum() + len(part) <= most for part in parts)


def test_a_layer_stays_on_a_device_that_holds_it():
    device, host = torch.device("cuda", 0), torch.device("cpu")
    assert [device_for(device, num_bytes, free=4000) for num_bytes in (1000, 1001)] == [device, host]
    assert device_for(host, 1 << 60, free=0) == host
    assert [edges_in(free) for free in (0, 16 * EDGE_BYTES * CHUNK_EDGES)] == [CHUNK_EDGES, 4 * CHUNK_EDGES]


def test_free_memory_counts_what_torch_keeps_for_later(monkeypatch):
    for name, found in {"mem_get_info": (3 << 30, 80 << 30), "memory_reserved": 2 << 30, "memory_allocated": 1 << 30}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, found=found: found)
    assert free_memory(torch.device("cuda", 0)) == 4 << 30
    assert free_memory(torch.device("cpu")) == 0


RANK = """
import sys
import numpy as np, torch
from hoptrain.engine import Dataset
from hoptrain.trainers.models import inference
from hoptrain.trainers.models.inference import layerwise_inference
from test_inference import NODES, make_model
folder, rank = sys.argv[1], int(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
inference.GATHERED_BYTES = 200  # a layer in some pieces, the last of which is ragged
mine = np.array_split(NODES, 2)[rank]
data = Dataset.open(f"{folder}/data")
scores = layerwise_inference(make_model("sage"), data, mine, normalize=True, device=torch.device("cpu"), rank=rank, world_size=2)
torch.save(scores, f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.usefixtures("forkserver")
def test_ranks_share_the_work(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    outputs_of([Forked(RANK, tmp_path, rank) for rank in range(2)], 110)
    together = torch.cat([torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)])
    torch.testing.assert_close(together, by_blocks(make_model("sage"), dataset), rtol=1e-4, atol=1e-5)
