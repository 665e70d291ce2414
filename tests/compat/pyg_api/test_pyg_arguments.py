"""The loaders of ``hoptrain.pyg`` take PyG's arguments; each is supported, rejected with a message, or ignored with a warning."""

import inspect

import numpy as np
import pyg_reference
import pytest
import torch
import torch_geometric.loader
from cases.mistakes import Mistake, each_of, refused, warned
from pyg_case import some_data, some_hetero_data
from torch_geometric.data import HeteroData

import hoptrain.pyg

WRITES = ("author", "writes", "paper")


@pytest.fixture
def data():
    return some_data()


@pytest.fixture
def hetero():
    return some_hetero_data()


def test_an_import_line_may_name_all_that_pyg_has(data):
    assert all(hasattr(hoptrain.pyg, name) for name in torch_geometric.loader.__all__)
    assert hoptrain.pyg.ImbalancedSampler is torch_geometric.loader.ImbalancedSampler
    assert hoptrain.pyg.NeighborLoader is not torch_geometric.loader.NeighborLoader
    with refused("'NeighbourLoader'", "hoptrain.pyg no attribute torch_geometric.loader", error=AttributeError):
        _ = hoptrain.pyg.NeighbourLoader


@pytest.mark.parametrize("name", hoptrain.pyg.__all__)
def test_signatures_are_those_of_pyg(name):
    """All classes of ``hoptrain.pyg`` have the signatures of PyG's classes, and ``NeighborSampler`` an argument ``device`` that it rejects.

    The older ``NeighborSampler`` of ``torch_geometric.loader`` is not compared.
    """
    theirs = getattr(torch_geometric.sampler, name, None) or getattr(torch_geometric.loader, name)
    ours, theirs = (inspect.signature(kind).parameters for kind in (getattr(hoptrain.pyg, name), theirs))
    ours = [own for own in ours.values() if (name, own.name) != ("NeighborSampler", "device")]
    assert [(p.name, p.default, p.kind) for p in ours] == [(p.name, p.default, p.kind) for p in theirs.values()]


@pytest.mark.parametrize("option", [{"worker_init_fn": print}, {"filter_per_worker": True}, {"multiprocessing_context": "spawn"}])
def test_ignored_options_are_named_once(data, option):
    with warned(next(iter(option)), "ignored workers"):
        loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=150, num_workers=1, **option)
    assert len(list(loader)) == 2
    loader.close()


@pytest.mark.parametrize("name", ["enable_cpu_affinity", "enable_multithreading", "enable_memory_log"])
def test_contexts_for_workers_of_pyg_do_nothing_and_say_so(data, name):
    loader = hoptrain.pyg.NeighborLoader(data, [2], batch_size=150, num_workers=1)
    with warned(name, "ignored operating system cores") as found, getattr(loader, name)():
        assert len(list(loader)) == 2
    assert found[0].filename == __file__
    loader.close()


def batch_of(data, **options):
    seeds = "paper" if isinstance(data, HeteroData) else None
    return next(iter(hoptrain.pyg.NeighborLoader(data, **({"num_neighbors": [2], "input_nodes": seeds, "batch_size": 50} | options))))


def rows_of_features(data, rows):
    data.num_nodes, data.x = 200, torch.ones(rows, 3)
    batch_of(data)


def edges(data, edge_index):
    data.edge_index = edge_index
    hoptrain.pyg.NeighborLoader(data, [2])


def edge_with(data, end, node):
    """Make a loader after changing one end of edge 3 to ``node``."""
    edge_index = data.edge_index.clone()
    edge_index[end, 3] = node
    edges(data, edge_index)


def times_as_fractions(data):
    data.made = data.made + 0.5
    batch_of(data, time_attr="made")


def links(data, **options):
    hoptrain.pyg.LinkNeighborLoader(data, [2], **options)


def nodes_alone():
    hoptrain.pyg.NeighborLoader(HeteroData({"paper": {"x": torch.zeros(4, 2)}}), [2], "paper")


def times_of_nodes_and_of_edges(hetero):
    hetero["paper", "cites", "paper"].born = torch.zeros(500, dtype=torch.long)
    hoptrain.pyg.NeighborLoader(hetero, [2], "paper", time_attr="born")


def relation_without_edges(hetero):
    del hetero[WRITES].edge_index
    hoptrain.pyg.NeighborLoader(hetero, [2], "paper")


def edge_from_node_80(hetero):
    hetero[WRITES].edge_index[0, 3] = 80
    hoptrain.pyg.NeighborLoader(hetero, [2], "paper")


