"""Helpers of the tests of ``hoptrain.dgl``. Test modules that import this one are skipped if DGL is not installed."""

from importlib.util import find_spec

import pytest

if find_spec("dgl") is None:
    pytest.skip("dgl is not installed: pip install hoptrain[dgl]", allow_module_level=True)

import torch

from hoptrain.samplers.batch.dgl_compat import import_dgl

dgl = import_dgl()


def graph(dtype=torch.int64):
    """Return a graph of 60 nodes and 900 unsorted edges, with parallel edges, self-loops, isolated nodes, and features of all kinds."""
    generator = torch.Generator().manual_seed(5)
    ends = (torch.rand(2, 900, generator=generator) * torch.tensor([[60.0], [57.0]])).to(dtype)
    g = dgl.graph((ends[0], ends[1]), num_nodes=60)
    g.ndata["feat"] = torch.rand(60, 5, generator=generator)
    g.ndata["label"] = torch.arange(60) % 4
    g.edata["kind"] = torch.rand(900, 2, generator=generator)
    g.edata["weight"] = torch.rand(900, generator=generator)
    g.edata["mask"] = torch.rand(900, generator=generator) < 0.6
    return g


def check_block(g, block, nodes, reverse=False):
    """Check that all ids of a block have DGL's meaning, and that its features are those of the graph."""
    src, dst = (block.srcdata[dgl.NID], block.dstdata[dgl.NID])
    assert torch.equal(src, nodes[: len(src)])
    assert torch.equal(dst, src[: len(dst)])
    u, v = block.edges()
    ends = g.find_edges(block.edata[dgl.EID])
    assert torch.equal(src[u.long()], ends[reverse])
    assert torch.equal(dst[v.long()], ends[not reverse])
    assert block.idtype == g.idtype == src.dtype == block.edata[dgl.EID].dtype
    assert torch.equal(block.srcdata["feat"], g.ndata["feat"][src.long()])
    assert torch.equal(block.dstdata["label"], g.ndata["label"][dst.long()])
    assert torch.equal(block.edata["kind"], g.edata["kind"][block.edata[dgl.EID].long()])


def check_subgraph(g, subgraph):
    """Check that all ids of a subgraph have DGL's meaning, and that its features are those of the graph."""
    nodes, edges = subgraph.ndata[dgl.NID], subgraph.edata[dgl.EID]
    assert len(nodes.unique()) == len(nodes)
    u, v = subgraph.edges()
    ends = g.find_edges(edges)
    assert torch.equal(nodes[u.long()], ends[0])
    assert torch.equal(nodes[v.long()], ends[1])
    assert nodes.dtype == edges.dtype == g.idtype == subgraph.idtype
    assert torch.equal(subgraph.ndata["feat"], g.ndata["feat"][nodes.long()])
    assert torch.equal(subgraph.edata["kind"], g.edata["kind"][edges.long()])


def data_of(result):
    """Return the feature frames of a graph, or of a block's sources, destinations and edges; the frames also hold the ids."""
    nodes = [result.srcdata, result.dstdata] if result.is_block else [result.ndata]
    return [*nodes, result.edata]


def form(result):
    """Return the types of the results, and the names and dtypes of the graphs' features."""
    if isinstance(result, list | tuple):
        return [form(each) for each in result]
    if isinstance(result, torch.Tensor):
        return result.dtype, result.dim()
    return type(result).__name__, [{key: (rows.dtype, rows.shape[1:]) for key, rows in data.items()} for data in data_of(result)]


def edge_ids(result):
    """Return the sorted edge ids of each block or graph."""
    return [sorted(each.edata[dgl.EID].tolist()) for each in result]


def chi_square_fits(found, probabilities):
    """Return whether counts fit a distribution, with a p-value of at least 1e-4 in a chi-square test."""
    from scipy.stats import chisquare

    expected = torch.as_tensor(probabilities).double()
    found = torch.as_tensor(found).double()
    assert (found[expected == 0] == 0).all()
    found, expected = found[expected > 0], expected[expected > 0]
    return chisquare(found.numpy(), (expected * found.sum() / expected.sum()).numpy()).pvalue >= 1e-4
