"""HeteroMiniBatch as the objects of PyG and DGL: edges are those of the user's numbers, hop by hop."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.utils import trim_to_layer

from hoptrain.engine import HeteroDataset
from hoptrain.engine.hetero_graph import HeteroGraph
from hoptrain.samplers import HeteroSampler, SampleLoader
from hoptrain.samplers.batch.dgl_compat import import_dgl

NUM = {"a": 50, "b": 30, "c": 20}
TRIPLES = [("a", "r", "a"), ("b", "r", "a"), ("a", "s", "b"), ("c", "r", "b")]
RNG = np.random.default_rng(0)
EDGES = {r: RNG.integers(0, [[NUM[r[0]]], [NUM[r[2]]]], (2, 300)) for r in TRIPLES}
GRAPH = HeteroGraph.from_edges(NUM, {relation: tuple(ends) for relation, ends in EDGES.items()})
X = {"b": RNG.random((30, 4)).astype(np.float32), "c": RNG.random((20, 2)).astype(np.float32)}


def loaded(sampler):
    data = HeteroDataset(graph=GRAPH, seed_type="a", x=X, y=np.arange(50), splits={"train": np.arange(9)})
    return next(iter(SampleLoader(data, sampler, batch_size=9)))


@pytest.mark.parametrize("expand", ["all", "new"])
def test_pyg_has_the_users_edges(expand):
    batch = loaded(HeteroSampler([3, 2], "a", expand=expand))
    data = batch.to_pyg()
    assert isinstance(data, HeteroData)
    assert data.validate()
    for relation in TRIPLES:
        store, (source, _, destination) = data[relation], relation
        src, dst = store.edge_index
        assert torch.stack([data[source].n_id[src], data[destination].n_id[dst]]).tolist() == EDGES[relation][:, store.e_id].tolist()
        assert sum(store.num_sampled_edges) == len(store.e_id)
        assert len(store.e_id.unique()) == len(store.e_id), "an edge of several hops stands there once"
    assert (data["a"].batch_size, data["a"].n_id[:9].tolist(), data["a"].y.tolist()) == (9, *[batch.seeds.tolist()] * 2)
    assert "input_id" not in data["a"], "PyG means places in the list that a loader was given"
    assert torch.equal(data["b"].x, torch.from_numpy(X["b"][batch.node_ids["b"]]))
    assert {name: sum(counts) for name, counts in data.num_sampled_nodes_dict.items()} == {n: len(i) for n, i in batch.node_ids.items()}
    assert data.num_sampled_nodes_dict["b"][0] == 0
    assert "batch_size" not in data["b"]


def test_pyg_trims_nested_batches_to_layers():
    """By the numbers of each hop, of which the second layer is left the first one's edges."""
    data = loaded(HeteroSampler([3, 2], "a", expand="new")).to_pyg()
    x = {name: ids[:, None].float() for name, ids in data.n_id_dict.items()}
    x, edge_index, _ = trim_to_layer(1, data.num_sampled_nodes_dict, data.num_sampled_edges_dict, x, data.edge_index_dict)
    inner = loaded(HeteroSampler([3, 2], "a", expand="new")).blocks[-1]
    for relation, block in inner.items():
        assert edge_index[relation].tolist() == block.edge_index().tolist()
        assert len(x[relation[0]]) == block.num_src


def test_several_types_of_seeds():
    data = HeteroSampler([2]).sample(GRAPH, {"b": [1, 0], "a": [3]}).to_pyg()
    assert (data["a"].batch_size, data["b"].batch_size) == (1, 2)
    assert data["b"].n_id[: data["b"].batch_size].tolist() == [1, 0]


def test_draws_with_replacement_stay():
    batch = HeteroSampler([5, 4], "a", replace=True).sample(GRAPH, np.arange(9))
    assert sum(len(store.e_id) for store in batch.to_pyg().edge_stores) == batch.num_edges


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
@pytest.mark.parametrize("expand", ["all", "new"])
def test_dgl_blocks(expand):
    dgl = import_dgl()
    batch = loaded(HeteroSampler([3, 2], "a", expand=expand))
    nodes, seeds, blocks = batch.to_dgl()
    assert {name: ids.tolist() for name, ids in seeds.items()} == {"a": batch.seeds.tolist()}
    assert torch.equal(blocks[0].srcnodes["b"].data["x"], torch.from_numpy(X["b"])[nodes["b"].long()])
    assert blocks[-1].dstnodes["a"].data["y"].tolist() == batch.seeds.tolist()
    for made, hop in zip(blocks, batch.blocks, strict=True):
        for relation, block in hop.items():
            src, dst = made.edges(etype=relation)
            src, dst = made.srcnodes[relation[0]].data[dgl.NID][src.long()], made.dstnodes[relation[2]].data[dgl.NID][dst.long()]
            assert torch.stack([src, dst]).tolist() == EDGES[relation][:, made.edges[relation].data[dgl.EID].long()].tolist()
            assert made.num_src_nodes(relation[0]) == block.num_src
            assert made.num_dst_nodes(relation[2]) == block.num_dst
