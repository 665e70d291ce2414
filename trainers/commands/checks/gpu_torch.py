"""Checks of ``hoptrain doctor --gpu`` with torch: whether torch and Numba share GPUs, memory and streams."""

from __future__ import annotations

from typing import Any

import torch
from numba import cuda

from hoptrain.trainers.commands.checks.finding import CheckFailed
from hoptrain.trainers.commands.checks.gpu_numba import NUMBERS, copy, expect_equal, needs_device

_BUSY_SIDE, _BUSY_PRODUCTS = 4096, 16


def needs_torch() -> None:
    """Raise ``CheckFailed`` unless torch sees a GPU, and ``CheckSkipped`` in the simulator."""
    needs_device()
    if not torch.cuda.is_available():
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU only"
        raise CheckFailed(f"torch {torch.__version__}, {build}, sees no GPU, but Numba sees one")


def busy() -> None:
    """Queue about 50 ms of work on torch's current stream."""
    square = torch.ones(_BUSY_SIDE, _BUSY_SIDE, device="cuda")
    for _ in range(_BUSY_PRODUCTS):
        torch.mm(square, square)


def numbers() -> Any:
    """Return ``NUMBERS`` as a torch tensor on the device."""
    return torch.from_numpy(NUMBERS).cuda()


def same_gpus() -> str:
    """Check that torch and Numba see the same GPUs in the same order."""
    needs_torch()
    ours = [gpu.uuid for gpu in cuda.gpus]
    theirs = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(torch.cuda.device_count())]
    if ours != theirs:
        raise CheckFailed(f"torch sees the GPUs {', '.join(theirs)}, Numba {', '.join(ours)}")
    return f"{torch.__version__}, CUDA {torch.version.cuda}, sees the same GPUs as Numba: {len(ours)}"


def stream() -> str:
    """Check that a Numba kernel on a torch stream waits for the work queued there before."""
    needs_torch()
    source, target = torch.zeros_like(numbers()), torch.zeros_like(numbers())
    arrays = cuda.as_cuda_array(source), cuda.as_cuda_array(target)
    copy(*arrays)  # compiles the kernel now, so that the stream is busy when it is queued below
    right = numbers()
    torch.cuda.synchronize()
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        busy()
        source.copy_(right)
        copy(*arrays, cuda.external_stream(side.cuda_stream))
        result = target + 1
    side.synchronize()
    expect_equal("torch, Numba and torch again on one stream", result.cpu().numpy(), NUMBERS + 1)
    return "kernels of torch and Numba run in the order in which they were queued"


def torch_to_numba() -> str:
    """Check that Numba accesses a torch tensor without a copy."""
    needs_torch()
    tensor = torch.zeros_like(numbers())
    torch.cuda.synchronize()
    lent = cuda.as_cuda_array(tensor)
    _expect_same_address(lent, tensor)
    copy(cuda.to_device(NUMBERS), lent)
    cuda.synchronize()
    expect_equal("a tensor that a kernel has written", tensor.cpu().numpy(), NUMBERS)
    return "a Numba kernel writes to the memory of a tensor"


def numba_to_torch() -> str:
    """Check that torch accesses a Numba array without a copy."""
    needs_torch()
    array = cuda.to_device(NUMBERS)
    tensor = torch.as_tensor(array, device="cuda")
    _expect_same_address(array, tensor)
    tensor += 1
    torch.cuda.synchronize()
    expect_equal("an array that torch has written", array.copy_to_host(), NUMBERS + 1)
    return "torch writes to the memory of a Numba array"


def _expect_same_address(array: Any, tensor: Any) -> None:
    address = array.__cuda_array_interface__["data"][0]
    if address != tensor.data_ptr():
        raise CheckFailed(f"the array is at {address:#x}, the tensor at {tensor.data_ptr():#x}: it was copied")


def peers() -> str:
    """Report which GPUs can read one another's memory (peer-to-peer access)."""
    needs_torch()
    gpus = range(torch.cuda.device_count())
    if len(gpus) == 1:
        return "only one GPU"
    apart = [f"{a}-{b}" for a in gpus for b in gpus if a != b and not torch.cuda.can_device_access_peer(a, b)]
    return f"{len(gpus)} GPUs, " + (f"no peer-to-peer access: {', '.join(apart)}" if apart else "each can read the memory of all others")
