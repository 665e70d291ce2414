"""What the loaders of ``hoptrain.pyg`` do on heterogeneous graphs alone; ``test_pyg_loaders.py`` compares both kinds of graphs with PyG."""

import pytest
import torch
import torch_geometric.data
from cases.mistakes import refused
from pyg_case import check_induced, some_hetero_data
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv, to_hetero
from torch_geometric.sampler import NumNeighbors
from torch_geometric.utils import trim_to_layer

import hoptrain.pyg

WRITES = ("author", "writes", "paper")


@pytest.fixture
def data():
    return some_hetero_data()


def test_an_induced_subgraph_of_links(data):
    loader = hoptrain.pyg.LinkNeighborLoader(data, [2], WRITES, subgraph_type="induced", neg_sampling="binary", batch_size=100)
    for batch in loader:
        check_induced(batch, data)
        assert batch[WRITES].edge_label.shape == (200,)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_budgets(data, num_workers):
    """``HGTLoader`` samples the requested number of nodes of each type in each hop, and all edges between them."""
    numbers = {"paper": [5, 4], "author": [3, 3], "venue": [1, 0]}
    loader = hoptrain.pyg.HGTLoader(data, numbers, ("paper", data["paper"].train_mask), batch_size=10, num_workers=num_workers)
    seeds = []
    for batch in loader:
        size = batch["paper"].batch_size
        seeds += batch["paper"].n_id[:size].tolist()
        if size == 10:  # a smaller batch may reach too few nodes; no batch reaches a venue
            assert {kind: batch[kind].num_nodes for kind in data.node_types} == {"paper": 19, "author": 6, "venue": 0}
        check_induced(batch, data)
    assert seeds == data["paper"].train_mask.nonzero().flatten().tolist()
    loader.close()
    with refused("data is a Data", "loader samples type", "HeteroData NeighborLoader"):
        hoptrain.pyg.HGTLoader(torch_geometric.data.Data(), [2], "paper")


def test_models_of_pyg_train_and_trim(data):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList(
                HeteroConv({relation: SAGEConv((-1, -1), 8) for relation in data.edge_types}) for _ in range(2)
            )

        def forward(self, batch, *, trims):
            x, edges = dict(batch.x_dict), batch.edge_index_dict
            for layer, conv in enumerate(self.convs):
                if trims:
                    x, edges, _ = trim_to_layer(layer, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edges)
                x = conv(x, edges)
            return x["paper"][: batch["paper"].batch_size]

    data["venue"].x = torch.ones(6, 2)
    loader, model = hoptrain.pyg.NeighborLoader(data, [3, 3], ("paper", data["paper"].train_mask), batch_size=10), Model()
    for batch in loader:
        torch.testing.assert_close(model(batch, trims=True), model(batch, trims=False))
    of_types = to_hetero(GraphSAGE((-1, -1), 8, 2, 3), data.metadata())
    assert of_types(batch.x_dict, batch.edge_index_dict)["paper"].shape == (batch["paper"].num_nodes, 3)


def test_features_of_other_numbers_of_nodes_are_refused(data):
    loader = hoptrain.pyg.NeighborLoader(data, [2], "paper", batch_size=60)
    next(iter(loader))
    data["author"].num_nodes, data["author"].x = 80, torch.rand(50, 3)
    with refused("x.author has 50", "rows 80 nodes", "give one each loader"):
        next(iter(loader))


@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")
def test_a_type_whose_nodes_nobody_counts_is_refused(data):
    del data["venue"]
    data["paper", "in", "venue"].edge_index = torch.tensor([[0, 1], [1, 0]])
    with refused("venue", "num_nodes number nodes", "data['venue'].num_nodes features"):
        hoptrain.pyg.NeighborLoader(data, [2], "paper")


def test_trees_of_data_without_times(data):
    """With ``disjoint`` and without times, each seed has its own tree of all nodes that it reaches, even if a seed occurs twice."""
    whole, trees = (
        next(iter(hoptrain.pyg.NeighborLoader(data, [-1, -1], ("paper", torch.tensor([7, 7])), batch_size=2, disjoint=disjoint)))
        for disjoint in (False, True)
    )
    for kind in data.node_types:
        for tree in range(2):
            assert trees[kind].n_id[trees[kind].batch == tree].sort().values.equal(whole[kind].n_id.unique())


def test_fanouts_by_default_alone(data):
    ours, wanted = ({"num_neighbors": fanouts, "input_nodes": "paper"} for fanouts in (NumNeighbors({}, default=[-1, -1]), [-1, -1]))
    batches = [next(iter(hoptrain.pyg.NeighborLoader(data, batch_size=50, **options))) for options in (ours, wanted)]
    assert all(torch.equal(one, other) for one, other in zip(*(batch.edge_index_dict.values() for batch in batches), strict=True))


def test_fanouts_that_lack_a_relation_are_refused_by_pyg(data):
    with pytest.raises(ValueError, match="Missing number of neighbors for edge type"):
        next(iter(hoptrain.pyg.NeighborLoader(data, {WRITES: [2]}, "paper", batch_size=50)))


def test_of_many_types_a_message_names_a_few():
    data = torch_geometric.data.HeteroData({"a": {"x": torch.ones(3, 2)}})
    relations = [("a", f"r{number}", "a") for number in range(20)]
    for relation in relations:
        data[relation].edge_index = torch.zeros(2, 4, dtype=torch.long)
    whole = {relation: [2, 2] for relation in relations}
    wrong = [
        ({relations[3]: 2}, "is 2", "num_neighbors a:r3:a list hop", "[15, 10]"),
        ({relations[3]: [2, -3]}, "fanout is -3", "a:r3:a hop 0 -1", "share"),
    ]
    for change, *words in wrong:
        with refused(*words) as raised:
            next(iter(hoptrain.pyg.NeighborLoader(data, whole | change, "a")))
        assert len(str(raised.value)) < 200
    with refused("('a', 'r20', 'a')", "HeteroData edge type", "a:r0:a a:r6:a 13 more"):
        hoptrain.pyg.LinkNeighborLoader(data, whole, ("a", "r20", "a"))
