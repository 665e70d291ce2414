"""Neighbour sampling on CUDA: each mini-batch is bit-identical to that of the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of
from conftest import make_graph
from cuda_case import TESTED, needs_cuda, to_host
from reference import neighbor as reference

from hoptrain.engine import Graph, InputError
from hoptrain.engine.gpu_memory.device_store import DeviceRows
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers import NeighborSampler, Workspace
from hoptrain.samplers.buffers.alias import build_alias_tables

pytestmark = needs_cuda

ADDRESS = {"seed": 2**63 + 7, "epoch": 3, "first_batch": 2**32 - 100}
NEVER = 1 << 40
MODES = {"distinct": {}, "replace": {"replace": True}, "weighted": {"replace": True, "weighted": True}}
SCHEDULES = {
    "sample": ("sample", TESTED),
    "thread": ("transit", replace(TESTED, thread_work=NEVER)),
    "warp": ("transit", replace(TESTED, thread_work=-1, warp_work=NEVER)),
    "block": ("transit", replace(TESTED, thread_work=-1, warp_work=-1, block_work=NEVER)),
    "grid": ("transit", replace(TESTED, thread_work=-1, warp_work=-1, block_work=-1)),
    "classes": ("transit", TESTED),
    "auto": ("auto", TESTED),
}


def weighted_graph(num_nodes=40, num_edges=300, seed=0):
    """Return a graph with hubs, isolated nodes, self loops, parallel edges, and columns whose weights are all 0."""
    plain = make_graph(num_nodes, num_edges, seed)
    weights = np.random.default_rng(seed).integers(0, 4, num_edges).astype(np.float32)
    weights[plain.indptr[3] : plain.indptr[6]] = 0
    return Graph(plain.indptr, plain.indices, weights=weights)


@pytest.fixture(scope="module")
def small_graph():
    return weighted_graph()


def on_cuda(schedule="sample", thresholds=None, placement="auto"):
    kernel, own = SCHEDULES[schedule]
    workspace = Workspace(device="cuda", kernel=kernel, placement=placement)
    workspace.on_device.thresholds = thresholds or own
    return workspace


def on_host(batch):
    """Return everything that a mini-batch holds as NumPy arrays, with their dtypes."""
    arrays = [batch.node_ids] + [getattr(block, name) for block in batch.blocks for name in ("indptr", "indices", "edge_ids")]
    facts = batch.num_seeds, batch.seed, batch.epoch, batch.batch, batch.num_step_seeds, batch.nested
    return facts, [block.num_src for block in batch.blocks], [(a.dtype, a.tolist()) for a in map(to_host, arrays)]


def check_equal(graph, fanouts, bulk, schedule, expand="all", mode="distinct"):
    sampler = NeighborSampler(fanouts, expand=expand, **MODES[mode])
    drawn = [on_host(batch) for batch in sampler.sample_bulk(graph, bulk, workspace=on_cuda(schedule), **ADDRESS)]
    assert drawn == [on_host(batch) for batch in sampler.sample_bulk(graph, bulk, **ADDRESS)]


def bulk_of(graph, sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.permutation(graph.num_nodes)[:n] for n in sizes]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("mode", MODES)
def test_equal_to_the_cpu(small_graph, mode, expand, schedule):
    check_equal(small_graph, [2, 5], bulk_of(small_graph, [3, 1, 4]), schedule, expand, mode)


@pytest.mark.parametrize("schedule", ["sample", "classes"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize(("sizes", "fanouts"), [([6], [2, 2, 2]), ([3, 1, 2, 5, 1, 1, 4], [3, 2])], ids=["1", "7"])
def test_bulks(small_graph, sizes, fanouts, expand, mode, schedule):
    check_equal(small_graph, fanouts, bulk_of(small_graph, sizes), schedule, expand, mode)


@pytest.mark.parametrize("schedule", ["sample", "classes"])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("mode", MODES)
def test_a_bulk_of_64(small_graph, mode, expand, schedule):
    check_equal(small_graph, [1, 1] if expand == "new" else [2], bulk_of(small_graph, [1] * 64), schedule, expand, mode)


@pytest.mark.parametrize("schedule", ["sample", "grid", "classes"])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("fanouts", [[-1], [2, -1, 3], [-1, 2]])
def test_all_neighbours(small_graph, fanouts, expand, schedule):
    sampler, workspace = NeighborSampler(fanouts, expand=expand), on_cuda(schedule)
    for sizes in ([2, 5], [1]):
        bulk = bulk_of(small_graph, sizes, seed=len(sizes))
        drawn = [on_host(batch) for batch in sampler.sample_bulk(small_graph, bulk, workspace=workspace, **ADDRESS)]
        assert drawn == [on_host(batch) for batch in sampler.sample_bulk(small_graph, bulk, **ADDRESS)]


@pytest.mark.parametrize("expand", ["all", "new"])
def test_equal_to_the_reference(small_graph, expand):
    """Batches on CUDA equal those of the slow reference, which shares no code with the CUDA and CPU kernels."""
    tables = build_alias_tables(small_graph)
    sampler = NeighborSampler([4, 3], replace=True, weighted=True, expand=expand)
    batch = sampler.sample(small_graph, np.array([5, 0, 9]), seed=11, workspace=on_cuda("classes"))
    expected, nodes = reference.batch(small_graph, [5, 0, 9], [4, 3], True, 11, 0, 0, tables=tables, expand=expand)
    blocks = [(*(to_host(a).tolist() for a in (b.indptr, b.indices, b.edge_ids)), b.num_src) for b in reversed(batch.blocks)]
    assert blocks == expected
    assert to_host(batch.node_ids).tolist() == nodes


def column_graph(degrees):
    """Return a graph in which node v has degrees[v] random in-neighbours."""
    degrees = list(degrees)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    sources = np.random.default_rng(0).integers(0, len(degrees), indptr[-1])
    return Graph(indptr, sources)


@pytest.mark.parametrize("schedule", ["sample", "thread", "warp", "block", "grid"])
@pytest.mark.parametrize("mode", ["distinct", "replace"])
def test_degrees_around_the_fanout(mode, schedule):
    """Batches equal the CPU's for nodes of degree 0, 1, fanout and fanout + 1, and at limits of the algorithms for distinct draws."""
    graph = column_graph([0, 1, 35, 36, 33, 32, 31, 64, 65, 200])
    check_equal(graph, [35], [np.arange(10), np.array([9, 3])], schedule, mode=mode)


