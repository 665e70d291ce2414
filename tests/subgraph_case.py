"""Helpers of the tests of subgraph samplers."""

import numpy as np
import torch
from hypothesis import strategies as st
from pytorch_lightning import Trainer

from hoptrain.engine import Graph
from hoptrain.samplers import SampleLoader, Workspace
from hoptrain.trainers import NodeClassifier, NodeDataModule


@st.composite
def graphs(draw, most_nodes=30, most_edges=90):
    """Draw small graphs with hubs, parallel edges, self loops, isolated nodes, and columns in any order."""
    num_nodes = draw(st.integers(1, most_nodes))
    node = st.integers(0, num_nodes - 1)
    columns = [[] for _ in range(num_nodes)]
    for src, dst in draw(st.lists(st.tuples(node, st.integers(0, min(3, num_nodes - 1)) | node), max_size=most_edges)):
        columns[dst].append(src)
    indptr = np.r_[0, np.cumsum([len(column) for column in columns])]
    return Graph(indptr, np.array([src for column in columns for src in column], np.int64))


def grid(side=6):
    """Return a torus of side * side nodes with edges from and to the four neighbours."""
    v = np.arange(side * side)
    right, down = v // side * side + (v + 1) % side, (v + side) % (side * side)
    return Graph.from_edges(np.r_[v, right, v, down], np.r_[right, v, down, v])


def as_lists(batch):
    """Return a mini-batch of subgraphs as lists, after checking its shape."""
    outer = batch.blocks[0]
    assert batch.nested
    assert {block.num_src for block in batch.blocks} == {len(batch.node_ids)}
    assert [block.num_dst for block in batch.blocks] == [len(batch.node_ids)] * (len(batch.blocks) - 1) + [batch.num_seeds]
    weights = [None if w is None else w.tolist() for w in (outer.weights, batch.seed_weights)]
    return batch.num_seeds, batch.node_ids.tolist(), outer.indptr.tolist(), outer.indices.tolist(), outer.edge_ids.tolist(), *weights


def check_pure(sampler, graph, units):
    """Check that batches are the same if sampled singly, in a bulk, with two threads, with used scratch arrays, or twice."""
    alone = [as_lists(sampler.sample(graph, u, seed=2**64 - 3, epoch=2, batch=7 + i)) for i, u in enumerate(units)]
    for threads in (1, 2):
        workspace, places = Workspace(threads), []
        for _ in range(2):
            bulk = sampler.sample_bulk(graph, units, seed=2**64 - 3, epoch=2, first_batch=7, workspace=workspace)
            assert [as_lists(batch) for batch in bulk] == alone
            places.append([array.ctypes.data for batch in bulk for array in batch.arrays().values()])
        assert places[0] == places[1]
    return alone


def check_loader(dataset, sampler, batch_size):
    """Check that 0 and 2 workers give the same batches with the right rows, and return the batches of an epoch."""
    epochs = []
    for num_workers in (0, 2):
        loader = SampleLoader(dataset, sampler, batch_size=batch_size, num_workers=num_workers, seed=3)
        try:
            batches = [(as_lists(batch), np.array(batch.x), np.array(batch.y), batch.num_step_seeds) for batch in loader]
        finally:
            loader.close()
        for (num_seeds, nodes, *_), x, y, num_step_seeds in batches:
            assert num_seeds == num_step_seeds > 0
            np.testing.assert_array_equal(x, dataset.x[nodes])
            np.testing.assert_array_equal(y, dataset.y[nodes[:num_seeds]])
        epochs.append([batch for batch, *_ in batches])
    assert epochs[0] == epochs[1]
    return epochs[0]


def fit(sampler, batch_size, arch="sage"):
    """Train two epochs on the digits (ten classes); return the validation accuracy and the loss of the last epoch."""
    torch.manual_seed(0)
    module = NodeDataModule("digits-knn", sampler, batch_size=batch_size, num_workers=0, seed=1)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch=arch, hidden_channels=64, lr=0.01)
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, use_distributed_sampler=False
    )
    trainer.fit(model, module)
    return float(trainer.callback_metrics["val_acc"]), float(trainer.callback_metrics["train_loss"])
