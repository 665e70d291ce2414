"""Sampling of heterogeneous graphs on CUDA: each mini-batch is bit-identical to that of the CPU."""

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from cuda_case import needs_cuda, tested_blocks, to_host  # noqa: F401
from nodewise_cuda_case import ADDRESS, on_cuda

from hoptrain.engine import HeteroDataset, HeteroGraph
from hoptrain.engine.queue.ahead import run_inline
from hoptrain.samplers import HeteroSampler, SampleLoader

pytestmark = [needs_cuda, pytest.mark.usefixtures("tested_blocks")]


@pytest.fixture(scope="module")
def hetero():
    """Return a graph with two relations into one type, one within it, one into a type that the second hop reaches, and an unreachable type."""
    rng = np.random.default_rng(0)

    def edges(num_src, num_dst, number):
        return rng.integers(0, num_src, number), rng.integers(0, num_dst, number)

    relations = {("p", "cites", "p"): edges(20, 20, 60), ("a", "writes", "p"): edges(15, 20, 50), ("p", "of", "a"): edges(20, 15, 40)}
    return HeteroGraph.from_edges({"p": 20, "a": 15, "venue": 4}, relations | {("p", "in", "venue"): edges(20, 4, 10)})


def contents(batch):
    facts = batch.seed_type, batch.seed_counts, batch.num_seeds, batch.seed, batch.epoch, batch.batch, batch.nested
    num_src = [{relation: block.num_src for relation, block in hop.items()} for hop in batch.blocks]
    return facts, num_src, {name: (to_host(array).dtype, to_host(array).tolist()) for name, array in batch.arrays().items()}


@pytest.mark.parametrize(
    ("fanouts", "options", "kernel"),
    [
        ([2, 3], {}, "sample"),
        ([2, -1], {"replace": True}, "transit"),
        ({"p:cites:p": [2, 0], "a:writes:p": [0, -1], "p:of:a": [3, 2], "p:in:venue": [-1, 1]}, {}, "auto"),
        ([2, 3, 1], {"expand": "new"}, "sample"),
        ([2, -1, 2], {"expand": "new"}, "transit"),
        ({"p:cites:p": [2, 0, 1], "a:writes:p": [0, -1, 2], "p:of:a": [3, 2, 1], "p:in:venue": [-1, 1, 1]}, {"expand": "new"}, "auto"),
    ],
)
def test_equal_to_the_cpu(hetero, fanouts, options, kernel):
    sampler, workspace = HeteroSampler(fanouts, "p", **options), on_cuda(kernel)
    for bulk in ([[3, 7, 1], [19, 0]], [[5]]):
        seeds = [np.array(own) for own in bulk]
        found = [contents(batch) for batch in sampler.sample_bulk(hetero, seeds, workspace=workspace, **ADDRESS)]
        assert found == [contents(batch) for batch in sampler.sample_bulk(hetero, seeds, **ADDRESS)]


@pytest.mark.parametrize("expand", ["all", "new"])
def test_seeds_of_several_types_are_those_of_the_cpu(hetero, expand):
    sampler, workspace = HeteroSampler([2, 2], expand=expand), on_cuda()
    seeds = [hetero.numbered(own) for own in ({"p": [3, 7], "a": [1]}, {"venue": [2], "p": [5]}, {"a": [4, 9, 2]})]
    found = [contents(batch) for batch in sampler.sample_bulk(hetero, seeds, workspace=workspace, **ADDRESS)]
    assert found == [contents(batch) for batch in sampler.sample_bulk(hetero, seeds, **ADDRESS)]


def test_a_bulk_of_16(hetero):
    sampler, workspace, seeds = HeteroSampler([2], "a"), on_cuda(), [np.array([v % 15]) for v in range(16)]
    found = [contents(batch) for batch in sampler.sample_bulk(hetero, seeds, workspace=workspace, **ADDRESS)]
    assert found == [contents(batch) for batch in sampler.sample_bulk(hetero, seeds, **ADDRESS)]


def data_of(graph, with_rows=True):
    rng = np.random.default_rng(2)
    rows = {"x": {"p": rng.random((20, 3), np.float32), "a": rng.integers(0, 9, (15, 2))}, "y": rng.integers(0, 4, 20)}
    return HeteroDataset(graph=graph, seed_type="p", splits={"train": np.arange(11)}, **(rows if with_rows else {}))


def all_contents(batch):
    rows = batch.x | ({} if batch.y is None else {"y": batch.y})
    return contents(batch), {name: (to_host(own).dtype, to_host(own).tolist()) for name, own in rows.items()}


@pytest.mark.parametrize("with_rows", [True, False])
def test_the_loader_gives_the_batches_of_the_cpu(hetero, with_rows):
    """A loader makes the CPU's batches on CUDA; they are kept to the end of the epoch, so that overwritten batches would show."""
    data = data_of(hetero, with_rows)
    found, expected = (
        [all_contents(batch) for batch in list(SampleLoader(data, HeteroSampler([2, 2], "p"), device=device, batch_size=4, seed=3))]
        for device in ("cuda", "cpu")
    )
    assert len(found) == 3
    assert found == expected


def test_a_worker_writes_what_it_samples_on_the_device(hetero):
    """A worker's code makes the CPU's batches on CUDA; it runs in this process, since a worker's kernels would take minutes in the simulator."""
    batches = []
    for device in ("cuda", "cpu"):
        task = SampleLoader(data_of(hetero), HeteroSampler([2, 2], "p"), device=device, batch_size=4).task
        batches.append([all_contents(header.filled(arrays)) for arrays, header in run_inline(task, 0, range(3))])
    assert batches[0] == batches[1]


def sampled(hetero, seeds, *kernel):
    return HeteroSampler([2], "a").sample(hetero, np.array(seeds), workspace=on_cuda(*kernel))


MISTAKES = {
    "a seed given twice": Mistake(lambda hetero: sampled(hetero, [3, 3]), value="seed 3", rule="given twice", remedy="numpy.unique(seeds)"),
    "a seed that the graph has not": Mistake(lambda hetero: sampled(hetero, [15]), value="seed 15", rule="not graph", remedy="0 14"),
    "a seed of several types given twice": Mistake(
        lambda hetero: HeteroSampler([2]).sample(hetero, {"p": [4], "a": [3, 3]}, workspace=on_cuda()),
        value="seed 3",
        rule="given twice",
        remedy="numpy.unique(seeds)",
    ),
    "edges by weight": Mistake(
        lambda hetero: HeteroSampler([2], "a", weighted=True).sample(hetero, [3], workspace=on_cuda()),
        value="weighted=True",
        rule="no kernels CUDA",
        remedy='device="cpu"',
    ),
    "an unknown schedule": Mistake(
        lambda hetero: sampled(hetero, [3], "warp"), value="'warp'", rule="kernel schedules", remedy="auto, sample, transit"
    ),
    "an unknown device": Mistake(
        lambda hetero: SampleLoader(data_of(hetero), HeteroSampler([2], "p"), device="tpu"),
        value="'tpu'",
        rule="device sampler",
        remedy='"cpu" "cuda" "cuda:1"',
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
