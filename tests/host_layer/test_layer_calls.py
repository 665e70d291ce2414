"""Layers of ``hoptrain.pyg.nn`` on CUDA: outputs and gradients are the CPU's, and the host waits for nothing."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from conftest import make_graph
from torch import nn

from hoptrain.pyg.nn import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models.batches import edge_index_of
from host_layer.record import recorded

pytestmark = pytest.mark.filterwarnings("ignore:gemm_and_bias")  # the stub of cuBLAS has no fused product

LAYERS = {
    "SAGEConv": SAGEConv,
    "GraphConv": GraphConv,
    "GINConv": lambda inputs, outputs: GINConv(nn.Linear(inputs, outputs)),
    "GCNConv": GCNConv,
    "GCNConv improved": lambda inputs, outputs: GCNConv(inputs, outputs, improved=True),
    "GCNConv no loops": lambda inputs, outputs: GCNConv(inputs, outputs, add_self_loops=False),
    "GATConv": GATConv,
    "GATv2Conv": GATv2Conv,
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_pyg(name):
    torch.manual_seed(0)
    is_weighted = name == "GCNConv improved"
    batch = NeighborSampler([4, 3], expand="new").sample(make_graph(60, 400), np.arange(9)).to("cpu")
    layers, x = nn.ModuleList([LAYERS[name](5, 6), LAYERS[name](6, 6)]), torch.randn(len(batch.node_ids), 5)
    weights = torch.rand(edge_index_of(batch).shape[1]) if is_weighted else None
    assert (edge_index_of(batch)[0] == edge_index_of(batch)[1]).any()

    def step(device):
        """Return outputs and gradients, and the record of the host's calls between the batch and the results."""
        own = deepcopy(layers).to(device)
        rows, edges = x.to(device, copy=True).requires_grad_(), edge_index_of(batch.to(device))
        inputs = (rows, edges) if weights is None else (rows, edges, weights.to(device))
        with recorded() as record:
            out = own[1](own[0](*inputs), *inputs[1:])[: batch.num_seeds]
            out.square().sum().backward()
        grads = {key: each.grad.cpu() for key, each in own.named_parameters()}
        return {"out": out.detach().cpu(), "x": rows.grad.cpu(), **grads}, record

    expected, _ = step("cpu")
    step("cuda")  # compiles kernels
    found, record = step("cuda")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert (record.of("wait"), record.of("pageable")) == ({}, {})
