"""Dropout with 16 random bits per element: its rate, gradient, seed, and the fallback to torch's dropout."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hoptrain.trainers.models.layered import seed_generators
from hoptrain.trainers.models.layers import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_it_keeps_its_share_and_the_mean(p, dtype):
    x = torch.ones(401, 997, dtype=dtype)
    torch.manual_seed(1)
    out = Dropout(p)(x)
    kept = out != 0
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert abs(kept.double().mean().item() - (1 - p)) < 5 * deviation + 1 / 65536
    for part in (kept[:, ::2], kept[::2], kept[:, :1]):  # for each of the four parts of a random word
        assert abs(part.double().mean().item() - (1 - p)) < 5 * (p * (1 - p) / part.numel()) ** 0.5 + 1 / 65536
    assert out.dtype == dtype
    assert torch.equal(out[kept], torch.full((), 1 / (1 - round(65536 * p) / 65536), dtype=dtype).expand(int(kept.sum())))


def test_the_gradient_passes_where_the_number_did():
    x = torch.randn(33, 5, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    assert torch.allclose(x.grad * x.detach(), out.detach())


def test_neighbours_fall_independently():
    kept = (Dropout(0.5)(torch.ones(1 << 20)) != 0).double()
    for distance in (1, 2, 3, 4, 8):
        both = (kept[:-distance] * kept[distance:]).mean().item()
        assert abs(both - 0.25) < 5 * (0.25 * 0.75 / len(kept)) ** 0.5


def test_torchs_generator_decides():
    x, layer = torch.ones(1000), Dropout(0.5)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_everything_are_torchs(p):
    x = torch.randn(100)
    assert torch.equal(Dropout(p)(x), F.dropout(x, p, training=p == 1.0))


def test_in_evaluation_nothing_falls():
    x = torch.randn(100)
    assert torch.equal(Dropout(0.5).eval()(x), x)


@pytest.mark.parametrize("shape", [(0, 3), (1,), (3, 0, 2), (7, 3, 2)])
def test_any_shape(shape):
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


def test_of_columns_that_do_not_lie_together():
    x = torch.ones(100, 64).T
    assert {0.0, 2.0} == set(Dropout(0.5)(x).unique().tolist())


def test_wrong_shares_are_refused_as_torch_does():
    for layer in (Dropout, nn.Dropout):
        with pytest.raises(ValueError, match="probability"):
            layer(1.5)


def test_another_default_device_changes_nothing():
    torch.set_default_device("meta")
    try:
        assert Dropout(0.5)(torch.ones(8, device="cpu")).device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_generators_are_seeded_as_torch_seeds_them(monkeypatch):
    """Only the generators of the CPU and of the given device are seeded."""
    devices = torch.Generator(), torch.Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", devices)
    seed_generators(7, torch.device("cuda", 1))
    drawn = torch.rand(4)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(4))
    assert devices[1].initial_seed() == 7 != devices[0].initial_seed()