MISTAKES = {
    "weights for trees": Mistake(
        lambda data: batch_of(data, weight_attr="weight", disjoint=True),
        value="weight_attr 'weight'",
        rule="time_attr disjoint edges drawn",
        remedy="leave one",
    ),
    **{
        f"trees with all edges between their nodes of {name}": Mistake(
            lambda make=make: batch_of(make(), subgraph_type="induced", disjoint=True),
            value="subgraph_type induced",
            rule="disjoint time_attr trees edges",
            remedy="choose one",
        )
        for name, make in (("a graph", some_data), ("a heterogeneous graph", some_hetero_data))
    },
    "an unknown strategy": Mistake(
        lambda data: batch_of(data, temporal_strategy="first"),
        value="temporal_strategy is 'first'",
        rule="'uniform' 'last'",
        remedy="choose one",
    ),
    "missing times": Mistake(
        lambda data: batch_of(data, time_attr="nothing"), value="'nothing'", rule="data no attribute made", remedy="name one"
    ),
    "a class of batches": Mistake(
        lambda data: batch_of(data, custom_cls=dict), value="custom_cls", rule="class batches remote stores", remedy="leave out"
    ),
    "an order of times along paths": Mistake(
        lambda data: batch_of(data, time_attr="made", temporal_comparison="strictly_increasing"),
        value="temporal_comparison is 'strictly_increasing'",
        rule="edge later seed",
        remedy="leave TemporalSampler(monotone=True)",
    ),
    "times as fractions": Mistake(
        lambda data: times_as_fractions(data), value="times are float32", rule="integers int64 1,200 edges", remedy="convert"
    ),
    "batches in any order": Mistake(
        lambda data: batch_of(data, in_order=False), value="in_order is False", rule="batches order run repeatable", remedy="leave out"
    ),
    "no size of batches": Mistake(
        lambda data: batch_of(data, batch_size=None), value="batch_size is None", rule="batch seeds", remedy="number batch_sampler"
    ),
    "a hop without edges": Mistake(
        lambda data: batch_of(data, num_neighbors=[0]), value="fanout 0", rule="hop 1 edges -1", remedy="share 0.5"
    ),
    "one fanout for all hops": Mistake(
        lambda data: batch_of(data, num_neighbors=5), value="num_neighbors is 5", rule="list integer each hop", remedy="[15, 10]"
    ),
    "a fanout as a fraction": Mistake(
        lambda data: batch_of(data, num_neighbors=[2.5]),
        value="num_neighbors is [2.5]",
        rule="list integer each hop",
        remedy="[15, 10]",
    ),
    "an unknown kind of subgraphs": Mistake(
        lambda data: batch_of(data, subgraph_type="half"),
        value="subgraph_type is 'half'",
        rule="directional bidirectional induced",
        remedy="choose one",
    ),
    "the last edges without times": Mistake(
        lambda data: batch_of(data, temporal_strategy="last"),
        value="temporal_strategy is 'last'",
        rule="without time_attr edge",
        remedy="name times",
    ),
    "a mask of fewer nodes": Mistake(
        lambda data: batch_of(data, input_nodes=torch.ones(7, dtype=torch.bool)),
        value="input_nodes is torch.bool of shape (7,)",
        rule="ids nodes mask 200",
        remedy="convert",
    ),
    "nodes as floats": Mistake(
        lambda data: batch_of(data, input_nodes=torch.ones(7)),
        value="input_nodes is torch.float32",
        rule="ids nodes integers",
        remedy="convert",
    ),
    "fewer times than seeds": Mistake(
        lambda data: batch_of(data, time_attr="made", input_time=torch.ones(7, dtype=torch.long)),
        value="input_time has 7",
        rule="entries 200 seeds",
        remedy="give one each",
    ),
    **{
        f"features of {rows} nodes": Mistake(
            lambda data, rows=rows: rows_of_features(data, rows),
            value=f"x has {rows}",
            rule="rows 200 nodes",
            remedy="give one each loader",
        )
        for rows in (150, 250)
    },
    "an edge to an unknown node": Mistake(lambda data: edge_with(data, 1, 200), value="to 200", rule="edge 3 data nodes", remedy="fix x"),
    "an edge from a negative node": Mistake(lambda data: edge_with(data, 0, -1), value="node -1", rule="edge 3 data 200", remedy="fix x"),
    "edges as floats": Mistake(
        lambda data: edges(data, data.edge_index.float()),
        value="torch.float32 of shape (2, 1200)",
        rule="edge_index integers sources destinations",
    ),
    "an edge a row": Mistake(
        lambda data: edges(data, data.edge_index.T),
        value="torch.int64 of shape (1200, 2)",
        rule="edge_index integers sources destinations",
    ),
    "fewer labels than links": Mistake(
        lambda data: links(data, time_attr="made", edge_label_time=torch.ones(1200), edge_label=torch.ones(7)),
        value="edge_label has 7",
        rule="entries 1,200 links",
        remedy="give one each",
    ),
    "fewer times than links": Mistake(
        lambda data: links(data, time_attr="made", edge_label_time=torch.ones(7)),
        value="edge_label_time has 7",
        rule="entries 1,200 links",
        remedy="give one each",
    ),
    "a link a row": Mistake(
        lambda data: links(data, edge_label_index=torch.ones(5, 2, dtype=torch.long)),
        value="(5, 2)",
        rule="edge_label_index sources destinations",
        remedy="transpose",
    ),
    "remote stores": Mistake(
        lambda data: hoptrain.pyg.NeighborLoader((data, data), [2]),
        value="tuple",
        rule="loaders Data HeteroData",
        remedy="PyG's own",
    ),
    "heterogeneous data for a loader of one type": Mistake(
        lambda: hoptrain.pyg.ShaDowKHopSampler(HeteroData(), 1, 2),
        value="HeteroData",
        rule="loaders homogeneous Data",
        remedy="PyG's own",
    ),
    "another library's sampler": Mistake(
        lambda data: hoptrain.pyg.NeighborLoader(data, [2], neighbor_sampler=pyg_reference.ReferenceSampler(data, [2])),
        value="ReferenceSampler",
        rule="neighbor_sampler loaders hoptrain",
        remedy="give hoptrain.pyg.NeighborSampler",
    ),
    "no nodes to begin at": Mistake(
        lambda hetero: batch_of(hetero, input_nodes=None),
        value="input_nodes is None",
        rule="HeteroData node type nodes",
        remedy="tuple paper, author, venue",
    ),
    "nodes in a dict": Mistake(
        lambda hetero: batch_of(hetero, input_nodes={"paper": torch.arange(120)}),
        value="input_nodes is {'paper': tensor(",
        rule="HeteroData node type nodes",
        remedy="tuple paper, author, venue",
    ),
    "nodes of an unknown type": Mistake(
        lambda hetero: batch_of(hetero, input_nodes="reader"),
        value="input_nodes is 'reader'",
        rule="HeteroData node type nodes",
        remedy="tuple paper, author, venue",
    ),
    "a mask of fewer nodes of a type": Mistake(
        lambda hetero: batch_of(hetero, input_nodes=("paper", torch.ones(7, dtype=torch.bool))),
        value="torch.bool of shape (7,)",
        rule="input_nodes paper mask 120",
        remedy="convert",
    ),
    "one fanout of a relation": Mistake(
        lambda hetero: batch_of(hetero, num_neighbors={WRITES: 2}),
        value="is 2",
        rule="num_neighbors author:writes:paper list hop",
        remedy="15 10 dict",
    ),
    "missing weights": Mistake(
        lambda hetero: batch_of(hetero, weight_attr="heavy"), value="'heavy'", rule="data no attribute", remedy="name one"
    ),
    **{
        f"{what} as links of {kind}": Mistake(
            lambda make=make, relation=relation, links=links: hoptrain.pyg.LinkNeighborLoader(
                make(), [2], (relation, links) if relation else links
            ),
            value=f"edge_label_index{shown} {value}",
            rule="(2, N sources destinations",
            remedy=remedy,
        )
        for kind, make, relation, shown in (
            ("a heterogeneous graph", some_hetero_data, WRITES, " of author:writes:paper"),
            ("a graph", some_data, None, ""),
        )
        for what, links, value, remedy in (
            ("floats", np.ones((2, 3)), "is torch.float64 of shape (2, 3)", "convert"),
            ("a mask", torch.ones(2, 3, dtype=torch.bool), "is torch.bool of shape (2, 3)", "convert"),
            ("rows of two lengths", [[1, 2], [3]], "is [[1, 2], [3]]", "give tensor"),
            ("one row", [1, 2], "has shape (2,)", "transpose"),
        )
    },
    "nodes without edges": Mistake(nodes_alone, value="no edge types", rule="data nothing sample", remedy="give edge_index"),
    "times of nodes and of edges by one name": Mistake(
        times_of_nodes_and_of_edges, value="time_attr is 'born'", rule="nodes edges both", remedy="rename"
    ),
    "an edge from an unknown node of a type": Mistake(
        edge_from_node_80, value="node 80", rule="edge 3 author:writes:paper 120", remedy="fix x"
    ),
    "a relation without edges": Mistake(
        relation_without_edges, value="author:writes:paper", rule="edge_index adj_t nothing sample", remedy="give one"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
