"""A graph with planted communities, and what the scripts share that train on it with PyG and with DGL."""

import statistics

import torch
import torch.nn.functional as F
from torchmetrics.functional.classification import binary_auroc

NODES, CLASSES = 500, 4


def planted():
    """Return the edges (in both directions), features, labels, training mask and edge times of the graph.

    Nodes have about six edges each way, mostly within their community; features hardly reveal it.
    """
    generator = torch.Generator().manual_seed(4)
    y = torch.arange(NODES) % CLASSES
    pairs = torch.randint(NODES, (2, 12_000), generator=generator)
    is_kept = torch.rand(12_000, generator=generator) < torch.where(y[pairs[0]] == y[pairs[1]], 0.4, 0.05)
    pairs = pairs[:, is_kept]
    x = torch.randn(NODES, 16, generator=generator) + 1.5 * F.one_hot(y, 16)
    is_training = torch.rand(NODES, generator=generator) < 0.5
    time = torch.randint(100, (pairs.shape[1],), generator=generator)
    return torch.cat([pairs, pairs.flip(0)], 1), x, y, is_training, torch.cat([time, time])


def train(model, loader, loss, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()
    return model.eval()


def auc(z, y):
    """Return the AUC of pairs of embeddings within a community versus pairs of two communities."""
    pairs = torch.randint(NODES, (2, 4000), generator=torch.Generator().manual_seed(9))
    return float(binary_auroc((z[pairs[0]] * z[pairs[1]]).sum(1), y[pairs[0]] == y[pairs[1]]))


def check_scores(ours, theirs, least=0.65):
    """Check that each score is above ``least``, and that the mean is that of the other library, within the spread of the seeds."""
    assert min(ours) > least, "it learns"
    spread = max(statistics.stdev(theirs), statistics.stdev(ours), 0.01)
    assert abs(statistics.mean(ours) - statistics.mean(theirs)) < 3 * spread
