"""Sums over a block's edges on the CPU, and their gradients, equal those of a dense product in float64; gradients repeat bit for bit."""

import numpy as np
import pytest
import torch
from cases.edge_sums import DEGREES, block_of

from hoptrain import GNN, NeighborSampler, SampleLoader, load_dataset
from hoptrain.samplers import Block
from hoptrain.trainers.models.sums import aggregate, aggregate_joined, aggregate_with_own, joined_weight, lookup
from hoptrain.trainers.models.sums.transpose import transpose

RUNS = 3


def make_block(case, dtype=torch.int32):
    ptr, ind = (torch.from_numpy(array).to(dtype) for array in block_of(case))
    return Block(indptr=ptr, indices=ind, edge_ids=None, num_src=14)


def dense(block, weights, reduce):
    """Return the matrix (num_dst, num_src) float64 of the sums."""
    degrees = block.indptr.diff().long()
    owner = torch.repeat_interleave(torch.arange(block.num_dst), degrees)
    values = torch.ones(block.num_edges, dtype=torch.float64) if weights is None else weights.double()
    matrix = torch.zeros(block.num_dst, block.num_src, dtype=torch.float64).index_put(
        (owner, block.indices.long()), values, accumulate=True
    )
    return matrix if reduce == "sum" else matrix / degrees.clamp(min=1)[:, None]


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", [case for case in DEGREES if sum(DEGREES[case]) <= 60])
def test_sums_and_gradients_are_those_of_a_dense_product(case, weighted, reduce):
    block = make_block(case)
    torch.manual_seed(1)
    x = torch.randn(14, 5, requires_grad=True)
    weights = torch.rand(block.num_edges) if weighted else None
    to_sums, to_own = torch.randn(2, block.num_dst, 5)
    sums, own = aggregate_with_own(block, x, weights, reduce)
    ((sums * to_sums).sum() + (own * to_own).sum()).backward()
    matrix = dense(block, weights, reduce)
    expected = matrix.T @ to_sums.double()
    expected[: block.num_dst] += to_own
    torch.testing.assert_close(sums, (matrix @ x.detach().double()).float())
    assert torch.equal(own, x[: block.num_dst])
    torch.testing.assert_close(x.grad, expected.float())


