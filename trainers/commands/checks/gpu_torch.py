"""What ``hoptrain doctor --gpu`` looks at with torch: whether it and Numba work on one GPU, in one memory and on one stream."""

from __future__ import annotations

from typing import Any

import torch
from numba import cuda

from hoptrain.trainers.commands.checks.finding import Wrong
from hoptrain.trainers.commands.checks.gpu_numba import NUMBERS, copy, expect_equal, needs_device

_BUSY_SIDE, _BUSY_PRODUCTS = 4096, 16


def needs_torch() -> None:
    """Raise unless torch, too, works with GPUs here."""
    needs_device()
    if not torch.cuda.is_available():
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU only"
        raise Wrong(f"torch {torch.__version__}, {build}, sees no GPU where Numba sees one")


def busy() -> None:
    """Queue work for some 50 ms on torch's current stream."""
    square = torch.ones(_BUSY_SIDE, _BUSY_SIDE, device="cuda")
    for _ in range(_BUSY_PRODUCTS):
        torch.mm(square, square)


def numbers() -> Any:
    """``NUMBERS`` on the device, as torch's."""
    return torch.from_numpy(NUMBERS).cuda()


def same_gpus() -> str:
    """Torch and Numba see the same GPUs in the same order."""
    needs_torch()
    ours = [gpu.uuid for gpu in cuda.gpus]
    theirs = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(torch.cuda.device_count())]
    if ours != theirs:
        raise Wrong(f"torch sees the GPUs {', '.join(theirs)}, Numba {', '.join(ours)}")
    return f"{torch.__version__}, CUDA {torch.version.cuda}, sees the GPUs that Numba sees: {len(ours)}"


def stream() -> str:
    """A kernel of Numba's waits its turn on a stream of torch's."""
    needs_torch()
    source, target = torch.zeros_like(numbers()), torch.zeros_like(numbers())
    arrays = cuda.as_cuda_array(source), cuda.as_cuda_array(target)
    copy(*arrays)  # compiled now: the stream is to be busy when the kernel is queued
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
    return "kernels of both run in the order in which they were queued"


def torch_to_numba() -> str:
    """Numba works on a tensor without a copy."""
    needs_torch()
    tensor = torch.zeros_like(numbers())
    torch.cuda.synchronize()
    lent = cuda.as_cuda_array(tensor)
    _expect_same_place(lent, tensor)
    copy(cuda.to_device(NUMBERS), lent)
    cuda.synchronize()
    expect_equal("a tensor that a kernel has written", tensor.cpu().numpy(), NUMBERS)
    return "a kernel writes a tensor's own memory"


def numba_to_torch() -> str:
    """Torch works on an array of Numba's without a copy."""
    needs_torch()
    array = cuda.to_device(NUMBERS)
    tensor = torch.as_tensor(array, device="cuda")
    _expect_same_place(array, tensor)
    tensor += 1
    torch.cuda.synchronize()
    expect_equal("an array that torch has written", array.copy_to_host(), NUMBERS + 1)
    return "torch writes a device array's own memory"


def _expect_same_place(array: Any, tensor: Any) -> None:
    place = array.__cuda_array_interface__["data"][0]
    if place != tensor.data_ptr():
        raise Wrong(f"the array lies at {place:#x}, the tensor at {tensor.data_ptr():#x}: it was copied")


def peers() -> str:
    """Which GPUs read one another's memory."""
    needs_torch()
    gpus = range(torch.cuda.device_count())
    if len(gpus) == 1:
        return "one GPU: nothing to ask"
    apart = [f"{a}-{b}" for a in gpus for b in gpus if a != b and not torch.cuda.can_device_access_peer(a, b)]
    return f"{len(gpus)} GPUs, " + (f"without access: {', '.join(apart)}" if apart else "each reads the memory of all others")
