"""Sparse files of more than 2**31 edges and 30 GB of features are opened, planned and sampled, with mapped and with read edges."""

import json
import shutil

import numpy as np
import pytest

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.store import FORMAT, HEADER, VERSION
from hoptrain.samplers import NeighborSampler, SampleLoader

NUM_NODES, WIDTH, NUM_EDGES = 1 << 20, 7_200, (1 << 31) + (1 << 20)
SEEDS = np.append(np.sort(np.random.default_rng(0).choice(NUM_NODES - 1, 63, replace=False)), NUM_NODES - 1)
OPTIONS = {"batch_size": 8, "seed": 3, "num_workers": 0}
pytestmark = pytest.mark.timeout(400)  # checks of 8 GB of edges


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    """Return the folder, and the nodes that two epochs read. Only the seeds' edges and these rows have data; the rest of the files is holes."""
    folder = tmp_path_factory.mktemp("data")
    shapes = {"indptr": ("<i8", (NUM_NODES + 1,)), "indices": ("<i4", (NUM_EDGES,)), "x": ("<f4", (NUM_NODES, WIDTH))}
    shapes |= {"y": ("<i8", (NUM_NODES,)), "split_train": ("<i8", (len(SEEDS),))}
    if shutil.disk_usage(folder).free < 1 << 30:
        pytest.skip("the file system of temporary files has less than 1 GiB free")
    try:
        maps = {name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", *layout) for name, layout in shapes.items()}
    except OSError as error:
        pytest.skip(f"the file system of temporary files has no sparse files of 30 GB ({error})")
    degree = NUM_EDGES // NUM_NODES
    maps["indptr"][:] = np.minimum(np.arange(NUM_NODES + 1) * degree, NUM_EDGES)
    maps["indptr"][-1] = NUM_EDGES
    maps["split_train"][:] = SEEDS
    sources = np.random.default_rng(1).integers(0, NUM_NODES, (len(SEEDS), degree))
    for seed, own in zip(SEEDS, sources, strict=True):
        maps["indices"][maps["indptr"][seed] : maps["indptr"][seed] + degree] = own
    entries = {name: {"file": f"{name}.npy", "dtype": dtype, "shape": list(shape), "crc32": 0} for name, (dtype, shape) in shapes.items()}
    meta = {"name": "sparse", "num_classes": 1, "is_sorted": False, "info": {}}
    (folder / HEADER).write_text(json.dumps({"format": FORMAT, "version": VERSION, "kind": "dataset", "meta": meta, "arrays": entries}))
    return folder, rows_of_batches(maps)


def rows_of_batches(maps):
    """Write each node's index into the feature rows that two epochs read, and return these nodes."""
    plain = Dataset(name="plain", graph=Graph(maps["indptr"], maps["indices"], validate=False), splits={"train": SEEDS})
    with SampleLoader(plain, NeighborSampler([5]), **OPTIONS) as loader:
        used = np.unique(np.concatenate([batch.node_ids for _ in range(2) for batch in loader])).astype(np.int64)
    maps["x"][used, 0] = maps["x"][used, -1] = used
    maps["x"].flush()
    return used


@pytest.fixture(scope="module")
def data(sparse):
    """Return the data set, opened once, since its checks read 8 GB."""
    return Dataset.open(sparse[0])


@pytest.mark.parametrize("edges", ["mapped", "read"])
def test_it_opens_is_planned_and_is_sampled(sparse, data, memory_for_edges, edges):
    folder, used = sparse
    if edges == "read":
        memory_for_edges(0)
    assert data.graph.num_edges == NUM_EDGES > 1 << 31
    assert data.graph.indptr.dtype == np.int64
    assert data.x.nbytes > 30e9
    with SampleLoader(data, NeighborSampler([5]), feature_cache="64MiB", **OPTIONS) as loader:
        task, schedule = loader.task, loader.schedule
        found, beyond = 0, 0
        for _ in range(2):
            for batch in loader:
                np.testing.assert_array_equal(batch.x[:, [0, -1]].astype(np.int64), batch.node_ids[:, None].repeat(2, axis=1))
                assert batch.x[0, 1] == 0
                found, beyond = found + 1, beyond + int((batch.blocks[0].edge_ids > 1 << 31).sum())
        assert found == 2 * schedule.num_steps == 16
        assert beyond >= 2 * 5  # the edges of the last node
        assert (task.edges is not None and task.receiver is not None) == (edges == "read")
        filled = loader.feature_cache.filled
        assert filled.num_missed < filled.num_used
        assert filled.num_missed >= len(used)
    disk = sum(file.stat().st_blocks * 512 for file in folder.iterdir())
    assert disk < 1 << 28
