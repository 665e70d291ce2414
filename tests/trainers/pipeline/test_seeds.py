"""The chunks of a sampled batch have the same edges as the batch; dividing by node id instead would lose edges."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pipeline_case import make_model

from hoptrain.samplers import ClusterSampler, NeighborSampler, SampleLoader
from hoptrain.trainers.pipeline import ChunkLoader, cut_by_index


def of_epoch(loader, epoch):
    loader.set_epoch(epoch)
    return [batch.to("cpu") for batch in loader]


@pytest.mark.parametrize("fanout", [-1, 3])
def test_gradients_of_sampled_chunks_add_up_to_the_batch_s(dataset, fanout):
    """Gradients of sampled chunks add up to the batch's, since a node draws the same neighbours in every chunk as in the batch."""
    sampler, options = NeighborSampler([fanout, fanout]), {"batch_size": 33, "seed": 4}
    wholes = of_epoch(SampleLoader(dataset, sampler, **options), 1)
    chunked = of_epoch(ChunkLoader(dataset, sampler, chunks=4, **options), 1)
    assert len(wholes) == len(chunked) == 4
    degrees = torch.from_numpy(dataset.graph.in_degrees()).double()

    def gradients(batches):
        model = make_model("gcn", 2)
        model.layers[0].linear = torch.nn.Linear(7, 8, bias=False).double()
        torch.nn.init.constant_(model.layers[0].linear.weight, 0.1)
        for batch in batches:
            out = model(batch.x.double(), batch.blocks, degrees[batch.node_ids.long()])
            torch.nn.functional.cross_entropy(out, batch.y, reduction="sum").backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    for whole, batch in zip(wholes, chunked, strict=True):
        assert [len(chunk.seeds) for chunk in batch.chunks] == [len(part) for part in np.array_split(np.arange(len(whole.seeds)), 4)]
        assert torch.equal(torch.cat([chunk.seeds for chunk in batch.chunks]), whole.seeds)
        assert (batch.num_seeds, batch.num_step_seeds, batch.batch) == (whole.num_seeds, whole.num_step_seeds, whole.batch)
        torch.testing.assert_close(gradients(batch.chunks), gradients([whole]), rtol=1e-10, atol=1e-12)


def test_copies_share_the_epoch(dataset):
    loaders = [ChunkLoader(dataset, NeighborSampler([2]), chunks=3, batch_size=25, rank=rank, world_size=2) for rank in range(2)]
    seeds = [chunk.seeds for loader in loaders for batch in of_epoch(loader, 0) for chunk in batch.chunks]
    assert sorted(torch.cat(seeds).tolist()) == sorted(dataset.splits["train"])


def test_a_loader_resumes_with_another_number_of_chunks(dataset):
    first, second = (ChunkLoader(dataset, NeighborSampler([2]), chunks=chunks, batch_size=30, seed=2) for chunks in (2, 5))
    whole = [batch.num_seeds for batch in of_epoch(first, 0)]
    first.set_epoch(0)
    iterator = iter(first)
    taken = [next(iterator).num_seeds]
    second.load_state_dict(first.state_dict())
    assert taken + [batch.num_seeds for batch in second] == whole


def test_chunks_from_workers(dataset):
    """Chunks from a worker equal those made in this process; the trainer holds all chunks of a batch at once, which takes as many slots."""
    options = {"chunks": 7, "batch_size": 40}
    loader = ChunkLoader(dataset, NeighborSampler([3, 3]), num_workers=1, **options)
    try:
        batches = list(loader)
    finally:
        loader.close()
    inline = list(ChunkLoader(dataset, NeighborSampler([3, 3]), **options))
    assert [len(batch.chunks) for batch in batches] == [7, 7, 7]
    for mine, other in zip(batches, inline, strict=True):
        assert all(np.array_equal(a.node_ids, b.node_ids) for a, b in zip(mine.chunks, other.chunks, strict=True))


def test_the_cut_by_node_id_loses_the_edges_between_chunks(dataset):
    graph = dataset.graph
    cut = cut_by_index(graph, 3)
    size = -(-graph.num_nodes // 3)
    for v in range(graph.num_nodes):
        of = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
        assert np.array_equal(cut.indices[cut.indptr[v] : cut.indptr[v + 1]], of[of // size == v // size])
    assert cut.num_edges < graph.num_edges
    loader = ChunkLoader(dataset, NeighborSampler([-1, -1]), chunks=3, chunking="by-index", batch_size=120)
    (batch,) = loader
    assert sum(map(len, (chunk.seeds for chunk in batch.chunks))) == 120
    for chunk in batch.chunks:
        assert len(set(chunk.node_ids // size)) == 1


def test_a_range_without_seeds_is_no_chunk(dataset):
    seeds = np.arange(40)  # all seeds are in the first of three ranges
    (batch,) = ChunkLoader(dataset, NeighborSampler([2]), split=seeds, chunks=3, chunking="by-index", batch_size=40, shuffle=False)
    assert len(batch.chunks) == 1
    assert np.array_equal(batch.chunks[0].seeds, seeds)


SAMPLER = NeighborSampler([2])
MISTAKES = {
    "more chunks than seeds": Mistake(
        lambda dataset: ChunkLoader(dataset, SAMPLER, batch_size=32, chunks=33),
        value="33 chunks",
        rule="batch 24 seeds every chunk",
        remedy="24 chunks larger batches",
    ),
    "more chunks by index than nodes fill": Mistake(
        lambda dataset: ChunkLoader(dataset, SAMPLER, batch_size=120, chunks=150, chunking="by-index"),
        value="150 chunks",
        rule="200 nodes last empty",
        remedy="fewer chunks",
    ),
    "chunks of clusters": Mistake(
        lambda dataset: ChunkLoader(dataset, ClusterSampler(4), chunks=2),
        value="ClusterSampler",
        rule="chunks batches seeds divide",
        remedy="sampler of seeds NeighborSampler",
    ),
    "chunks of bulks on a device": Mistake(
        lambda dataset: ChunkLoader(dataset, SAMPLER, chunks=2, device="cuda"),
        value="num_workers 0",
        rule="chunks sampler_device cuda bulks",
        remedy="num_workers 1",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
