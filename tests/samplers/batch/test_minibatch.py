"""Conversions of a mini-batch to other devices, dtypes and libraries."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.batch.dgl_compat import import_dgl
from hoptrain.samplers.batch.serialise import header_of

SEEDS = np.array([3, 50, 7])


@pytest.fixture
def batch(graph):
    return NeighborSampler([4, 3]).sample(graph, SEEDS)


def test_to_the_cpu_shares_memory(batch):
    moved = batch.to("cpu")
    assert moved.node_ids.data_ptr() == batch.node_ids.ctypes.data
    assert moved.blocks[0].indices.data_ptr() == batch.blocks[0].indices.ctypes.data
    assert moved.x is None
    assert moved.to("cpu").node_ids is moved.node_ids


def test_repr_names_features_and_labels(batch):
    whole = replace(batch, x=np.zeros((len(batch.node_ids), 5), np.uint8), y=np.zeros(3, np.int64))
    assert repr(whole).endswith(f"x ({len(batch.node_ids)}, 5), y (3,))")


def test_arrays_put_together_again(batch):
    header = header_of(batch, pid=7)
    assert (header.facts["num_seeds"], header.facts["pid"]) == (3, 7)
    again = header.filled(batch.arrays())
    for old, new in zip(batch.blocks, again.blocks, strict=True):
        assert (old.num_src, old.num_dst, old.num_edges) == (new.num_src, new.num_dst, new.num_edges)
        np.testing.assert_array_equal(old.edge_ids, new.edge_ids)
    assert again.seeds.tolist() == SEEDS.tolist()


def test_edge_index_lists_every_edge(batch):
    block = batch.blocks[0]
    src, dst = block.edge_index()
    assert src.tolist() == block.indices.tolist()
    assert dst.tolist() == [i for i in range(block.num_dst) for _ in range(block.indptr[i], block.indptr[i + 1])]
    assert src.dtype == torch.int64


def test_pyg_data_holds_every_sampled_edge_once(batch, graph):
    data = batch.to_pyg()
    drawn = graph.ids_of(np.concatenate([block.edge_ids for block in batch.blocks]))
    assert sorted(data.e_id.tolist()) == sorted(set(drawn.tolist()))
    assert data.batch_size == 3
    assert data.n_id[: data.batch_size].tolist() == SEEDS.tolist()
    src, dst = data.n_id[data.edge_index].numpy()
    places = graph.csc_positions(data.e_id.numpy())
    assert (graph.indices[places] == src).all()
    assert (np.searchsorted(graph.indptr, places, side="right") - 1 == dst).all()
    assert data.validate()


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")
def test_dgl_blocks(batch, graph):
    dgl = import_dgl()
    nodes, seeds, blocks = batch.to_dgl()
    assert seeds.tolist() == SEEDS.tolist()
    for made, block in zip(blocks, batch.blocks, strict=True):
        assert torch.stack(made.edges()).long().tolist() == block.edge_index().tolist()
        assert made.edata[dgl.EID].tolist() == graph.ids_of(block.edge_ids).tolist()
        assert made.srcdata[dgl.NID].tolist() == nodes[: block.num_src].tolist()


@pytest.mark.skipif(find_spec("dgl") is not None, reason="dgl is installed")
def test_without_dgl_the_remedy_is_named(batch):
    with refused("'dgl'", "DGL imported", "'pip install hoptrain[dgl]'"):
        batch.to_dgl()
