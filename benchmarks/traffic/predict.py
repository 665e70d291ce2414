"""Prediction of a bulk's time on a device from counted bytes and launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hoptrain.benchmarks.traffic.count import Moved
from hoptrain.engine import InputError

LAUNCH_SECONDS = 2e-6
"""Estimated overhead in seconds of a kernel in a captured CUDA graph: the gap before the next kernel, and the time of its last thread blocks. Not measured."""
RANDOM_SHARE = 0.5
"""Estimated fraction of the memory bandwidth that random accesses of single 32-byte sectors reach, since each moves at least 64 bytes. Not measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The properties of a GPU that predictions need.

    Attributes:
        name: name of the GPU.
        bandwidth: bandwidth of its memory in bytes a second.
        cache_bytes: bytes of its second-level cache.
        threads: threads that it runs at once.
    """

    name: str
    bandwidth: float
    cache_bytes: int
    threads: int


DEVICES = {
    device.name: device
    for device in (
        Device(name="a100", bandwidth=2.04e12, cache_bytes=40 << 20, threads=108 * 2048),
        Device(name="h100", bandwidth=3.35e12, cache_bytes=50 << 20, threads=132 * 2048),
        Device(name="h200", bandwidth=4.8e12, cache_bytes=50 << 20, threads=132 * 2048),
    )
}
"""GPUs by name, with the manufacturer's figures for the SXM versions; the A100 is the one with 80 GB."""


def device_named(name: str, bandwidth: float | None = None) -> Device:
    """Return the GPU of this name in ``DEVICES``. If ``bandwidth`` is given, in GB/s, it replaces the manufacturer's figure.

    Raises:
        InputError: there is no such device, or the bandwidth is not above 0.
    """
    if name not in DEVICES:
        raise InputError(f"device model is {name!r}: known models are {', '.join(DEVICES)}; choose one")
    return _with(DEVICES[name], bandwidth)


def this_device(bandwidth: float | None = None) -> Device:
    """Return the GPU of this process as the driver describes it. If ``bandwidth`` is given, in GB/s, it replaces the driver's figure.

    If the driver does not report the memory's bandwidth, it is taken from ``DEVICES``.

    Raises:
        InputError: the bandwidth is not above 0; or it is neither given nor known.
    """
    from numba import cuda

    device: Any = cuda.get_current_device()
    threads = device.MULTIPROCESSOR_COUNT * device.MAX_THREADS_PER_MULTIPROCESSOR
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    # clock in kHz, two transfers per clock cycle, bus width in bits
    told = 2e3 * device.MEMORY_CLOCK_RATE * device.GLOBAL_MEMORY_BUS_WIDTH / 8
    told = told or next((known.bandwidth for known in DEVICES.values() if known.name in name.lower()), 0.0)
    if not told and bandwidth is None:
        raise InputError("the bandwidth (speed) of this GPU's memory is unknown: the driver does not report it; give --bandwidth in GB/s")
    return _with(Device(name=name, bandwidth=told, cache_bytes=device.L2_CACHE_SIZE, threads=threads), bandwidth)


def _with(device: Device, bandwidth: float | None) -> Device:
    if bandwidth is None:
        return device
    if not bandwidth > 0:
        raise InputError(f"bandwidth is {bandwidth}: must be above 0 GB/s; give a positive number")
    return Device(name=device.name, bandwidth=1e9 * bandwidth, cache_bytes=device.cache_bytes, threads=device.threads)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """The predicted traffic and time of a bulk.

    Attributes:
        asked: bytes that warps request, without a second-level cache.
        moved: bytes of these that reach the device's memory, with the cache.
        launches: number of launches.
        seconds: time of the moved bytes at full memory bandwidth, plus the overhead of the launches.
        careful_seconds: a more cautious ``seconds``, with random accesses at ``RANDOM_SHARE`` of the bandwidth.
    """

    asked: float
    moved: float
    launches: int
    seconds: float
    careful_seconds: float


def predict(moved: Sequence[Moved], device: Device) -> Prediction:
    """Return the predicted traffic and time of consecutive launches, each limited by the memory bandwidth."""
    asked = sum(sum(launch.bytes()) for launch in moved)
    through = sum(sum(launch.bytes(device.cache_bytes, device.threads)) for launch in moved)
    ordered = sum(access.ordered for launch in moved for access in launch.accesses)
    overhead = LAUNCH_SECONDS * len(moved)
    careful = (ordered + (through - ordered) / RANDOM_SHARE) / device.bandwidth
    return Prediction(
        asked=asked,
        moved=through,
        launches=len(moved),
        seconds=through / device.bandwidth + overhead,
        careful_seconds=careful + overhead,
    )