@pytest.mark.parametrize("schedule", ["sample", "classes"])
@pytest.mark.parametrize("mode", ["distinct", "replace"])
def test_a_node_of_a_million_edges(mode, schedule):
    check_equal(column_graph([10**6, 3, 2]), [9], [np.array([0])], schedule, mode=mode)


@pytest.mark.parametrize("schedule", ["block", "grid"])
def test_all_edges_of_a_hub_by_many_threads(schedule):
    check_equal(column_graph([600, 3, 2]), [-1], [np.array([0, 1]), np.array([0])], schedule)


@pytest.mark.parametrize("capacity", [16, 19, 20, 21])
@pytest.mark.parametrize("schedule", ["warp", "block", "grid"])
def test_an_adjacency_list_that_just_fits_into_shared_memory(schedule, capacity):
    graph = column_graph([20, 4])
    thresholds = replace(SCHEDULES[schedule][1], warp_stage_bytes=4 * capacity, block_stage_bytes=4 * capacity)
    bulk = [np.array([0, 1]), np.array([0]), np.array([1, 0])]
    drawn = NeighborSampler([5]).sample_bulk(graph, bulk, workspace=on_cuda(schedule, thresholds), **ADDRESS)
    assert [on_host(b) for b in drawn] == [on_host(b) for b in NeighborSampler([5]).sample_bulk(graph, bulk, **ADDRESS)]


@pytest.mark.parametrize("requests", [1, 2, 3, 4, 6, 7, 13])
def test_the_work_of_one_transit_at_the_borders_of_its_class(requests):
    """Batches equal the CPU's at the borders of a node's work classes; each batch adds one unit of work to the same node."""
    check_equal(column_graph([9, 4]), [3], [np.array([0])] * requests, "classes")


def test_a_graph_of_one_node():
    for graph in (Graph(np.array([0, 0]), np.zeros(0, np.int32)), Graph(np.array([0, 3]), np.zeros(3, np.int32))):
        for schedule in ("sample", "classes"):
            check_equal(graph, [2, -1], [np.array([0])] * 2, schedule)


def test_a_graph_without_edges_in_pinned_memory():
    graph = Graph(np.array([0, 0]), np.zeros(0, np.int32))
    batch = NeighborSampler([2]).sample(graph, np.array([0]), workspace=on_cuda(placement="pinned"))
    assert to_host(batch.node_ids).tolist() == [0]


@pytest.mark.parametrize("schedule", ["sample", "classes"])
def test_ids_of_64_bits(small_graph, schedule):
    wide = Graph(small_graph.indptr, small_graph.indices.astype(np.int64), validate=False)
    assert wide.indices.dtype == np.int64
    check_equal(wide, [3, 2], bulk_of(wide, [4, 2]), schedule)


