"""How exact and how fast are the sums over a batch's edges on a GPU, forward and backward, compared with float64 and with torch.sparse.mm?

``python -m hoptrain.benchmarks.device.sums`` prints a line for each block, data type and kind of sum, within half a minute: milliseconds measured with CUDA
events, the fraction of the memory bandwidth that ``hoptrain.kernels.cuda.native.aggregate`` reaches, and the largest error relative to float64. The exit
code is 1 if an error is too large, or if a second backward pass gives other bits. ``--device cpu`` runs it without a GPU, to try it out.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hoptrain.engine import load_dataset
from hoptrain.samplers import Block, NeighborSampler, SampleLoader
from hoptrain.trainers.models.sums import aggregate, on_device

WIDTHS = (100, 256, 256)
"""Number of input channels of each layer: 100 features as in ogbn-products, then 256 hidden channels."""
KINDS = ("sum", "mean", "weighted")
TOO_FAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Largest allowed error, by data type, relative to the largest absolute value of the exact result. For bfloat16, the derivative is rounded to 16 bits."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="size of synthetic:products relative to the original (default %(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=20, help="rounds whose mean time is printed (default %(default)s)")
    parser.add_argument(
        "--bandwidth", type=float, default=4.8, metavar="TB/S", help="bandwidth of the GPU's memory (default %(default)s, as of an H200)"
    )
    args = parser.parse_args(arguments)
    data = load_dataset("synthetic:products", scale=args.scale)
    loader = SampleLoader(data, NeighborSampler([15, 10, 5]), batch_size=args.batch_size, num_workers=0)
    blocks = next(iter(loader)).to(args.device).blocks
    if args.device != "cpu":
        print(f"{torch.cuda.get_device_name(args.device)}, kernels in {'CUDA C++' if on_device._has_native() else 'Numba'}")
    wrong = 0
    for block, width in zip(blocks, WIDTHS, strict=True):
        for dtype in TOO_FAR:
            for kind in KINDS:
                wrong += not compared(block, width, dtype, kind, args.rounds, args.bandwidth)
    print(f"{wrong} of {len(blocks) * len(TOO_FAR) * len(KINDS)} sums have a large error or differ from run to run")
    return int(wrong > 0)


def compared(block: Block, width: int, dtype: torch.dtype, kind: str, rounds: int, bandwidth: float) -> bool:
    """Measure one kind of sum on a block, print a line, and return whether the errors are small and the derivative is reproducible."""
    device = block.indptr.device
    x = torch.randn(block.num_src, width, device=device).to(dtype).requires_grad_()
    weights = torch.rand(block.num_edges, device=device) if kind == "weighted" else None
    gradient = torch.randn(block.num_dst, width, device=device)

    def forward() -> Tensor:
        return aggregate(block, x, weights, "mean" if kind == "mean" else "sum")

    def both() -> Tensor:
        return torch.autograd.grad(forward(), x, gradient)[0]

    def torchs() -> Tensor:
        return torch.autograd.grad(of_torch(block, x.float(), weights, kind), x, gradient)[0]

    out, first = forward().detach(), both()
    repeats = torch.equal(first, both())
    exact = x.detach().double().requires_grad_()
    expected = of_torch(block, exact, None if weights is None else weights.double(), kind)
    (derivative,) = torch.autograd.grad(expected, exact, gradient.double())
    errors = [_error(out, expected.detach()), _error(first, derivative)]
    times = [timed(work, rounds, device) for work in (forward, both, torchs)]
    moved = block.num_edges * (width * x.element_size() + 4) + block.num_dst * (4 + 4 * width)
    share = moved / 1e9 / times[0] / bandwidth  # GB per millisecond are TB/s
    size = f"{block.num_src:,} sources, {block.num_dst:,} destinations, {block.num_edges:,} edges, width {width}"
    print(
        f"{size}, {dtype}, {kind}: forward {times[0]:.3f} ms ({share:.0%} of the bandwidth), forward and backward {times[1]:.3f} ms, "
        f"both with torch.sparse.mm {times[2]:.3f} ms; relative error of the sums {errors[0]:.1e}, of the derivative {errors[1]:.1e}"
        f"{'' if repeats else '; the derivative differs from run to run'}",
        flush=True,
    )
    return repeats and errors[0] < TOO_FAR[torch.float32] and errors[1] < TOO_FAR[dtype]


def of_torch(block: Block, x: Tensor, weights: Tensor | None, kind: str) -> Tensor:
    """Return the sums computed by ``torch.sparse.mm`` in the data type of ``x``."""
    values = x.new_ones(block.num_edges) if weights is None else weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = torch.sparse_csr_tensor(block.indptr, block.indices, values, (block.num_dst, block.num_src), check_invariants=False)
        out: Tensor = torch.sparse.mm(matrix, x)
    return out / block.indptr.diff().clamp(min=1)[:, None] if kind == "mean" else out


def timed(work: Callable[[], object], rounds: int, device: torch.device) -> float:
    """Return the mean milliseconds of ``work``, measured with CUDA events on a GPU and with the clock on a CPU."""
    for _ in range(min(3, rounds)):
        work()
    if device.type == "cpu":
        begin = time.perf_counter()
        for _ in range(rounds):
            work()
        return 1e3 * (time.perf_counter() - begin) / rounds
    begins, ends = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begins.record()
    for _ in range(rounds):
        work()
    ends.record()
    ends.synchronize()
    milliseconds: float = begins.elapsed_time(ends) / rounds
    return milliseconds


def _error(found: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference, divided by the largest absolute expected value."""
    return float((found.double() - expected).abs().max() / expected.abs().max())


if __name__ == "__main__":
    sys.exit(main())
