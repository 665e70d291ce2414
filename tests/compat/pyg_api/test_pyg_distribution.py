"""The samples of ``hoptrain.pyg`` follow the distributions that PyG documents, by a chi-square test over a million draws."""

import math
from collections import Counter
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch_geometric.data import Data, HeteroData

import hoptrain.pyg

FANOUT, DEGREE, COPIES = 2, 4, 4096
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
TIMES = np.array([1, 2, 3, 4])


@pytest.fixture(scope="module")
def data():
    """Return a graph in which nodes 0 to 4095 have the same four in-neighbours, in random order of edges."""
    order = torch.randperm(COPIES * DEGREE, generator=torch.Generator().manual_seed(1))
    number = torch.arange(COPIES * DEGREE)
    edges = torch.stack([COPIES + number % DEGREE, number // DEGREE])[:, order]
    kind = (number % DEGREE)[order]
    return Data(
        edge_index=edges,
        num_nodes=COPIES + DEGREE,
        weight=torch.from_numpy(WEIGHTS)[kind],
        made=torch.from_numpy(TIMES)[kind],
    )


def uniform_subsets(size):
    return {chosen: 1 / math.comb(size, FANOUT) for chosen in combinations(range(size), FANOUT)}


def independent(probabilities):
    distribution = Counter()
    for drawn in product(range(len(probabilities)), repeat=FANOUT):
        distribution[tuple(sorted(drawn))] += math.prod(probabilities[i] for i in drawn)
    return distribution


def one_after_another(weights):
    """Return the distribution of successive sampling by weight without replacement."""
    distribution = Counter()
    for drawn in permutations(range(len(weights)), FANOUT):
        left, probability = weights.sum(), 1.0
        for i in drawn:
            probability *= weights[i] / left
            left -= weights[i]
        distribution[tuple(sorted(drawn))] += probability
    return distribution


DISTRIBUTIONS = {
    "without replacement": ({}, uniform_subsets(DEGREE)),
    "with replacement": ({"replace": True}, independent(np.full(DEGREE, 1 / DEGREE))),
    "weighted": ({"weight_attr": "weight"}, one_after_another(WEIGHTS)),
    "weighted with replacement": ({"weight_attr": "weight", "replace": True}, independent(WEIGHTS)),
    "disjoint": ({"disjoint": True}, uniform_subsets(DEGREE)),
    "until a time": ({"time_attr": "made", "input_time": torch.full((COPIES,), 3)}, uniform_subsets(3)),
}


def hetero(data):
    """Return the graph of ``data`` as a relation between two node types."""
    made = HeteroData({"to": {"num_nodes": COPIES}, "from": {"num_nodes": DEGREE}})
    store = made["from", "leads", "to"]
    store.edge_index = data.edge_index - torch.tensor([[COPIES], [0]])
    store.weight, store.made = data.weight, data.made
    return made


@pytest.mark.parametrize("has_types", [False, True], ids=["plain", "hetero"])
@pytest.mark.parametrize(("options", "distribution"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_the_distribution_of_a_hop(data, options, distribution, has_types):
    seeds = torch.arange(COPIES)
    given, nodes = (hetero(data), ("to", seeds)) if has_types else (data, seeds)
    loader = hoptrain.pyg.NeighborLoader(given, [FANOUT], input_nodes=nodes, batch_size=COPIES, **options)
    torch.manual_seed(11)
    found = Counter()
    draws = 0
    while draws < 1_000_000:
        (batch,) = loader
        store, global_ids = (batch["from", "leads", "to"], batch["from"].n_id) if has_types else (batch, batch.n_id - COPIES)
        kinds = global_ids[store.edge_index[0]].view(COPIES, FANOUT).sort(1).values
        codes, times = (kinds * torch.tensor([DEGREE, 1])).sum(1).unique(return_counts=True)
        found.update({divmod(code, DEGREE): number for code, number in zip(codes.tolist(), times.tolist(), strict=True)})
        draws += kinds.numel()
    assert set(found) <= set(distribution)
    number = sum(found.values())
    statistic = sum((found[outcome] - number * p) ** 2 / (number * p) for outcome, p in distribution.items())
    assert chi2.sf(statistic, len(distribution) - 1) > 1e-4
