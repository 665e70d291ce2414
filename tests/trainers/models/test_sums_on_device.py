"""Sums over a block's edges on a GPU, and their gradients, equal torch's in float64, for the CUDA C++ and the Numba kernels.

Without a GPU, g++ and the simulator run the kernels, and a stub replaces torch's CUDA functions.
"""

import gc

import numpy as np
import pytest
import torch
from cases.edge_sums import DEGREES, block_of
from cases.mistakes import refused
from cpp.stand_in import STREAM, Stream, _cupy  # noqa: F401
from cuda_case import TESTED, OnDevice, needs_cuda, put_stand_in, simulated
from numba import cuda

from hoptrain.engine import InputError
from hoptrain.engine.device import is_simulated
from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.cuda.native.aggregate import sum_rows
from hoptrain.samplers import Block
from hoptrain.trainers.models.sums import aggregate, on_device, transpose

pytestmark = [needs_cuda, pytest.mark.skipif(not is_simulated() and not torch.cuda.is_available(), reason="torch has no GPU")]
KERNELS = ["cpp", "numba"]
CASES = list(DEGREES)


@pytest.fixture(params=KERNELS)
def kernels(request, monkeypatch):
    """Select the CUDA C++ or Numba kernels; without a GPU, stubs replace the functions of torch and CuPy."""
    on_device._has_native.cache_clear()
    if is_simulated():
        if request.param == "cpp":
            request.getfixturevalue("cupy")
        else:
            put_stand_in(monkeypatch)
        stream = Stream(STREAM) if request.param == "cpp" else cuda.stream()
        monkeypatch.setattr(on_device, "launch_for", lambda rows: Launch(stream=stream, thresholds=TESTED, num_batches=1))
    elif request.param == "cpp" and (reason := native.reason_against()) is not None:
        pytest.skip(reason)
    elif request.param == "numba":
        monkeypatch.setattr(native, "reason_against", lambda: "a test")
    yield request.param
    on_device._has_native.cache_clear()


def there(tensor):
    """Return a tensor on the device, or one that claims to be there."""
    return tensor.as_subclass(OnDevice) if is_simulated() else tensor.cuda()


def make_block(case, num_rows=14, dtype=torch.int32):
    ptr, ind = (torch.from_numpy(array) for array in block_of(case, num_rows))
    if not is_simulated():
        ptr, ind = ptr.cuda(), ind.cuda()
    return Block(indptr=ptr.to(dtype), indices=ind.to(dtype), edge_ids=ind, num_src=num_rows)


def numbers(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def of_torch(block, x, weights, mean):
    """Compute the sums in float64 with a sparse matrix, head by head."""
    matrix = torch.zeros(block.num_dst, block.num_src, weights.shape[1], dtype=torch.float64)
    owner = torch.repeat_interleave(torch.arange(block.num_dst), block.indptr.cpu().diff().long())
    for head in range(weights.shape[1]):
        matrix[..., head].index_put_((owner, block.indices.cpu().long()), weights[:, head].double(), accumulate=True)
    parts = [torch.sparse.mm(matrix[..., h].to_sparse(), own) for h, own in enumerate(x.double().chunk(weights.shape[1], 1))]
    out = torch.cat(parts, 1)
    return out / block.indptr.cpu().diff().clamp(min=1)[:, None] if mean else out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("heads", "width", "weighted", "mean"),
    [(1, 8, False, False), (1, 5, False, True), (1, 6, True, False), (2, 16, True, True)],
    ids=["sum", "mean", "weighted", "heads"],
)  # fmt: skip
@pytest.mark.parametrize("case", CASES)
def test_sums_and_derivatives(kernels, case, heads, width, weighted, mean, dtype):
    block = make_block(case)
    x = numbers(14, heads * width, dtype=dtype)
    weights = numbers(block.num_edges, heads, dtype=torch.float64 if dtype == torch.float64 else torch.float32, seed=1)
    if not weighted:
        weights = torch.ones_like(weights)
    gradient = numbers(block.num_dst, heads * width, seed=2).to(weights.dtype)

    rows, own = (there(tensor).requires_grad_() for tensor in (x, weights if heads > 1 else weights[:, 0]))
    out = aggregate(block, rows, own if weighted else None, "mean" if mean else "sum")
    assert out.dtype == weights.dtype
    out.backward(gradient.to(out.device))

    expected_x, expected_weights = x.double().requires_grad_(), weights.double().requires_grad_()
    expected = of_torch(block, expected_x, expected_weights, mean)
    expected.backward(gradient.double())
    accuracy = {torch.float32: 2e-6, torch.bfloat16: 2e-6, torch.float64: 1e-14}[dtype]
    close = {"rtol": 10 * accuracy, "atol": 10 * accuracy, "check_dtype": False}
    torch.testing.assert_close(out.detach().cpu().as_subclass(torch.Tensor), expected.detach(), **close)
    assert rows.grad.dtype == dtype
    rounded = {"rtol": 2**-8, "atol": 1e-5, "check_dtype": False} if dtype == torch.bfloat16 else close
    torch.testing.assert_close(rows.grad.cpu().as_subclass(torch.Tensor), expected_x.grad, **rounded)
    if weighted:
        found = own.grad.cpu().as_subclass(torch.Tensor).reshape(weights.shape)
        torch.testing.assert_close(found, expected_weights.grad, **{**close, "atol": 1e-4 if dtype != torch.float64 else 1e-13})


@pytest.mark.parametrize(("heads", "mean"), [(1, False), (1, True), (2, False)])
def test_derivatives_are_those_of_differences(kernels, heads, mean):
    block = make_block("random", num_rows=9)
    x = there(numbers(9, 2 * heads, dtype=torch.float64)).requires_grad_()
    weights = there(numbers(block.num_edges, heads, dtype=torch.float64, seed=1)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *given: aggregate(block, *given, "mean" if mean else "sum").as_subclass(torch.Tensor), (x, weights)
    )


