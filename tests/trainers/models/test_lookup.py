"""Gradients of looked-up rows, and trainings that look rows up, are bit-identical in every run and with any number of threads."""

import numpy as np
import pytest
import torch

from hoptrain import GNN, NeighborSampler, SampleLoader, load_dataset
from hoptrain.trainers.models.sums import lookup

RUNS = 3


@pytest.fixture
def four_threads():
    torch.set_num_threads(4)


@pytest.mark.parametrize("shape", [(3000,), (2, 1500)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.usefixtures("four_threads")
def test_gradients_are_added_in_the_order_of_the_index(dtype, shape):
    x = torch.randn(50, 32, requires_grad=True)
    index, towards = torch.randint(0, 50, shape, dtype=dtype), torch.randn(*shape, 32)
    expected = np.zeros((50, 32), np.float32)
    np.add.at(expected, index.flatten().numpy(), towards.reshape(-1, 32).numpy())
    rows = lookup(x, index)
    assert torch.equal(rows, x[index.long()])
    for _ in range(RUNS):
        (gradient,) = torch.autograd.grad(rows, x, towards, retain_graph=True)
        assert np.array_equal(gradient, expected)


def gradients(model, batches, degrees):
    for batch in batches:
        torch.nn.functional.cross_entropy(model(batch.x, batch.blocks, degrees[batch.node_ids]), batch.y).backward()
    return [weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("arch", ["sage", "gcn", "gin", "gat", "gatv2", "transformer"])
@pytest.mark.usefixtures("four_threads")
def test_gradients_of_a_model_repeat(arch):
    data = load_dataset("digits-knn")
    batches = [batch.to("cpu") for batch in SampleLoader(data, NeighborSampler([-1, 5]), batch_size=1078)]
    assert batches[0].blocks[0].num_edges * 8 > 1 << 15  # torch divides the work among threads
    runs = []
    for _ in range(RUNS):
        torch.manual_seed(0)
        runs.append(gradients(GNN(arch, 64, 64, 10, 2), batches, torch.from_numpy(data.graph.in_degrees())))
    for run in runs[1:]:
        assert all(map(torch.equal, runs[0], run))
