"""Outputs and gradients of models on CUDA equal the CPU's, by hoptrain's kernels between torch's operations."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_graph
from cuda_case import tested_blocks  # noqa: F401
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import LambdaCallback
from torch import nn

from hoptrain import GNN, Dataset
from hoptrain.pyg.nn import GATConv, GATv2Conv
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.models.batches import edge_index_of
from hoptrain.trainers.models.layers import relu_dropout
from hoptrain.trainers.models.sums import aggregate

pytestmark = pytest.mark.filterwarnings("ignore:gemm_and_bias")  # the stub of cuBLAS has no fused product

ARCHS = ["sage", "gcn", "gin", "gat"]


def batch_of(sampler):
    """Return a mini-batch of torch tensors on the CPU, and the in-degrees of its nodes."""
    graph = make_graph(60, 400)
    batch = sampler.sample(graph, np.arange(9)).to("cpu")
    degrees = torch.from_numpy(graph.in_degrees())[batch.node_ids.long()].float()
    return batch, degrees


def results(model, x, batch, degrees, device):
    """Return the outputs, the gradient of the features and those of the parameters on a device, in training."""
    model, batch = deepcopy(model).to(device).train(), batch.to(device)
    rows = x.to(device, copy=True).requires_grad_()
    torch.manual_seed(3)
    out = model(rows, batch.blocks, degrees.to(device))
    torch.nn.functional.cross_entropy(out, torch.arange(9, device=device) % 4).backward()
    found = {"out": out.detach(), "x": rows.grad, **{name: each.grad for name, each in model.named_parameters()}}
    return {name: each.cpu() for name, each in found.items()}


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("width", [4, 24], ids=["narrow", "wide"])
@pytest.mark.parametrize("arch", ARCHS)
def test_two_hops_give_the_results_of_the_cpu(arch, width, dropout):
    """Blocks have self-loops, nodes without edges, and sources that are not destinations; dropout drops what the CPU drops."""
    torch.manual_seed(0)
    batch, degrees = batch_of(NeighborSampler([4, 3]))
    model = GNN(arch, width, 16, 4, 2, dropout=dropout, heads=2, input_dropout=dropout)
    x = torch.randn(len(batch.node_ids), width)
    expected, found = (results(model, x, batch, degrees, device) for device in ("cpu", "cuda"))
    assert expected["x"].count_nonzero() > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("edge_channels", [0, 3])
def test_gatv2_gives_the_results_of_the_cpu(edge_channels):
    """On CUDA hoptrain's attention computes the outputs, and on the CPU PyG's, with a self-loop whose edge features are the mean of the others'."""
    torch.manual_seed(0)
    batch, degrees = batch_of(NeighborSampler([4, 3]))
    model = GNN("gatv2", 5, 16, 4, 2, dropout=0.0, heads=2, edge_channels=edge_channels)
    batch = replace(batch, blocks=[replace(block, edge_attr=torch.randn(block.num_edges, 3)) for block in batch.blocks])
    x = torch.randn(len(batch.node_ids), 5)
    expected, found = (results(model, x, batch, degrees, device) for device in ("cpu", "cuda"))
    assert expected["x"].count_nonzero() > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def losses_of(data, device, accelerator):
    """Return the losses of a training of two epochs."""
    torch.manual_seed(0)
    module = NodeDataModule(data, NeighborSampler([4, 3]), seed=1, batch_size=8, num_workers=0, sampler_device=device)
    model, losses = NodeClassifier(module.num_features, module.num_classes, module.num_hops, hidden_channels=16), []
    each = LambdaCallback(on_train_batch_end=lambda trainer, model, outputs, *_: losses.append(outputs["loss"].detach()))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"max_epochs": 2, "limit_val_batches": 0, "use_distributed_sampler": False, **quiet}
    Trainer(accelerator=accelerator, devices=1, callbacks=[each], **options).fit(model, module)
    return torch.stack(losses).cpu()


@pytest.mark.usefixtures("tested_blocks")
@pytest.mark.filterwarnings("ignore")  # Lightning's advice
def test_training_gives_the_losses_of_the_cpu():
    """Lightning trains on batches that CUDA samples, with dropout, and has the losses of a training on the CPU."""
    graph, rng = make_graph(60, 400), np.random.default_rng(1)
    x, y = rng.random((graph.num_nodes, 7), dtype=np.float32), rng.integers(0, 4, graph.num_nodes)
    data = Dataset(name="random", graph=graph, x=x, y=y, splits={"train": np.arange(48)}, num_classes=4)
    expected = losses_of(data, "cpu", "cpu")
    assert len(expected.unique()) == 12
    torch.testing.assert_close(losses_of(data, "cuda", "gpu"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("own_edges", [True, False], ids=["own edges", "sampled edges"])
@pytest.mark.parametrize("conv", [GATConv, GATv2Conv])
def test_attention_of_pygs_layers_gives_the_results_of_the_cpu(conv, own_edges):
    """Attention over a block with an added self-loop for each destination, and over the sampled edges alone."""
    torch.manual_seed(0)
    batch, _ = batch_of(NeighborSampler([4, 3], expand="new"))
    layers = nn.ModuleList(conv(5, 6, heads=heads, dropout=0.3, add_self_loops=own_edges) for heads in (3, 1))
    x = torch.randn(len(batch.node_ids), 5)
    found = []
    for device in ("cpu", "cuda"):
        rows, edges = x.to(device, copy=True).requires_grad_(), edge_index_of(batch.to(device))
        torch.manual_seed(3)
        out = sum(layer(rows, edges)[: batch.num_seeds].sigmoid().sum() for layer in deepcopy(layers).to(device).train())
        out.backward()
        found.append({"out": out.detach().cpu(), "x": rows.grad.cpu()})
    assert found[0]["x"].count_nonzero() > 0
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layer", [lambda x, block: aggregate(block, x), lambda x, block: relu_dropout(x)], ids=["sums", "dropout"])
def test_rows_on_another_gpu_than_the_current_one(layer):
    """As torch's own operations, hoptrain's run on the GPU of their tensors and on its current stream."""
    batch, _ = batch_of(NeighborSampler([4]))
    x, current = torch.randn(len(batch.node_ids), 8), torch.cuda.current_stream(1)
    torch.cuda.set_stream(torch.cuda.Stream(1))  # unlike the default stream, it belongs to GPU 1
    torch.cuda.set_device(0)
    try:
        found = []
        for device in ("cpu", "cuda:1"):
            rows, block = x.to(device, copy=True).requires_grad_(), batch.blocks[0].to(device)
            torch.manual_seed(3)
            out = layer(rows, block)
            out.square().sum().backward()
            found.append((out.detach().cpu(), rows.grad.cpu()))
    finally:
        torch.cuda.set_stream(current)
        torch.cuda.set_device(0)
    torch.testing.assert_close(found[1], found[0])