@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("schedule", ["sample", "classes"])
def test_a_bulk_like_the_one_before_allocates_nothing(small_graph, schedule, expand, monkeypatch):
    sampler, workspace, bulk = NeighborSampler([2, -1], expand=expand), on_cuda(schedule), bulk_of(small_graph, [2, 1])
    first = [on_host(batch) for batch in sampler.sample_bulk(small_graph, bulk, workspace=workspace, **ADDRESS)]
    shapes = []
    empty = DeviceStream.empty
    monkeypatch.setattr(DeviceStream, "empty", lambda self, shape, dtype: shapes.append(shape) or empty(self, shape, dtype))
    assert [on_host(batch) for batch in sampler.sample_bulk(small_graph, bulk, workspace=workspace, **ADDRESS)] == first
    assert shapes == []
    sampler.sample_bulk(small_graph, [*bulk, np.array([0])], workspace=workspace, **ADDRESS)
    assert shapes, "the counting works: a larger bulk needs larger buffers"


@pytest.mark.parametrize("placement", ["device", "pinned", "auto"])
def test_placements(small_graph, placement):
    sampler, workspace, bulk = NeighborSampler([3]), on_cuda(placement=placement), bulk_of(small_graph, [5])
    drawn = [on_host(batch) for batch in sampler.sample_bulk(small_graph, bulk, workspace=workspace)]
    assert drawn == [on_host(batch) for batch in sampler.sample_bulk(small_graph, bulk)]
    driver = workspace.on_device.driver
    assert set(driver.graph.placement.values()) == {"device" if placement == "auto" else placement}
    assert f"indices={driver.graph.placement['indices']}" in repr(driver)


def test_features_of_a_batch(small_graph):
    features = np.random.default_rng(0).random((small_graph.num_nodes, 5), dtype=np.float32)
    workspace = on_cuda()
    batch = NeighborSampler([3]).sample(small_graph, np.array([4, 8]), workspace=workspace)
    rows = DeviceRows(features, workspace.stream, thresholds=TESTED).gather(batch.node_ids)
    assert np.array_equal(to_host(rows), features[to_host(batch.node_ids)])


def test_the_schedule_is_logged(small_graph):
    workspace = on_cuda("classes")
    NeighborSampler([3, 2]).sample(small_graph, np.array([1]), workspace=workspace)
    assert workspace.on_device.driver.schedule == ["transit", "transit"]
    assert "schedule=['transit', 'transit']" in repr(workspace.on_device.driver)


def test_the_same_seeds_are_refused_by_the_cpu(small_graph):
    seeds = np.array([4, 7, 6, 7, 4])
    with pytest.raises(InputError) as on_cpu:
        NeighborSampler([2]).sample(small_graph, seeds)
    with pytest.raises(InputError) as refused:
        NeighborSampler([2]).sample(small_graph, seeds, workspace=on_cuda())
    assert str(refused.value) == str(on_cpu.value)


def test_no_batches(small_graph):
    assert NeighborSampler([2]).sample_bulk(small_graph, [], workspace=on_cuda()) == []


def sampled(graph, bulk, **address):
    return NeighborSampler([2]).sample_bulk(graph, [np.array(seeds, np.int64) for seeds in bulk], workspace=on_cuda(), **address)


MISTAKES = {
    "a seed given twice": Mistake(
        lambda small_graph: sampled(small_graph, [[1, 2], [4, 7, 6, 7, 4]]),
        value="seed 7",
        rule="given twice",
        remedy="numpy.unique(seeds)",
    ),
    "a seed that the graph has not": Mistake(
        lambda small_graph: sampled(small_graph, [[1, 40]]), value="seed 40", rule="not graph", remedy="0 39"
    ),
    "a batch without seeds": Mistake(
        lambda small_graph: sampled(small_graph, [[1], []]),
        value="(0,)",
        rule="seeds shape",
        remedy="one-dimensional integer array least one",
    ),
    "too large a random seed": Mistake(
        lambda small_graph: sampled(small_graph, [[1]], seed=2**64),
        value="seed is 18446744073709551616",
        rule="part random number's address",
        remedy="[0, 18446744073709551616)",
    ),
    "too large a number of a batch": Mistake(
        lambda small_graph: sampled(small_graph, [[1], [2]], first_batch=2**32 - 1),
        value="batch is 4294967296",
        rule="part random number's address",
        remedy="[0, 4294967296)",
    ),
    "too large a bulk": Mistake(
        lambda small_graph: sampled(small_graph, [[1]] * 65536),
        value="65,536 batches",
        rule="bulk CUDA grid 65,535",
        remedy="several calls",
    ),
    **{
        f"an unknown {name}": Mistake(
            lambda small_graph, name=name: NeighborSampler([2]).sample(
                small_graph, np.array([1]), workspace=Workspace(device="cuda", **{name: "moon"})
            ),
            value="'moon'",
            rule=name,
            remedy=remedy,
        )
        for name, remedy in (("kernel", "auto, sample, transit"), ("placement", '"device" "pinned" "auto"'))
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
