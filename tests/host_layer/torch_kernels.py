"""Results of torch's operations on the emulated device: the CPU's kernels compute them, on the device's memory and in the order of its streams.

torch's own host code runs unchanged, with its calls of CUDA, but its CUDA kernels compute nothing. A dispatch mode queues the same operation of the CPU
behind them, on the same stream. Random operations and views are left alone.
"""

import ctypes
import gc
from functools import partial
from itertools import count

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from host_layer.kernels import FAILED
from host_layer.record import LIBRARY

COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
WITHOUT_KERNELS = {getattr(torch.ops.aten, name) for name in ("empty", "empty_like", "empty_strided", "new_empty", "record_stream")}
VALUES = (torch.ops.aten.allclose.default, torch.ops.aten.equal.default)
"""Operations that compute on the device and return a Python value, for which the host waits."""
_numbers = count(1)
_queued = {}


class TorchKernels(TorchDispatchMode):
    """A mode in which operations on CUDA tensors have the CPU's results.

    Raises:
        NotImplementedError: a copy to the host converts or gathers on the device, inside one operation of torch.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        is_random, target = torch.Tag.nondeterministic_seeded in function.tags, torch.device(kwargs.get("device") or "cpu")
        on_host = target.type != "cuda" and not any(tensor.is_cuda for tensor in tensors)
        if on_host or is_random or function.is_view or function.overloadpacket in WITHOUT_KERNELS:
            return function(*args, **kwargs)
        written = _written(function, args, kwargs)
        given = tree_map(_argument, (args, kwargs))
        if function in VALUES:
            torch.cuda.current_stream(next(tensor.device for tensor in tensors if tensor.is_cuda)).synchronize()
            args, kwargs = tree_map(_tensor, given)
            return function(*args, **kwargs)
        if any(tensor.is_cuda for tensor in written):  # torch's host code may already write to them, such as by a copy
            given = _queue_snapshot(given, written[0].device)
        out = function(*args, **kwargs)
        results = written or [each for each in tree_flatten(out)[0] if isinstance(each, torch.Tensor)]
        if any(result.is_cuda for result in results):
            _queue(partial(_compute, function, given, [_Place(result) for result in results], bool(written)), results[0].device)
        elif function in COPIES:
            _check_copy(tensors[-1], results[0])
        return out


class _Place:
    """Where a CUDA tensor lies in memory. It does not keep the memory, which torch may reuse for later work of the same stream."""

    def __init__(self, tensor):
        storage = tensor.untyped_storage()
        self.address, self.bytes, self.dtype = storage.data_ptr(), storage.nbytes(), tensor.dtype
        self.layout = tensor.shape, tensor.stride(), tensor.storage_offset()

    def on_host(self):
        """Return the tensor as one of the CPU, over the same memory."""
        size = self.bytes // self.dtype.itemsize
        if not size:
            return torch.empty_strided(*self.layout[:2], dtype=self.dtype)
        memory = (ctypes.c_uint8 * self.bytes).from_address(self.address)
        return torch.frombuffer(memory, dtype=self.dtype, count=size).as_strided(*self.layout)


def _written(function, args, kwargs):
    """Return the tensors that an operation writes to its arguments."""
    found = []
    for i, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += tree_flatten(args[i] if i < len(args) else kwargs.get(argument.name))[0]
    return [each for each in found if isinstance(each, torch.Tensor)]


def _argument(value):
    """Return an argument for the operation of the CPU. Tensors in pageable memory are copied now, as CUDA does."""
    if isinstance(value, torch.Tensor):
        return _Place(value) if value.is_cuda else value if value.is_pinned() else value.detach().clone()
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _queue_snapshot(given, device):
    """Copy the arguments at this point of the stream, and return functions that return the copies."""
    copies = {}

    def take(place):
        copies[id(place)] = place.on_host().clone()

    places = [each for each in tree_flatten(given)[0] if isinstance(each, _Place)]
    _queue(lambda: [take(place) for place in places], device)
    return tree_map(lambda each: partial(lambda place: copies[id(place)], each) if isinstance(each, _Place) else each, given)


def _compute(function, given, places, writes):
    """Run an operation on the CPU, and store its results at ``places``."""
    args, kwargs = tree_map(_tensor, given)
    out = function(*args, **kwargs)
    found = _written(function, args, kwargs) if writes else [each for each in tree_flatten(out)[0] if isinstance(each, torch.Tensor)]
    for place, result in zip(places, found, strict=True):
        target = place.on_host()
        assert (target.shape, target.dtype) == (result.shape, result.dtype), (function, target.shape, result.shape, result.dtype)
        target.copy_(result)


def _tensor(value):
    return value.on_host() if isinstance(value, _Place) else value() if isinstance(value, partial) else value


def _check_copy(source, target):
    as_bytes = source.stride() == target.stride() and is_non_overlapping_and_dense_or_false(source)
    if source.dtype != target.dtype or not (as_bytes or (source.is_contiguous() and target.is_contiguous())):
        raise NotImplementedError(
            f"a copy to the host of {source.dtype} with strides {source.stride()} as {target.dtype}: convert it first"
        )


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _run(number):
    """Run queued work. The device's callback cannot raise; garbage collection is off as in ``kernels``."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        work, is_captured = _queued[number]
        if not is_captured:
            del _queued[number]
        with _disable_current_modes(), torch.no_grad():
            work()
    except BaseException as error:
        FAILED.append(error)
    finally:
        if was_enabled:
            gc.enable()


def _queue(work, device):
    """Queue work of the emulated device on torch's current stream, or add it to the stream's capture."""
    number = next(_numbers)
    _queued[number] = work, torch.cuda.is_current_stream_capturing()
    stream = torch.cuda.current_stream(device).cuda_stream
    LIBRARY.host_layer_launch(ctypes.c_void_p(stream), None, _run, ctypes.c_void_p(number))
