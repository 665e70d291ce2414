"""Outputs and gradients of GAT and GATv2 by ``aggregate`` equal those of PyG's convolutions."""

import pytest
import torch
from cases.edge_sums import DEGREES, block_of
from torch_geometric.nn import GATConv, GATv2Conv

from hoptrain.samplers import Block
from hoptrain.trainers.models import pyg_layers
from hoptrain.trainers.models.pyg_layers import AttentionEdges, GATLayer, attend, attend_v2, make_layer
from hoptrain.trainers.models.sums import softmax, softmax_over_edges
from hoptrain.trainers.models.sums.lookup import _LookupOfEdges, lookup


def make_block(case):
    """Return a block with local ids in which some edges lead from a destination to itself."""
    ptr, ind = (torch.from_numpy(array) for array in block_of(case))
    return Block(indptr=ptr, indices=ind, edge_ids=ind, num_src=14)


@pytest.mark.parametrize("case", [case for case in DEGREES if DEGREES[case]])
@pytest.mark.parametrize(("heads", "concat"), [(1, True), (3, True), (2, False)])
def test_it_is_pygs(case, heads, concat):
    torch.manual_seed(0)
    block, layer = make_block(case), GATLayer(5, 6, heads=heads, concat=concat, dropout=0.0).double()
    apply = (lambda rows: layer.conv((rows, rows[: block.num_dst]), block.edge_index()), lambda rows: layer(rows, block, None))
    compare(layer, *apply)


@pytest.mark.parametrize("case", [case for case in DEGREES if DEGREES[case]])
@pytest.mark.parametrize(("heads", "concat", "edge_channels"), [(1, True, 0), (3, True, 4), (2, False, 4)])
def test_version_2_is_pygs(case, heads, concat, edge_channels):
    """With edge features, an added self-loop has the mean of the features of the destination's other edges."""
    torch.manual_seed(0)
    options = {"heads": heads, "concat": concat, "dropout": 0.0, "edge_channels": edge_channels}
    block, layer = make_block(case), make_layer("gatv2", 5, 6, **options).double()
    features = torch.randn(block.num_edges, edge_channels, dtype=torch.float64) if edge_channels else None
    pygs = lambda rows: layer.conv((rows, rows[: block.num_dst]), block.edge_index(), features)  # noqa: E731
    compare(layer, pygs, lambda rows: attend_v2(layer.conv, rows, block, features))


