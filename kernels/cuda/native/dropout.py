"""Dropout by the kernels of ``dropout.cu``, in one pass over the memory: an element is read once and written once, and no mask is stored."""

from hoptrain.kernels.cuda.native import kernel_of, pointer
from hoptrain.kernels.cuda.native.gather import cupy_stream
from hoptrain.kernels.shared.dropout import num_calls

NAMES = {"float32": "float", "bfloat16": "bfloat16", "float64": "double"}
"""Name of a torch or NumPy dtype -> name of that type in kernel names."""


def drop(launch, x, out, seed, dropped, *, clip):
    """Write ``x * scale`` to ``out``, or 0 where an element's 16 bits are below ``dropped``.

    Args:
        launch: Launcher of one batch, on the stream on which the arrays are used.
        x: Elements of float32, bfloat16 or float64, contiguous and on the device.
        out: Array of the same size and dtype.
        seed: Seed of the random bits, in [-2 ** 63, 2 ** 63).
        dropped: Number of the 65,536 values of 16 bits that drop an element, in (0, 65536). The scale is 65536 / (65536 - ``dropped``).
        clip: Whether elements of at most 0 become 0 too, as by ReLU.
    """
    _launch(launch, "drop", (x, out), seed, dropped, int(clip))


def pass_gradient(launch, gradient, out, by_x, dropped):
    """Write the gradient of ``drop`` with ``clip`` to ``by_x``, from the results ``out`` of ``drop``."""
    _launch(launch, "pass_gradient", (gradient, out, by_x), dropped)


def _launch(launch, name, arrays, *options):
    size, thresholds = arrays[0].numel(), launch.thresholds
    dtype = str(arrays[0].dtype).removeprefix("torch.")
    blocks = min(-(-num_calls(size) // thresholds.block), thresholds.max_blocks)
    with cupy_stream(int(launch.stream)):
        kernel_of("dropout", f"{name}_{NAMES[dtype]}")((blocks,), (thresholds.block,), (*map(pointer, arrays), *options, size))
