"""``LazyRows`` stay lazy under functions that compute each row independently; every other function gets all rows."""

import pytest
import torch
import torch.nn.functional as F
from cases.mistakes import refused
from torch import nn

from hoptrain.pyg.nn.lazy import LazyRows

N, COMPUTED, C = 9, 4, 3


def some_rows(seed=0):
    """Return ``LazyRows``, the equal tensor, and a list that gets an entry whenever the remaining rows are computed."""
    x = torch.rand(N, C, generator=torch.Generator().manual_seed(seed))
    computed = []
    return LazyRows.of(x[:COMPUTED], N, lambda: computed.append(1) or x[COMPUTED:], [x]), x, computed


WEIGHT, BIAS = torch.rand(5, C), torch.rand(C)
EACH_ROW = {
    "relu": F.relu,
    "method": lambda x: x.relu(),
    "module": nn.ELU(),
    "dropout in evaluation": lambda x: F.dropout(x, 0.5, training=False),
    "linear": lambda x: F.linear(x, WEIGHT),
    "matmul": lambda x: x @ WEIGHT.T,
    "layer norm": nn.LayerNorm(C),
    "normalize": lambda x: F.normalize(x, p=2.0, dim=-1),
    "log_softmax": lambda x: x.log_softmax(dim=-1),
    "softmax": lambda x: F.softmax(x, dim=1),
    "numbers": lambda x: 1 - 2 * x / 3 + (-x) ** 2,
    "broadcast": lambda x: x * BIAS + torch.ones(1, C),
    "two": lambda x: x + x.relu(),
    "columns": lambda x: torch.cat([x, x.tanh()], dim=-1),
    "dtype": lambda x: x.double().to(torch.float32),
    "detach": lambda x: x.detach().clone(),
}
ALL_ROWS = {
    "mean": lambda x: x.mean(),
    "sum": lambda x: x.sum(0),
    "batch norm": nn.BatchNorm1d(C, track_running_stats=False),
    "transpose": lambda x: x.T,
    "view": lambda x: x.view(-1),
    "rows": lambda x: torch.cat([x, x]),
    "softmax of rows": lambda x: x.softmax(dim=0),
    "weight": lambda x: F.linear(torch.ones(2, C), x),
    "mask": lambda x: x[torch.arange(N) % 2 == 1],
    "last": lambda x: x[-1],
    "more": lambda x: x[:7],
    "columns": lambda x: x[:, 1],
    "index": lambda x: x[torch.tensor([0, 8])],
    "layer norm of all": lambda x: F.layer_norm(x, (N, C)),
    "index_select": lambda x: x.index_select(1, torch.tensor([0])),
    "numpy": lambda x: torch.from_numpy(x.numpy()),
    "stack": lambda x: torch.stack([x, x], dim=-1),
    "scatter": lambda x: torch.zeros(2, C).index_add(0, torch.arange(N) % 2, x),
    "in place": lambda x: x.add_(1),
    "relu in place": lambda x: F.relu(x - 0.5, inplace=True),
    "assigned": lambda x: x.__setitem__(8, 0.0) or x,
}
FIRST_ROWS = {
    "slice": lambda x: x[:COMPUTED],
    "fewer": lambda x: x[1:3],
    "negative": lambda x: x[:-5],
    "row": lambda x: x[2],
    "slice and columns": lambda x: x[:2, 1:],
    "index": lambda x: x[torch.tensor([3, 0, 3])],
    "matrix": lambda x: x[torch.tensor([[3, 0], [1, 1]])],
    "mask": lambda x: x[torch.arange(N) < 3],
    "narrow": lambda x: x.narrow(dim=0, start=1, length=3),
    "index_select": lambda x: x.index_select(0, torch.tensor([1, 1])),
}


