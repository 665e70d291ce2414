"""In PyG's own loaders, hoptrain's samplers do what PyG's classes do with a reference sampler, and their samples can be merged."""

from unittest.mock import patch

import pyg_reference
import pytest
import pytorch_lightning
import torch
import torch.nn.functional as F
import torch_geometric.sampler
from cases.mistakes import Mistake, each_of
from pyg_case import some_data, some_hetero_data
from torch_geometric.data.lightning import LightningLinkData, LightningNodeData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

import hoptrain.pyg

WRITES = ("author", "writes", "paper")


@pytest.fixture
def data():
    return some_data()


def edges_of(batch):
    """Return the multiset of edges, each with its id and the nodes that it joins, and with their tree if the batch is disjoint."""
    who = batch.n_id if batch.get("batch") is None else batch.n_id + 1000 * batch.batch
    return sorted(map(tuple, torch.cat([who[batch.edge_index], batch.e_id[None]]).T.tolist()))


PLAIN = {
    "nodes": (NodeLoader, {"input_nodes": torch.arange(60)}, {}),
    "disjoint": (NodeLoader, {"input_nodes": torch.arange(60)}, {"disjoint": True}),
    "links": (LinkLoader, {}, {}),
    "links at times": (LinkLoader, {"edge_label_time": torch.arange(1200) % 50}, {"time_attr": "made"}),
}


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("loader", "options", "of_sampler"), PLAIN.values(), ids=PLAIN)
def test_pyg_s_own_loaders(data, loader, options, of_sampler, num_workers):
    ours, theirs = (
        loader(data, kind(data, [-1, -1], **of_sampler), batch_size=30, num_workers=num_workers, **options)
        for kind in (hoptrain.pyg.NeighborSampler, pyg_reference.ReferenceSampler)
    )
    for mine, wanted, _ in zip(ours, theirs, range(3), strict=False):
        assert mine.keys() == wanted.keys()
        assert edges_of(mine) == edges_of(wanted)
        assert mine.num_sampled_nodes == wanted.num_sampled_nodes
        assert torch.equal(mine.x, data.x[mine.n_id])


def test_pyg_s_own_loaders_of_heterogeneous_graphs():
    data = some_hetero_data()
    for loader, seeds in ((NodeLoader, {"input_nodes": "paper"}), (LinkLoader, {"edge_label_index": WRITES})):
        ours, theirs = (
            loader(data, kind(data, [-1, -1]), batch_size=30, **seeds)
            for kind in (hoptrain.pyg.NeighborSampler, pyg_reference.ReferenceSampler)
        )
        for mine, wanted in zip(ours, theirs, strict=True):
            for relation in data.edge_types:
                assert mine[relation].e_id.sort().values.equal(wanted[relation].e_id.sort().values)


