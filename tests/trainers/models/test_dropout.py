"""Dropout with 16 random bits per element: its rate, gradient, seed, the kernels of a GPU, and the fallback to torch's dropout.

Without a GPU, g++ and the simulator run its kernels, on tensors that claim to be on a GPU.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cpp.stand_in import STREAM, Stream, _cupy  # noqa: F401
from cuda_case import TESTED, needs_cuda, put_stand_in, simulated
from numba import cuda
from torch import nn

from hoptrain.engine.device import is_simulated
from hoptrain.kernels.cpu.training.dropout import drop
from hoptrain.kernels.cuda import native
from hoptrain.kernels.cuda.launch import Launch
from hoptrain.kernels.shared.dropout import BLOCK
from hoptrain.trainers.models.cuda import dropout as on_gpu
from hoptrain.trainers.models.layered import seed_generators
from hoptrain.trainers.models.layers import Dropout, dropout, relu_dropout


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


def test_bits_do_not_depend_on_the_number_of_threads():
    x, threads, results = torch.ones(300_001), torch.get_num_threads(), []
    for number in (1, 3):
        torch.set_num_threads(number)
        torch.manual_seed(4)
        results.append(Dropout(0.25)(x))
    torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, 2 * BLOCK + 65])
def test_each_element_has_its_own_bits_of_philox(size):
    """Element i of a block of 1,024 reads half (i // 128) % 2 of word i // 256 of call i % 128."""
    x, out = np.arange(1, size + 1, dtype=np.float32), np.empty(size, np.float32)
    seed, limit = 0x1234_5678_9ABC_DEF0, 30_000
    drop(x, out, np.uint64(seed), np.uint32(limit), np.float32(2), False, 0, -(-size // BLOCK))
    for i in range(size):
        block, place = divmod(i, BLOCK)
        bits = philox(block * 128 + place % 128, seed)[place // 256] >> 16 * (place // 128 % 2) & 0xFFFF
        assert out[i] == (0 if bits < limit else 2 * x[i])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_relu_and_dropout_in_one_pass_are_those_of_two(dtype):
    """Values and gradients are bit-identical, also for NaN, infinity and the bounds of zero."""
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-45] * 50)
    x = torch.cat([special, torch.randn(5000)]).to(dtype)
    results = []
    for function in (relu_dropout, lambda rows, p: dropout(F.relu(rows), p)):
        torch.manual_seed(5)
        rows = x.clone().requires_grad_()
        out = function(rows, 0.3)
        out.backward(torch.arange(len(x)).to(dtype))
        results.append((out.detach(), rows.grad))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(params=["cpp", "numba"])
def on_a_gpu(request, monkeypatch):
    """Select the CUDA C++ or Numba kernels, and return ``steps`` on a GPU; without one, all tensors claim to be on a GPU meanwhile."""
    if not is_simulated() and not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    on_gpu._has_native.cache_clear()
    if is_simulated():
        if request.param == "cpp":
            request.getfixturevalue("cupy")
        else:
            put_stand_in(monkeypatch)
        stream = Stream(STREAM) if request.param == "cpp" else cuda.stream()
        monkeypatch.setattr(on_gpu, "launch_for", lambda x: Launch(stream=stream, thresholds=TESTED, num_batches=1))
    elif request.param == "numba":
        monkeypatch.setattr(native, "reason_against", lambda: "a test")
    elif (reason := native.reason_against()) is not None:
        pytest.skip(reason)

    def run(function, x, gradient):
        if not is_simulated():
            return [tensor.cpu() for tensor in steps(function, x.cuda(), gradient.cuda())]
        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, "is_cuda", True)
            patched.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
            return steps(function, x, gradient)

    yield run
    on_gpu._has_native.cache_clear()


def steps(function, x, gradient):
    """Return the results and gradients of two calls of dropout after one seed."""
    torch.manual_seed(6)
    found = []
    for _ in range(2):
        rows = x.detach().requires_grad_()
        out = function(rows, 0.3)
        out.backward(gradient)
        found += [out.detach(), rows.grad]
    return found


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [dropout, relu_dropout])
def test_a_gpu_drops_what_a_cpu_drops(on_a_gpu, function, dtype):
    """Values and gradients are bit-identical, also of columns that do not lie together, and of an empty tensor."""
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), float("-inf")])
    x = torch.cat([special, torch.randn(1195)]).to(dtype).view(100, 12)
    gradient = torch.randn(100, 12).to(dtype)
    for rows, by_rows in ((x, gradient), (x.T, gradient.T), (x[:0], gradient[:0])):
        for found, expected in zip(on_a_gpu(function, rows, by_rows), steps(function, rows, by_rows), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@simulated
@pytest.mark.parametrize("on_a_gpu", ["cpp"], indirect=True)
def test_one_launch_each_computes_relu_and_dropout_and_their_gradients(on_a_gpu, cupy):
    for dtype in (torch.float32, torch.bfloat16):
        on_a_gpu(relu_dropout, torch.ones(5, dtype=dtype), torch.ones(5, dtype=dtype))
    assert cupy.launches == ["drop_float", "pass_gradient_float"] * 2 + ["drop_bfloat16", "pass_gradient_bfloat16"] * 2


@pytest.mark.parametrize("reason", ["no numba-cuda", "captured"])
def test_a_gpu_without_kernels_and_a_captured_graph_use_torchs_dropout(monkeypatch, reason):
    """A captured graph would repeat the seed that it was captured with."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(on_gpu, "has_kernels", lambda: reason != "no numba-cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: reason == "captured")
    monkeypatch.setattr(F, "dropout", lambda *given: given)
    x = torch.ones(3)
    assert dropout(x, 0.25) == (x, 0.25, True, False)


def philox(counter, seed):
    """Return the four words of Philox4x32-10 in plain Python."""
    c, k = [counter, 0, 0, 0], [seed % 2**32, seed >> 32]
    for _ in range(10):
        high, low = zip(*(divmod(m * word, 2**32) for m, word in ((0xD2511F53, c[0]), (0xCD9E8D57, c[2]))), strict=True)
        c = [high[1] ^ c[1] ^ k[0], low[1], high[0] ^ c[3] ^ k[1], low[0]]
        k = [(word + step) % 2**32 for word, step in zip(k, (0x9E3779B9, 0xBB67AE85), strict=True)]
    return c


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
    """Seeding affects only the generators of the CPU and of the given device, with torch's results."""
    devices = torch.Generator(), torch.Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", devices)
    seed_generators(7, torch.device("cuda", 1))
    assert devices[1].initial_seed() == 7 != devices[0].initial_seed()
    drawn = torch.rand(4)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(4))
