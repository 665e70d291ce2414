"""How many bytes of device memory does sampling an epoch move, and what time does that predict on a GPU that is not there?

A *bulk* is a group of mini-batches that are sampled together. Its host code runs with a stub of the CUDA driver
(``hoptrain.benchmarks.common.stub_driver``), and the kernel launches are recorded with their arguments. The same mini-batches are sampled on the CPU to find
the true sizes, from which ``hoptrain.benchmarks.traffic`` counts what each launch reads and writes. The tests compare these counts with the accesses of the
compiled kernels. The time is a **prediction**: the bytes divided by the memory bandwidth, plus the time of the launches in captured CUDA graphs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from hoptrain.benchmarks.common.options import SEED
from hoptrain.benchmarks.common.stub_driver import StubStream, giving_sizes, stubbed
from hoptrain.benchmarks.traffic.bulk import count_bytes
from hoptrain.benchmarks.traffic.count import Moved
from hoptrain.benchmarks.traffic.facts import Facts, facts_of
from hoptrain.benchmarks.traffic.predict import Device, predict
from hoptrain.benchmarks.traffic.record import recorded
from hoptrain.engine import Dataset, Schedule
from hoptrain.engine.arrays import Array
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.cuda.drivers import driver_for


def predict_epoch(
    data: Dataset, sampler: NeighborSampler, schedule: Schedule, kernels: Sequence[str], bulk: int, device: Device
) -> Iterator[dict[str, Any]]:
    """Yield, for each schedule in ``kernels``, a record of each CUDA kernel in a bulk of ``bulk`` mini-batches, and one of all bulks of an epoch."""
    seeds = [schedule.batch_items(0, step) for step in range(min(bulk, schedule.num_steps))]
    facts = facts_of(data.graph, sampler.sample_bulk(data.graph, seeds))
    for kernel in kernels:
        moved = launches_of(data, sampler, seeds, kernel, facts)
        about = {"schedule": kernel, "bulk": len(seeds), "device": device.name}
        yield from (about | row for row in _described(moved, facts, device, schedule.num_steps))


def launches_of(data: Dataset, sampler: NeighborSampler, seeds: Sequence[Array], kernel: str, facts: Facts) -> list[Moved]:
    """Return the data that each launch of a bulk moves. A first bulk with the same seeds has already allocated the arrays."""
    with stubbed() as counts, giving_sizes(facts.sizes, Counter[str]()):
        workspace = Workspace(device="cuda", kernel=kernel, placement="device", cuda_graphs=False)
        workspace._stream = StubStream(counts)
        driver: Any = driver_for(data.graph, sampler, workspace)
        driver.start(seeds, seed=SEED, epoch=0, first_batch=0)()
        while _is_crowded(driver, facts):
            driver.tables.share //= 2
            driver.start(seeds, seed=SEED, epoch=0, first_batch=0)()
        with recorded() as launches:
            driver.start(seeds, seed=SEED, epoch=0, first_batch=0)()
        return count_bytes(launches, facts, driver)


def _is_crowded(driver: Any, facts: Facts) -> bool:
    """Return whether a packed table would be more than half full. Kernels report this only on a device."""
    table = driver.frontier.stamped
    return table is not None and table.packed is not None and 2 * facts.most_nodes > table.packed.words.shape[1]


def _described(moved: Sequence[Moved], facts: Facts, device: Device, num_batches: int) -> Iterator[dict[str, Any]]:
    by_kernel: dict[str, list[Moved]] = defaultdict(list)
    for launch in moved:
        by_kernel[launch.kernel].append(launch)
    for what, launches in by_kernel.items():
        yield {"what": what} | _row(launches, facts, device, 1.0)
    yield {"what": "epoch"} | _row(moved, facts, device, num_batches / len(facts.sizes["zeros"]))


def _row(launches: Sequence[Moved], facts: Facts, device: Device, times: float) -> dict[str, Any]:
    """Return the record of ``times`` repetitions of these launches."""
    found, edges = predict(launches, device), facts.num_edges
    return {
        "launches": times * found.launches,
        "asked_bytes_edge": found.asked / edges,
        "moved_bytes_edge": found.moved / edges,
        "ms": 1e3 * found.seconds * times,
        "careful_ms": 1e3 * found.careful_seconds * times,
    }
