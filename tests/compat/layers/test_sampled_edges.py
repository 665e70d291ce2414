"""The ``edge_index`` of a batch knows its blocks after copies, and forgets them after any other operation."""

import copy
import pickle

import pytest
import torch
from pyg_layers_case import some_batch, some_data
from torch_geometric.data import Data
from torch_geometric.transforms import ToUndirected

from hoptrain.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler
from hoptrain.trainers.models.batches import edge_index_of
from hoptrain.trainers.models.sums.edge_index import SampledEdges


def check(edges, batch):
    """Check that the blocks known to ``edges`` are those of the batch's hops."""
    assert type(edges) is SampledEdges
    assert edges.knows_blocks
    num_nodes, num_edges = torch.tensor(batch.num_sampled_nodes).cumsum(0), torch.tensor(batch.num_sampled_edges).cumsum(0)
    assert edges.num_nodes == batch.num_nodes == num_nodes[-1]
    for hop in range(len(num_edges)):
        block = edges.block_from(int(num_nodes[hop + 1]))
        assert (block.num_src, block.num_dst, block.num_edges) == (num_nodes[hop + 1], num_nodes[hop], num_edges[hop])
        assert torch.equal(block.edge_index(), edges.plain()[:, : num_edges[hop]])
    assert edges.block_from(batch.batch_size) is None


@pytest.mark.parametrize(
    "copied",
    [
        lambda edges: edges.clone(),
        lambda edges: edges.to("cpu", copy=True),
        lambda edges: edges.contiguous(),
        lambda edges: edges.detach(),
        copy.copy,
        copy.deepcopy,
        lambda edges: pickle.loads(pickle.dumps(edges)),
    ],
)
def test_copies_know_the_blocks(copied):
    batch = some_batch()
    copies = Data(edge_index=batch.edge_index).apply(copied).edge_index
    assert torch.equal(copies, batch.edge_index)
    check(copies, batch)


def test_batches_know_the_blocks():
    for batch in (some_batch(), some_batch(num_workers=1), some_batch().clone(), some_batch().to("cpu"), copy.copy(some_batch())):
        check(batch.edge_index, batch)
    loader = LinkNeighborLoader(some_data(), [3, 2], batch_size=5, neg_sampling_ratio=1.0)
    batch = next(iter(loader))
    check(batch.edge_index, Data(**{**batch.to_dict(), "batch_size": batch.num_sampled_nodes[0]}))
    repeated = next(iter(NeighborLoader(some_data(), [3, 2], input_nodes=torch.tensor([1, 7, 1]), batch_size=3)))
    check(repeated.edge_index, repeated)


@pytest.mark.parametrize(
    "operation",
    [
        lambda edges: edges[:, :4],
        lambda edges: edges + 0,
        lambda edges: edges.flip(0),
        lambda edges: edges.narrow(1, 0, 2),
        lambda edges: edges.narrow(1, 1, 3),
        lambda edges: edges.int(),
        lambda edges: edges.to(torch.int32),
        lambda edges: torch.stack([edges[0], edges[1]]),
        lambda edges: torch.cat([edges, edges], 1),
    ],
)
def test_other_operations_return_plain_tensors(operation):
    edges = some_batch().edge_index
    found = operation(edges)
    assert type(found) is torch.Tensor
    assert torch.equal(found, operation(edges.plain()))


def test_changes_in_place_are_noticed():
    edges = some_batch().edge_index
    other = edges.clone()
    edges[0, 0] += 1
    assert not edges.knows_blocks
    assert type(edges.clone()) is torch.Tensor
    assert type(pickle.loads(pickle.dumps(edges))) is torch.Tensor
    other.sort()
    assert other.knows_blocks


def test_trimmed_edges_know_the_inner_blocks():
    batch = some_batch()
    trimmed = batch.edge_index.narrow(dim=1, start=0, length=batch.num_sampled_edges[0])
    assert type(trimmed) is SampledEdges
    assert trimmed.num_nodes == sum(batch.num_sampled_nodes[:2])
    assert trimmed.block_from(trimmed.num_nodes) is batch.edge_index.block_from(trimmed.num_nodes)


def test_the_rest_of_a_block():
    batch = some_batch()
    block = batch.edge_index.block_from(sum(batch.num_sampled_nodes[:2]))
    rest = batch.edge_index.rest_of(block)
    assert rest.num_dst + block.num_dst == batch.num_nodes
    both = torch.cat([block.edge_index(), rest.edge_index() + torch.tensor([[0], [block.num_dst]])], 1)
    assert torch.equal(both, batch.edge_index.plain())


@pytest.mark.parametrize(
    "options",
    [
        {"transform": ToUndirected()},
        {"subgraph_type": "bidirectional"},
        {"transform_sampler_output": lambda out: out},
        {"neighbor_sampler": NeighborSampler(some_data(), [3, 2], sample_direction="backward")},
    ],
    ids=lambda options: next(iter(options)),
)
def test_other_edges_than_the_sampled_ones_know_no_blocks(options):
    assert type(some_batch(**options).edge_index) is torch.Tensor


def test_own_models_in_fit_get_the_blocks():
    from hoptrain import NeighborSampler, SampleLoader, load_dataset

    batch = next(iter(SampleLoader(load_dataset("digits-knn"), NeighborSampler([3, 2], expand="new"), batch_size=8))).to("cpu")
    edges = edge_index_of(batch)
    assert [tuple(hop) for hop in edges.hops] == [(block.num_src, block.num_dst, block.num_edges) for block in batch.blocks]
