"""VRGCNSampler: neighbour sampling, plus all in-edges of each destination."""

import numpy as np
import pytest
from cases.batches import contents
from cases.mistakes import refused

from hoptrain.samplers import NeighborSampler, VRGCNSampler, Workspace


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


def test_bad_values(graph):
    with refused("fanout 0", "hop edges share", "1 67108863 -1 0.5"):
        VRGCNSampler([0])
