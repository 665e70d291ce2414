"""The arguments of PyG's loaders over hoptrain: the same as PyG's, and each honoured, refused in one line, or without meaning, which is said."""

import inspect

import pyg_reference
import pytest
import torch
import torch_geometric.loader
from pyg_case import some_data

import hoptrain.pyg
from hoptrain import InputError


@pytest.fixture
def data():
    return some_data()


def test_an_import_line_may_name_all_that_pyg_has(data):
    assert all(hasattr(hoptrain.pyg, name) for name in torch_geometric.loader.__all__)
    assert hoptrain.pyg.ImbalancedSampler is torch_geometric.loader.ImbalancedSampler
    assert hoptrain.pyg.NeighborLoader is not torch_geometric.loader.NeighborLoader
    with pytest.raises(AttributeError, match="has no attribute 'NeighbourLoader'"):
        _ = hoptrain.pyg.NeighbourLoader


@pytest.mark.parametrize("name", hoptrain.pyg.__all__)
def test_signatures_are_those_of_pyg(name):
    """Of every class that is hoptrain's own. ``torch_geometric.loader`` has an old ``NeighborSampler`` besides."""
    theirs = getattr(torch_geometric.sampler, name, None) or getattr(torch_geometric.loader, name)
    ours, theirs = (inspect.signature(kind).parameters for kind in (getattr(hoptrain.pyg, name), theirs))
    assert [(p.name, p.default, p.kind) for p in ours.values()] == [(p.name, p.default, p.kind) for p in theirs.values()]


WRONG = [
    ({"weight_attr": "weight", "disjoint": True}, "weight_attr 'weight' with time_attr or disjoint"),
    ({"subgraph_type": "induced", "disjoint": True}, "subgraph_type induced with disjoint"),
    ({"temporal_strategy": "first"}, "temporal_strategy is 'first': it is 'uniform' or 'last'"),
    ({"time_attr": "nothing"}, "data has no attribute 'nothing'"),
    ({"custom_cls": dict}, "custom_cls is given"),
    ({"in_order": False}, "in_order is False"),
    ({"batch_size": None}, "batch_size is None"),
    ({"num_neighbors": [0]}, "fanout"),
    ({"num_neighbors": 5}, "num_neighbors is 5: it is a list"),
    ({"num_neighbors": [2.5]}, r"num_neighbors is \[2.5\]: it is a list with an integer for each hop"),
    ({"subgraph_type": "half"}, "subgraph_type is 'half': it is directional, bidirectional, induced"),
    ({"temporal_strategy": "last"}, "temporal_strategy is 'last' without time_attr"),
    ({"input_nodes": torch.ones(7, dtype=torch.bool)}, "input_nodes is torch.bool of shape .7,.: it is ids of vertices"),
    ({"input_nodes": torch.ones(7)}, "input_nodes is torch.float32"),
    ({"time_attr": "made", "input_time": torch.ones(7, dtype=torch.long)}, "input_time has 7 entries for 200 seeds"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_cannot_be_honoured_is_refused(data, options, message):
    options = {"num_neighbors": [2], "batch_size": 50} | options
    with pytest.raises(InputError, match=message):
        next(iter(hoptrain.pyg.NeighborLoader(data, **options)))


@pytest.mark.parametrize("rows", [150, 250])
def test_features_of_other_numbers_of_vertices_are_refused(data, rows):
    data.num_nodes, data.x = 200, torch.ones(rows, 3)
    with pytest.raises(InputError, match=f"x has {rows} rows for 200 vertices: give one for each"):
        next(iter(hoptrain.pyg.NeighborLoader(data, [2], batch_size=50)))


def with_end(edges, end, value):
    edges = edges.clone()
    edges[end, 3] = value
    return edges


EDGES = {
    "edge 3 leads from vertex .* to 200: data has 200 vertices": lambda edges: with_end(edges, 1, 200),
    "edge 3 leads from vertex -1 to": lambda edges: with_end(edges, 0, -1),
    "edge_index of data is torch.float32 of shape .2, 1200.: it is": lambda edges: edges.float(),
    "edge_index of data is torch.int64 of shape .1200, 2.: it is": lambda edges: edges.T,
}


@pytest.mark.parametrize(("message", "change"), EDGES.items(), ids=EDGES)
def test_edges_that_cannot_be_are_named_by_their_number(data, message, change):
    data.edge_index = change(data.edge_index)
    with pytest.raises(InputError, match=message):
        hoptrain.pyg.NeighborLoader(data, [2])


@pytest.mark.parametrize("option", ["edge_label", "edge_label_time"])
def test_links_have_one_value_each(data, option):
    with pytest.raises(InputError, match=f"{option} has 7 entries for 1,200 links"):
        hoptrain.pyg.LinkNeighborLoader(data, [2], time_attr="made", **({"edge_label_time": torch.ones(1200)} | {option: torch.ones(7)}))
    with pytest.raises(InputError, match="edge_label_index has shape"):
        hoptrain.pyg.LinkNeighborLoader(data, [2], edge_label_index=torch.ones(5, 2, dtype=torch.long))


def test_remote_stores_and_samplers_of_pyg_are_refused(data):
    with pytest.raises(InputError, match="data is a tuple"):
        hoptrain.pyg.NeighborLoader((data, data), [2])
    with pytest.raises(InputError, match="data is a HeteroData: these loaders take a homogeneous Data"):
        hoptrain.pyg.ShaDowKHopSampler(torch_geometric.data.HeteroData(), 1, 2)
    with pytest.raises(InputError, match="neighbor_sampler is a ReferenceSampler"):
        hoptrain.pyg.NeighborLoader(data, [2], neighbor_sampler=pyg_reference.ReferenceSampler(data, [2]))


@pytest.mark.parametrize("option", [{"worker_init_fn": print}, {"filter_per_worker": True}, {"multiprocessing_context": "spawn"}])
def test_what_has_no_meaning_is_said_once(data, option):
    with pytest.warns(UserWarning, match=f"without meaning here: {next(iter(option))}") as found:
        loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=150, num_workers=1, **option)
    assert len(found) == 1
    assert len(list(loader)) == 2
    loader.close()


@pytest.mark.parametrize("name", ["enable_cpu_affinity", "enable_multithreading", "enable_memory_log"])
def test_contexts_for_workers_of_pyg_do_nothing_and_say_so(data, name):
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=150, num_workers=1)
    with pytest.warns(UserWarning, match=f"without meaning here: {name}") as found, getattr(loader, name)():
        assert len(list(loader)) == 2
    assert found[0].filename == __file__
    loader.close()
