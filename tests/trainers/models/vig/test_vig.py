"""The Vision GNN: its number of parameters, its graphs, its convolutions compared with slow ones, and its pipeline layers."""

import pytest
import torch
import torch.nn.functional as F
from cases.mistakes import Mistake, each_of

from hoptrain.trainers.models.vig.gnn import ViG
from hoptrain.trainers.models.vig.layers import Grid, MaxRelativeConv, Nearest, SumConv

PAPER = {"patch": 1, "width": None, "conv_width": 256, "ffn_width": 512, "head_width": 1024, "conv": "sum"}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def small(norm="group", **options):
    torch.manual_seed(0)
    return ViG((8, 8, 3), 5, **{"patch": 2, "width": 8, "head_width": 16, "num_blocks": 5, "neighbors": 3, "norm": norm} | options)


@pytest.mark.parametrize("norm", ["group", "layer", "batch"])
@pytest.mark.parametrize("graph", ["grid", "knn"])
def test_the_papers_counts(norm, graph):
    model = ViG((32, 32, 3), 10, norm=norm, graph=graph, **PAPER)
    assert {count(block) for block in model.blocks} == {138_258}
    assert count(model) == 1_120_410


@pytest.mark.parametrize("conv", ["max-relative", "sum"])
@pytest.mark.parametrize("graph", ["knn", "grid"])
def test_every_weight_learns(conv, graph):
    model = small(conv=conv, graph=graph)
    logits = model(torch.randn(3, 8, 8, 3))
    assert logits.shape == (3, 5)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def naive_neighbors(x, k, step):
    """Return the rows of every node's neighbours, found by sorting."""
    directions = F.normalize(x, dim=2)
    rows = []
    for image in range(len(x)):
        for node in range(x.shape[1]):
            order = (directions[image] @ directions[image, node]).argsort(descending=True)
            rows.append(image * x.shape[1] + order[: k * step : step])
    return rows


def naive_grid(batch, rows, columns):
    found = []
    for image in range(batch):
        for node in range(rows * columns):
            row, column = divmod(node, columns)
            near = [v for v in range(rows * columns) if v != node and max(abs(v // columns - row), abs(v % columns - column)) == 1]
            found.append(image * rows * columns + torch.tensor(near))
    return found


@pytest.mark.parametrize(
    ("graph", "naive"), [(Nearest(3, 2), lambda x: naive_neighbors(x, 3, 2)), (Grid(3, 4), lambda x: naive_grid(len(x), 3, 4))]
)
def test_convolutions_against_loops(graph, naive):
    torch.manual_seed(1)
    x = torch.randn(2, 12, 6, dtype=torch.float64)
    neighbors, flat = graph(x), x.flatten(0, 1)
    sums = torch.stack([flat[rows].sum(0) for rows in naive(x)]).view_as(x)
    conv = SumConv(6).double()
    torch.testing.assert_close(conv(x, neighbors), F.gelu(conv.of_neighbors(sums) + conv.of_itself(x)))

    differences = torch.stack([(flat[rows] - flat[i]).amax(0) for i, rows in enumerate(naive(x))]).view_as(x)
    conv = MaxRelativeConv(6, 2, "layer").double()
    both = torch.zeros(2, 12, 12, dtype=torch.float64)
    both[..., 0::2], both[..., 1::2] = x, differences
    mixed = torch.cat([conv.heads[0](both[..., :6]), conv.heads[1](both[..., 6:])], dim=2)
    torch.testing.assert_close(conv(x, neighbors), F.gelu(conv.norm(mixed)))


def test_a_node_is_its_own_nearest():
    x = torch.randn(2, 9, 4)
    assert Nearest(3, 1)(x).indices[:, 0].tolist() == list(range(18))


def test_the_reach_doubles_every_four_blocks():
    assert [block[0].graph.step for block in small().blocks] == [1, 1, 1, 1, 2]
    assert [block[0].graph.step for block in small(neighbors=16).blocks] == [1] * 5, "there are no more nodes"


@pytest.mark.parametrize(("norm", "is_exact"), [("group", True), ("layer", True), ("batch", False)])
def test_gradients_in_chunks(norm, is_exact):
    model = small(norm).double()
    x, y = torch.randn(6, 8, 8, 3, dtype=torch.float64), torch.arange(6) % 5

    def gradients(*parts):
        model.zero_grad()
        for part in parts:
            F.cross_entropy(model(x[part]), y[part], reduction="sum").backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    whole = gradients(slice(0, 6))
    assert torch.allclose(gradients(slice(0, 2), slice(2, 6)), whole, rtol=1e-9, atol=1e-12) == is_exact


def test_layers_are_what_a_pipeline_needs():
    model = small()
    x = images = torch.randn(2, 8, 8, 3)
    for i in range(model.num_layers):
        assert i == 0 or x.shape[1:] == model.shape(i)
        x = model.layer(i, x)
    assert torch.equal(x, model(images))
    owned = [
        name
        for i in range(model.num_layers)
        for module in model.modules_of(i)
        for name, _ in model.get_submodule(module).named_parameters(module)
    ]
    assert owned == [name for name, _ in model.named_parameters()]


MISTAKES = {
    "patches that do not cover the image": Mistake(
        lambda: small(patch=3), value="patch is 3", rule="squares cover image 8", remedy="common divisor"
    ),
    "more neighbours than nodes": Mistake(
        lambda: small(neighbors=17), value="17 neighbors", rule="5 blocks one block nodes", remedy="1 16"
    ),
    "no blocks": Mistake(lambda: small(num_blocks=0), value="0 blocks", rule="3 neighbors one block", remedy="1 16"),
    "a width that heads cannot share": Mistake(
        lambda: small(width=9), value="conv_width is 9", rule="4 heads divide channels", remedy="multiple 4"
    ),
    "no width": Mistake(lambda: small(width=0), value="width is 0", rule="must least 1", remedy="1 more"),
    "a width below 0": Mistake(lambda: small(ffn_width=-1), value="ffn_width is -1", rule="must least 1", remedy="1 more"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