def test_the_same_block_gives_the_same_bits(kernels):
    """Repeated sums are bit-identical, also in the backward pass and for a hub, whose sum is computed in pieces."""
    block = make_block("a hub")
    found = []
    for _ in range(2):
        rows = there(numbers(14, 12)).requires_grad_()
        out = aggregate(block, rows, reduce="mean")
        out.backward(torch.ones_like(out))
        found.append((out.detach().cpu().numpy().tobytes(), rows.grad.cpu().numpy().tobytes()))
    assert found[0] == found[1]


def test_a_hub_of_many_pieces(kernels):
    degrees = torch.tensor([0, 3, 1000, 129, 128])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]).int()
    ind = torch.randint(0, 50, (int(ptr[-1]),), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    x = numbers(50, 4)
    where = "cpu" if is_simulated() else "cuda"
    block = Block(indptr=ptr.to(where), indices=ind.to(where), edge_ids=ind.to(where), num_src=50)
    expected = of_torch(block, x, torch.ones(len(ind), 1), False)
    torch.testing.assert_close(
        aggregate(block, there(x)).cpu().as_subclass(torch.Tensor), expected, rtol=1e-5, atol=1e-5, check_dtype=False
    )


def test_a_block_is_transposed_once_and_only_for_a_derivative(kernels):
    block = make_block("random")
    weights = there(numbers(block.num_edges, seed=1)).requires_grad_()
    aggregate(block, there(numbers(14, 4)), weights).sum().backward()
    assert block not in transpose.cache  # the rows need no gradient
    aggregate(block, there(numbers(14, 4)).requires_grad_()).sum().backward()
    found = transpose.cache[block]
    aggregate(block, there(numbers(14, 4)).requires_grad_()).sum().backward()
    assert transpose.cache[block] is found
    kept = len(transpose.cache)
    del block
    gc.collect()
    assert len(transpose.cache) == kept - 1


def test_a_transposed_block_has_the_edges_of_each_source_in_order():
    block = make_block("random")
    found = transpose.transpose(block)
    owner = np.repeat(np.arange(block.num_dst), np.diff(block.indptr.cpu().numpy()))
    order = np.argsort(block.indices.cpu().numpy(), kind="stable")
    np.testing.assert_array_equal(found.order.cpu().numpy(), order)
    np.testing.assert_array_equal(found.indices.cpu().numpy(), owner[order])
    np.testing.assert_array_equal(np.diff(found.indptr.cpu().numpy()), np.bincount(block.indices.cpu().numpy(), minlength=block.num_src))
    assert {found.indptr.dtype, found.indices.dtype} == {torch.int32}


@simulated
def test_a_launch_takes_the_widest_words_of_a_head(cupy, monkeypatch):
    on_device._has_native.cache_clear()
    monkeypatch.setattr(on_device, "launch_for", lambda rows: Launch(stream=Stream(STREAM), thresholds=TESTED, num_batches=1))
    block, hub = make_block("random"), make_block("a hub")
    monkeypatch.setattr(sum_rows, "__kwdefaults__", {**sum_rows.__kwdefaults__, "piece": 5})
    for given, width, dtype in ((block, 8, torch.float32), (block, 6, torch.float32), (hub, 16, torch.bfloat16)):
        aggregate(given, there(numbers(14, width, dtype=dtype)).requires_grad_()).sum().backward()
    heads = there(numbers(block.num_edges, 4, seed=1)).requires_grad_()
    aggregate(block, there(numbers(14, 8)), heads).sum().backward()
    on_device._has_native.cache_clear()
    assert cupy.launches == [
        *["sum_rows_float_float_4"] * 2, *["sum_rows_float_float_1"] * 2,
        "sum_pieces_bfloat16_8", "sum_rows_bfloat16_float_8", "sum_pieces_float_4", "sum_rows_float_bfloat16_4",
        "sum_rows_float_float_1", "edge_dots_float_1",
    ]  # fmt: skip


def test_wide_ids_half_precision_and_rows_with_gaps(kernels):
    block, x = make_block("random", dtype=torch.int64), numbers(14, 8)
    expected = of_torch(block, x.half()[:, ::2].float(), torch.ones(block.num_edges, 1), False)
    found = aggregate(block, there(x.half())[:, ::2])
    torch.testing.assert_close(found.cpu().as_subclass(torch.Tensor), expected, rtol=1e-5, atol=1e-5, check_dtype=False)


def test_what_does_not_fit_is_refused(kernels, monkeypatch):
    block = make_block("random")
    with refused("(13, 4)", "14 rows source", "heads", ValueError):
        aggregate(block, there(numbers(13, 4)))
    with refused("(14, 4)", "columns 3 heads", "divisible", ValueError):
        aggregate(block, there(numbers(14, 4)), there(numbers(block.num_edges, 3)))
    monkeypatch.setattr(on_device, "_MOST_EDGES", 20)
    with refused("28", "edges GPU 20", "smaller batches", InputError):
        aggregate(block, there(numbers(14, 4)))


@pytest.mark.parametrize("mean", [False, True])
def test_heads_on_the_cpu(mean):
    ptr, ind = (torch.from_numpy(array) for array in block_of("ragged"))
    block = Block(indptr=ptr, indices=ind, edge_ids=ind, num_src=14)
    x, weights = numbers(14, 6), numbers(len(ind), 3, seed=1)
    found = aggregate(block, x, weights, "mean" if mean else "sum")
    torch.testing.assert_close(found, of_torch(block, x, weights, mean), rtol=1e-5, atol=1e-5, check_dtype=False)
