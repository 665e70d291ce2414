"""Times are predicted from bytes and launches."""

from types import SimpleNamespace

import pytest
from cases.mistakes import refused

from hoptrain.benchmarks.traffic import predict
from hoptrain.benchmarks.traffic.count import Access, Moved
from hoptrain.benchmarks.traffic.predict import DEVICES, LAUNCH_SECONDS, RANDOM_SHARE, device_named, this_device


def test_the_time_of_two_launches():
    device = device_named("h200", bandwidth=1000)
    ordered = Moved("one", (1, 1), 32, (Access("a", False, 3e9), Access("b", True, 1e9)))
    anywhere = Moved("two", (1, 1), 32, (Access("table", False, 0.0, 1e9, 1e12),))
    found = predict.predict([ordered, anywhere], device)
    assert (found.asked, found.moved, found.launches) == (36e9, 36e9, 2)
    assert found.seconds == pytest.approx(36e9 / 1e12 + 2 * LAUNCH_SECONDS)
    assert found.careful_seconds == pytest.approx((4e9 + 32e9 / RANDOM_SHARE) / 1e12 + 2 * LAUNCH_SECONDS)


def test_what_stays_in_the_cache_is_asked_for_and_not_moved():
    device = DEVICES["a100"]
    fits = Access("table", False, 0.0, 1e9, device.cache_bytes / 2)
    found = predict.predict([Moved("look_up", (1, 1), 32, (fits,))], device)
    assert found.asked == 32e9
    assert found.moved == pytest.approx(device.cache_bytes / 2, rel=1e-6)


class Device(SimpleNamespace):
    """A device with exactly the attributes that the CUDA driver provides."""

    def __init__(self, name, **attributes):
        driver = pytest.importorskip("cuda.bindings.driver")
        assert all(hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}") for attribute in attributes)
        super().__init__(name=name, **attributes)


def test_the_driver_reports(monkeypatch):
    """The memory bandwidth of a device follows from clock and bus width: 2.6 GHz and 5120 bits give 3.3 TB/s."""
    reported = Device(
        name=b"GPU", MULTIPROCESSOR_COUNT=132, MAX_THREADS_PER_MULTIPROCESSOR=2048, L2_CACHE_SIZE=50 << 20, MEMORY_CLOCK_RATE=2_600_000,
        GLOBAL_MEMORY_BUS_WIDTH=5120,
    )  # fmt: skip
    monkeypatch.setattr("numba.cuda.get_current_device", lambda: reported)
    device = this_device()
    assert (device.name, device.cache_bytes, device.threads) == ("GPU", 50 << 20, 132 * 2048)
    assert device.bandwidth == pytest.approx(3.328e12)
    assert this_device(bandwidth=1000).bandwidth == 1e12
    reported.MEMORY_CLOCK_RATE = 0
    with refused("speed", "driver not GPU memory", "--bandwidth GB/s"):
        this_device()
    reported.name = "NVIDIA H200"
    assert this_device().bandwidth == DEVICES["h200"].bandwidth


def test_wrong_options():
    with refused("'v100'", "device model known", "a100 h100 h200"):
        device_named("v100")
    with refused("bandwidth is -1", "above 0 GB/s", "give a positive number"):
        device_named("h100", bandwidth=-1)