@pytest.mark.parametrize("weighted", [False, True])
def test_one_product_of_joined_rows_is_that_of_sums_own_rows_and_bias(weighted):
    block = make_block("ragged")
    torch.manual_seed(1)
    x = torch.randn(14, 5, dtype=torch.float64, requires_grad=True)
    to_sums, to_own = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(block.num_edges, dtype=torch.float64) if weighted else None
    expected = dense(block, weights, "mean") @ x @ to_sums.T + x[: block.num_dst] @ to_own.T + bias
    out = aggregate_joined(block, x, weights, "mean") @ joined_weight(to_sums, to_own, bias).T
    torch.testing.assert_close(out, expected)
    given, towards = (x, to_sums, to_own, bias), torch.randn_like(out)
    for own, other in zip(torch.autograd.grad(out, given, towards), torch.autograd.grad(expected, given, towards), strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize(("heads", "width"), [(1, 5), (3, 1), (2, 20)])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("case", ["random", "empty", "ragged", "a hub"])
def test_sums_with_weights_of_heads_are_those_of_a_dense_product(case, reduce, heads, width):
    block = make_block(case)
    torch.manual_seed(1)
    x, weights = torch.randn(14, heads * width, requires_grad=True), torch.randn(block.num_edges, heads, requires_grad=True)
    towards = torch.randn(block.num_dst, heads * width)
    out = aggregate(block, x, weights if heads > 1 else weights[:, 0], reduce)
    expected = torch.cat([dense(block, weights[:, head], reduce) @ rows.double() for head, rows in enumerate(x.chunk(heads, 1))], 1)
    torch.testing.assert_close(out, expected.float())
    found = torch.autograd.grad(out, (x, weights), towards)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (x, weights), towards.double()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("given", ["rows", "weights"])
def test_weighted_sums_have_the_gradients_that_are_needed(given):
    block = make_block("ragged")
    x, weights = torch.randn(14, 4), torch.rand(block.num_edges, 2)
    wanted = {"rows": x, "weights": weights}[given].requires_grad_()
    aggregate(block, x, weights).sum().backward()
    assert wanted.grad.any()
    assert [x.grad is None, weights.grad is None].count(True) == 1


def test_weighted_sums_check_the_rows():
    block = make_block("ragged")
    for x in (torch.zeros(13, 4), torch.zeros(14, 5)):
        with pytest.raises(ValueError, match="14 rows, one per source"):
            aggregate(block, x, torch.rand(block.num_edges, 2))


@pytest.mark.parametrize("read", ["sums", "own", "neither"])
def test_a_result_that_no_loss_reads_adds_nothing(read):
    block, x = make_block("ragged"), torch.randn(14, 3, dtype=torch.float64, requires_grad=True)
    sums, own = aggregate_with_own(block, x)
    (sums.sum() * (read == "sums") + own.sum() * (read == "own") if read != "neither" else x.sum() * 0).backward()
    expected = dense(block, None, "sum").sum(0)[:, None].expand(14, 3) * (read == "sums")
    expected = expected + (torch.arange(14) < block.num_dst)[:, None] * (read == "own")
    torch.testing.assert_close(x.grad, expected)


def test_gradients_pass_gradcheck():
    block, x = make_block("random"), torch.randn(14, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(block.num_edges, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: aggregate(block, x, weights, "mean"), (x,))
    of_heads = torch.rand(block.num_edges, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *given: aggregate(block, *given, "mean"), (x, of_heads))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_edges_are_grouped_by_source_in_their_order(dtype):
    block = make_block("hubs side by side", dtype)
    there = transpose(block)
    owner = torch.repeat_interleave(torch.arange(block.num_dst), block.indptr.diff().long())
    order = torch.sort(block.indices, stable=True).indices
    assert torch.equal(there.order, order)
    assert torch.equal(there.indices, owner[order].to(dtype))
    assert torch.equal(there.indptr.diff().long(), torch.bincount(block.indices, minlength=14))
    assert transpose(block) is there


@pytest.fixture
def four_threads():
    torch.set_num_threads(4)


@pytest.mark.parametrize("shape", [(3000,), (2, 1500)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.usefixtures("four_threads")
def test_gradients_are_added_in_the_order_of_the_index(dtype, shape):
    x = torch.randn(50, 32, requires_grad=True)
    index, towards = torch.randint(0, 50, shape, dtype=dtype), torch.randn(*shape, 32)
    expected = np.zeros((50, 32), np.float32)
    np.add.at(expected, index.flatten().numpy(), towards.reshape(-1, 32).numpy())
    rows = lookup(x, index)
    assert torch.equal(rows, x[index.long()])
    for _ in range(RUNS):
        (gradient,) = torch.autograd.grad(rows, x, towards, retain_graph=True)
        assert np.array_equal(gradient, expected)


def gradients(model, batches, degrees):
    for batch in batches:
        torch.nn.functional.cross_entropy(model(batch.x, batch.blocks, degrees[batch.node_ids]), batch.y).backward()
    return [weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("arch", ["sage", "gcn", "gin", "gat", "gatv2", "transformer"])
@pytest.mark.usefixtures("four_threads")
def test_gradients_of_a_model_repeat(arch):
    data = load_dataset("digits-knn")
    batches = [batch.to("cpu") for batch in SampleLoader(data, NeighborSampler([-1, 5]), batch_size=1078)]
    assert batches[0].blocks[0].num_edges * 8 > 1 << 15  # torch divides the work among threads
    runs = []
    for _ in range(RUNS):
        torch.manual_seed(0)
        runs.append(gradients(GNN(arch, 64, 64, 10, 2), batches, torch.from_numpy(data.graph.in_degrees())))
    for run in runs[1:]:
        assert all(map(torch.equal, runs[0], run))
