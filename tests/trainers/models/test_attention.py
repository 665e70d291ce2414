"""GAT's outputs and gradients by ``aggregate`` equal those of PyG's convolution."""

import pytest
import torch
from cases.edge_sums import DEGREES, block_of

from hoptrain.samplers import Block
from hoptrain.trainers.models.pyg_layers import GATLayer, attend


def make_block(case):
    """Return a block with local ids in which some edges lead from a destination to itself."""
    ptr, ind = (torch.from_numpy(array) for array in block_of(case))
    return Block(indptr=ptr, indices=ind, edge_ids=ind, num_src=14)


@pytest.mark.parametrize("case", [case for case in DEGREES if DEGREES[case]])
@pytest.mark.parametrize(("heads", "concat"), [(1, True), (3, True), (2, False)])
def test_it_is_pygs(case, heads, concat):
    torch.manual_seed(0)
    block, layer = make_block(case), GATLayer(5, 6, heads=heads, concat=concat, dropout=0.0).double()
    x = 20 * torch.randn(14, 5, dtype=torch.float64)  # large differences: without subtracting the largest score, exp would overflow
    found = []
    for apply in (lambda rows: layer.conv((rows, rows[: block.num_dst]), block.edge_index()), lambda rows: layer(rows, block, None)):
        rows = x.clone().requires_grad_()
        layer.zero_grad()
        out = apply(rows)
        (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        found.append([out.detach(), rows.grad, *(parameter.grad.clone() for parameter in layer.parameters())])
    for expected, own in zip(*found, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)


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