def compare(layer, *functions):
    """Compare outputs and gradients of functions of the rows (14, 5), one of them PyG's."""
    x = 20 * torch.randn(14, 5, dtype=torch.float64)  # large differences: without subtracting the largest score, exp would overflow
    found = []
    for apply in functions:
        rows = x.clone().requires_grad_()
        layer.zero_grad()
        out = apply(rows)
        (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        found.append([out.detach(), rows.grad, *(parameter.grad.clone() for parameter in layer.parameters())])
    for expected, own in zip(*found, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", DEGREES)
def test_the_softmax_on_a_gpu_gives_the_cpus_values(case, dtype):
    """On a GPU, torch's functions compute the softmax and its gradient; here they run on the CPU."""
    torch.manual_seed(0)
    block = make_block(case)
    destination, has_edges = block.edge_index()[1], block.indptr.diff() > 0
    ignored = torch.rand(block.num_edges) < 0.3
    ignored[block.indptr[:-1][has_edges].long()] = False
    found = []
    for compute in (softmax_over_edges, softmax._composed):
        scores = (100 * torch.randn(block.num_edges, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))).requires_grad_()
        shares = compute(block, destination, scores, ignored)
        gradient = torch.randn(shares.shape, dtype=dtype, generator=torch.Generator().manual_seed(2))
        found.append([shares.detach(), *torch.autograd.grad(shares, scores, gradient)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(softmax._composed_gradient(block, destination, found[0][0], gradient), found[0][1], rtol=1e-5, atol=1e-6)
    totals = torch.zeros(block.num_dst, 3, dtype=dtype).index_add(0, destination, found[0][0])
    torch.testing.assert_close(totals, has_edges[:, None].to(dtype).expand_as(totals))
    assert not found[0][0][ignored].any()


@pytest.mark.parametrize("by_source", [True, False])
@pytest.mark.parametrize("case", DEGREES)
def test_edges_look_rows_up_with_lookups_gradient(case, by_source):
    """On a GPU, the gradient of a lookup is a sum over edges; here the CPU computes it."""
    block = make_block(case)
    index = block.edge_index()[0 if by_source else 1]
    rows = torch.randn(block.num_src if by_source else block.num_dst, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for out in (lookup(rows, index), _LookupOfEdges.apply(rows, index, block, by_source)):
        gradient = torch.arange(out.numel(), dtype=out.dtype).view_as(out)
        found.append([out, *torch.autograd.grad(out, rows, gradient)])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("share_weights", [False, True])
def test_layers_have_pygs_gradients_with_the_lookup_of_a_gpu(monkeypatch, share_weights):
    """The CPU computes what a GPU would; GATv2 may multiply sources and destinations by the same weights."""
    compute = lambda block, x, index, by_source: _LookupOfEdges.apply(x, index, block, by_source)  # noqa: E731
    monkeypatch.setattr(pyg_layers, "lookup_of_edges", compute)
    torch.manual_seed(0)
    block = make_block("ragged")
    for conv, own in ((GATConv(5, 3, heads=2), attend), (GATv2Conv(5, 3, heads=2, share_weights=share_weights), attend_v2)):
        layer = conv.double()
        pygs = lambda rows, layer=layer: layer((rows, rows[: block.num_dst]), block.edge_index())  # noqa: E731
        compare(layer, pygs, lambda rows, layer=layer, own=own: own(layer, rows, block))


def test_threads_share_the_softmax():
    """Results of two threads are bit-identical to those of one; a gradient need not be contiguous."""
    degrees = torch.randint(0, 9, (1 << 14,), generator=torch.Generator().manual_seed(0))
    indptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]).int()
    block = Block(indptr=indptr, indices=torch.zeros(int(indptr[-1]), dtype=torch.int32), edge_ids=None, num_src=1 << 14)
    scores, gradient = torch.randn(block.num_edges, 4), torch.randn(4, block.num_edges).T
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        scores.requires_grad_()
        shares = softmax_over_edges(block, block.edge_index()[1], scores)
        found.append([shares, *torch.autograd.grad(shares, scores, gradient)])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
    expected = torch.cat([part.softmax(0) for part in scores.detach().split(degrees.tolist())])
    torch.testing.assert_close(found[0][0], expected)


def test_layers_share_the_edges_of_a_block():
    """A block's edges with self-loops are computed once, also by a validation, whose tensors torch would not save for a gradient."""
    block, layer = make_block("ragged"), GATLayer(5, 6, heads=2, concat=True, dropout=0.0)
    x = torch.randn(14, 5)
    with torch.inference_mode():
        expected = layer(x, block, None)
    first, second = (AttentionEdges.of(each.conv, block) for each in (layer, GATLayer(5, 6, heads=1, concat=False, dropout=0.0)))
    assert first is second
    out = layer(x, block, None)
    out.sum().backward()
    assert torch.equal(out.detach(), expected)
    assert layer.conv.lin.weight.grad.count_nonzero() > 0


def test_dropout_falls_on_the_shares():
    """Dropout of attention weights keeps the expected output; with dropout near 1, only the bias remains."""
    torch.manual_seed(0)
    block, layer = make_block("ragged"), GATLayer(5, 6, heads=2, concat=True, dropout=0.999999).train()
    torch.nn.init.normal_(layer.conv.bias)
    out = attend(layer.conv, torch.randn(14, 5), block)
    torch.testing.assert_close(out, layer.conv.bias.expand_as(out))
    layer.conv.dropout = 0.3
    x, total = torch.randn(14, 5), 0
    for _ in range(1000):
        total = total + attend(layer.conv, x, block).detach() / 1000
    torch.testing.assert_close(total, attend(layer.eval().conv, x, block).detach(), rtol=0, atol=0.2)  # four standard deviations