@pytest.mark.parametrize("name", EACH_ROW)
def test_functions_of_each_row_compute_only_the_first(name):
    rows, x, computed = some_rows()
    out, expected = EACH_ROW[name](rows), EACH_ROW[name](x)
    assert (type(out), computed) == (LazyRows, [])
    assert (out.shape, out.size(0), len(out), out.dtype, out.ndim) == (expected.shape, N, N, expected.dtype, 2)
    torch.testing.assert_close(out[:COMPUTED], expected[:COMPUTED])
    assert computed == []
    torch.testing.assert_close(torch.cat([out]), expected)
    assert computed == [1]


@pytest.mark.parametrize("name", ALL_ROWS)
def test_other_functions_get_all_rows(name):
    rows, x, computed = some_rows()
    out = ALL_ROWS[name](rows)
    expected = ALL_ROWS[name](x)
    assert computed == [1]
    assert torch.equal(out + 0, expected)
    assert torch.equal(rows + 0, x)  # an in-place change of ``rows`` is visible


@pytest.mark.parametrize("name", FIRST_ROWS)
def test_computed_rows_are_read_without_the_others(name):
    rows, x, computed = some_rows()
    out = FIRST_ROWS[name](rows)
    assert (type(out), computed) == (torch.Tensor, [])
    assert torch.equal(out, FIRST_ROWS[name](x))


def test_of_two_the_fewer_rows_are_computed():
    rows, x, _ = some_rows()
    _, y, _ = some_rows(1)
    fewer = LazyRows.of(y[:2], N, lambda: y[2:], [y])
    out = rows * fewer + y
    assert len(out.computed()) == 2
    torch.testing.assert_close(out + 0, x * y + y)


def test_dropout_of_outputs_draws_16_bits(monkeypatch):
    drawn = []
    random = torch.Tensor.random_
    monkeypatch.setattr(torch.Tensor, "random_", lambda *given: drawn.append(1) or random(*given))
    rows = LazyRows.of(torch.ones(500, 400), 600, lambda: torch.ones(100, 400), [])
    out = F.dropout(rows, 0.5)
    assert len(drawn) == 1
    assert abs((out[:500] == 0).float().mean() - 0.5) < 0.02
    assert set((out + 0).unique().tolist()) == {0.0, 2.0}


def test_gradients_flow_through_the_rows_that_were_read():
    for read, expected in ((lambda x: x[:2], 2), (lambda x: x.mean(1), N)):
        x, weight = torch.rand(N, C, requires_grad=True), torch.rand(C, C, requires_grad=True)
        rows = LazyRows.of(x[:COMPUTED] * 1, N, lambda x=x: x[COMPUTED:] * 1, [x])
        read(F.linear(rows, weight).relu()).sum().backward()
        assert (x.grad.abs().sum(1) > 0).sum() == expected


def test_the_other_rows_are_computed_with_the_gradient_mode_of_then():
    weight = torch.rand(C, C, requires_grad=True)
    rows, _, _ = some_rows()
    out = F.linear(rows, weight)
    with torch.no_grad():
        out.mean()
    out.sum().backward()
    torch.testing.assert_close(weight.grad, some_rows()[1].sum(0).expand(C, C))


def test_rows_read_after_the_step_are_refused():
    weight = torch.rand(C, C, requires_grad=True)
    rows, _, _ = some_rows()
    out = F.linear(rows, weight)
    out[:2].sum().backward()
    torch.optim.SGD([weight], 0.1).step()
    assert len(out[:COMPUTED]) == COMPUTED
    with refused("not seeds", "output rows read after weights layer changed", "read before optimizer's step"):
        out.mean()


def test_hooks_on_outputs_see_all_rows():
    x = torch.rand(N, C, requires_grad=True)
    rows = LazyRows.of(x[:COMPUTED] * 1, N, lambda: x[COMPUTED:] * 1, [x])
    seen = []
    rows.register_hook(lambda gradient: seen.append(gradient.shape))
    rows[:2].sum().backward()
    assert seen == [(N, C)]