class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers, self.seen = GraphSAGE(7, 8, 2, 4), []

    def training_step(self, batch, _):
        z = self.layers(batch.x, batch.edge_index)
        if "edge_label" not in batch:
            return F.cross_entropy(z[: batch.batch_size], batch.y[: batch.batch_size])
        source, destination = batch.edge_label_index
        return F.binary_cross_entropy_with_logits((z[source] * z[destination]).sum(1), batch.edge_label)

    def validation_step(self, batch, _):
        self.seen.append((batch.batch_size, batch.num_sampled_edges[0] == int((batch.edge_index[1] < batch.batch_size).sum())))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def fitted(module):
    model = Model()
    options = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    trainer = pytorch_lightning.Trainer(max_epochs=1, accelerator="cpu", num_sanity_val_steps=0, **options)
    trainer.fit(model, module)
    return trainer.global_step, model.seen


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_pyg_s_modules_for_lightning(data):
    """PyG's Lightning data modules work; validation uses a copy of the sampler with other fanouts."""
    sampler, number = hoptrain.pyg.NeighborSampler(data, [3, 3]), int(data.train_mask.sum())
    masks = {"input_train_nodes": data.train_mask, "input_val_nodes": ~data.train_mask}
    wide = {"num_neighbors": [-1, -1], "batch_size": 200}
    steps, seen = fitted(LightningNodeData(data, node_sampler=sampler, batch_size=32, eval_loader_kwargs=wide, **masks))
    assert steps == -(-number // 32)
    assert seen == [(200 - number, True)]
    links = LightningLinkData(data, input_train_edges=None, link_sampler=sampler, neg_sampling="binary", batch_size=300)
    assert fitted(links)[0] == 4


MERGED = {"plain": {}, "disjoint": {"disjoint": True}, "backward": {"sample_direction": "backward"}}


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("options", MERGED.values(), ids=MERGED)
def test_samples_are_merged(data, options, replace):
    """Merged samples equal those of PyG's class; with ``replace``, a node that is in several samples is kept once."""

    def merged(kind):
        sampler = kind(data, [-1, -1], **options)
        seeds = [torch.arange(5), torch.arange(3, 9), torch.tensor([60])]
        outs = [sampler.sample_from_nodes(NodeSamplerInput(None, own)) for own in seeds]
        return SamplerOutput.collate(outs, replace=replace), sampler

    (mine, sampler), (wanted, other) = merged(hoptrain.pyg.NeighborSampler), merged(pyg_reference.ReferenceSampler)
    whole = []
    for out, perm in ((mine, sampler.edge_permutation), (wanted, other.edge_permutation)):
        rows = [out.node[out.row], out.node[out.col], out.edge if perm is None else perm[out.edge]]
        whole.append(sorted(map(tuple, torch.stack(rows).T.tolist())))
        if "disjoint" in options:
            whole[-1] += sorted(zip(out.node.tolist(), out.seed_node.tolist(), strict=True))
    assert whole[0] == whole[1]
    assert (mine.num_sampled_nodes, mine.num_sampled_edges) == (wanted.num_sampled_nodes, wanted.num_sampled_edges)
    assert sum(mine.num_sampled_nodes) == len(mine.node)


def bidirectional(data, *args, **options):
    """Return hoptrain's sampler, and PyG's with the reference sampler."""
    ours = hoptrain.pyg.BidirectionalNeighborSampler(data, *args, **options)
    with patch("torch_geometric.sampler.neighbor_sampler.NeighborSampler", pyg_reference.ReferenceSampler):
        return ours, torch_geometric.sampler.BidirectionalNeighborSampler(data, *args, **options)


@pytest.mark.parametrize(("num_neighbors", "options"), [([-1], {}), ([-1, -1], {}), ([-1], {"disjoint": True}), ([2, 2], {})], ids=str)
def test_edges_both_ways(data, num_neighbors, options):
    ours, theirs = (NodeLoader(data, sampler, torch.arange(40), batch_size=4) for sampler in bidirectional(data, num_neighbors, **options))
    for mine, wanted in zip(ours, theirs, strict=True):
        assert mine.keys() == wanted.keys()
        assert torch.equal(mine.n_id[mine.edge_index], data.edge_index[:, mine.e_id])
        assert torch.equal(mine.edge_attr, data.edge_attr[mine.e_id])
        assert sum(mine.num_sampled_edges) == mine.num_edges
        if num_neighbors == [2, 2]:
            assert mine.num_sampled_edges[0] <= 8
            continue
        whole = [{edge[:2] for edge in edges_of(batch)} for batch in (mine, wanted)]  # PyG has an edge twice if both directions found it
        assert whole[0] == whole[1]
        assert mine.num_nodes == wanted.num_nodes


MISTAKES = {
    "heterogeneous data for edges both ways": Mistake(
        lambda: hoptrain.pyg.BidirectionalNeighborSampler(some_hetero_data(), [2]),
        value="HeteroData",
        rule="loaders homogeneous Data",
        remedy="PyG's own",
    ),
    "times for edges both ways": Mistake(
        lambda data: hoptrain.pyg.BidirectionalNeighborSampler(data, [2], time_attr="made"),
        value="time_attr is 'made'",
        rule="subgraph_type 'directional' edges both",
        remedy="leave out",
    ),
    "trees of several hops both ways": Mistake(
        lambda data: hoptrain.pyg.BidirectionalNeighborSampler(data, [2, 2], disjoint=True),
        value="[2, 2]",
        rule="disjoint num_neighbors hops trees",
        remedy="one hop",
    ),
    "edges both ways in a loader of ours": Mistake(
        lambda data: hoptrain.pyg.NeighborLoader(data, [2], neighbor_sampler=hoptrain.pyg.BidirectionalNeighborSampler(data, [2])),
        value="BidirectionalNeighborSampler",
        rule="neighbor_sampler loaders hoptrain",
        remedy="give hoptrain.pyg.NeighborSampler",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
