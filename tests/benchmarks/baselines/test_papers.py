import numpy as np
import pytest

from hoptrain.benchmarks.baselines import papers
from hoptrain.engine import Graph


@pytest.mark.parametrize("join", ["seeds", "previous", ""])
def test_what_joins_the_drawn(join):
    src, dst = np.random.default_rng(0).integers(0, 200, (2, 3000))
    matrix, seeds = papers.to_scipy(Graph.from_edges(src, dst, 200)), np.array([9, 3, 150])
    distribution = papers.share_of_columns(matrix) if join == "" else None
    nodes, sizes = seeds, (20, 30)
    for size, (block, sources) in zip(sizes, papers.layers(matrix, sizes, distribution, join, seeds), strict=True):
        dense = block.toarray()
        assert dense.shape == (len(nodes), len(sources))
        assert len(np.unique(sources)) == len(sources)
        sums = dense.sum(axis=1)
        np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
        edges = matrix[nodes][:, sources].toarray() > 0
        if join == "seeds":  # the seeds come with all of their edges
            assert set(seeds) <= set(sources)
            assert np.array_equal(dense > 0, edges)
        elif join == "previous":  # the previous layer's nodes come first, without edges if they were not sampled
            assert np.array_equal(sources[: len(nodes)], nodes)
            assert np.count_nonzero(dense.any(axis=0)) <= size
        else:
            assert len(sources) == size
        nodes = sources
