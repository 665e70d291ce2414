"""VR-GCN's control variate is unbiased for any history, and exact for the true activations."""

import numpy as np
import torch

from hoptrain.samplers import VRGCNSampler
from hoptrain.trainers.feedback.variance_reduction import History


def exact_means(graph, values, nodes):
    columns = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in nodes]
    return np.stack([values[column].mean(0) if len(column) else np.zeros(values.shape[1]) for column in columns])


def estimates(graph, values, history, number):
    """Return the estimated means for the seeds 0, 7, 14, ... over several batches, as inputs of layer 1 of 2."""
    degrees = torch.from_numpy(graph.in_degrees()).float()
    taken = []
    for i in range(number):
        batch = VRGCNSampler([2, 2]).sample(graph, SEEDS, batch=i).to("cpu")
        nodes = batch.node_ids[: batch.blocks[1].num_src].long()
        taken.append(history.mean(1, torch.from_numpy(values)[nodes], batch, degrees[nodes]).numpy())
    return np.stack(taken)


SEEDS = np.arange(0, 200, 7)


def test_unbiased_for_any_history_and_better_for_a_near_one(graph):
    rng = np.random.default_rng(0)
    values = rng.random((graph.num_nodes, 3), dtype=np.float32)
    exact, spreads = exact_means(graph, values, SEEDS), []
    for noise in (1.0, 0.1):
        history = History(graph.num_nodes, [3])
        history.table(1).copy_(torch.from_numpy(values + noise * rng.standard_normal(values.shape, np.float32)))
        taken = estimates(graph, values, history, 200)
        error = taken.std(0) / np.sqrt(len(taken)) + 1e-6
        assert np.abs((taken.mean(0) - exact) / error).max() < 4.5
        spreads.append(taken.std(0).mean())
    assert spreads[1] < 0.2 * spreads[0]


def test_exact_where_the_history_is_true(graph):
    values = np.random.default_rng(0).random((graph.num_nodes, 3), dtype=np.float32)
    history = History(graph.num_nodes, [3])
    everything = VRGCNSampler([-1, -1]).sample(graph, np.arange(graph.num_nodes)).to("cpu")
    history.update(1, torch.from_numpy(values)[everything.node_ids.long()], everything)
    np.testing.assert_allclose(estimates(graph, values, history, 1)[0], exact_means(graph, values, SEEDS), atol=1e-5)


def test_gradients_go_through_the_activations_alone(graph):
    batch = VRGCNSampler([2, 2]).sample(graph, SEEDS).to("cpu")
    h = torch.ones(batch.blocks[1].num_src, 3, requires_grad=True)
    history = History(graph.num_nodes, [3])
    history.mean(1, h, batch, torch.from_numpy(graph.in_degrees()).float()[batch.node_ids.long()]).sum().backward()
    assert h.grad is not None
    assert h.grad.sum() == 3 * (np.diff(batch.blocks[1].indptr) > 0).sum()
    assert not history.table(1).requires_grad
    assert list(history.state_dict()) == []
