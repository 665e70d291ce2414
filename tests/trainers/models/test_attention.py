"""Outputs and gradients of GAT and GATv2 by ``aggregate`` equal those of PyG's convolutions."""

import pytest
import torch
from cases.edge_sums import DEGREES, block_of

from hoptrain.samplers import Block
from hoptrain.trainers.models.pyg_layers import AttentionEdges, GATLayer, attend, attend_v2, make_layer


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
