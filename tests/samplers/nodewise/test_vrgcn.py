"""VRGCNSampler: neighbour sampling, plus all in-edges of each destination."""

import numpy as np
import pytest
from cases.mistakes import refused

from hoptrain.samplers import NeighborSampler, SampleLoader, VRGCNSampler, Workspace


def contents(batch):
    return {name: (a.dtype, a.tobytes()) for name, a in batch.arrays().items()}


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_neighbour_sampling_and_whole_columns(graph, threads):
    bulk = [np.arange(i, 200, 40) for i in range(4)]  # nodes without in-edges among them
    batches = VRGCNSampler([2, 3]).sample_bulk(graph, bulk, seed=4, workspace=Workspace(threads))
    for i, (seeds, batch) in enumerate(zip(bulk, batches, strict=True)):
        plain = contents(NeighborSampler([2, 3]).sample(graph, seeds, seed=4, batch=i))
        assert {name: value for name, value in contents(batch).items() if not name.startswith("extra")} == plain
        indptr, indices = batch.extra["history_indptr"], batch.extra["history_indices"]
        columns = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in batch.node_ids[: batch.blocks[0].num_dst]]
        assert indptr.tolist() == np.cumsum([0, *map(len, columns)]).tolist()
        assert indices.tolist() == np.concatenate(columns).tolist()


def test_workers_change_nothing(dataset):
    epochs = []
    for num_workers in (0, 2):
        loader = SampleLoader(dataset, VRGCNSampler([2, 2]), batch_size=60, num_workers=num_workers, seed=5)
        epochs.append([contents(batch) for batch in loader])
        loader.close()
    assert epochs[0] == epochs[1]


def test_bad_values(graph):
    with refused("fanout 0", "hop edges share", "1 67108863 -1 0.5"):
        VRGCNSampler([0])
