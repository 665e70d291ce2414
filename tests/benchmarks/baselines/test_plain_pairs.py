"""Plain PyG models of links and triples equal the models of the configurations."""

import numpy as np
import pytest
import torch
import yaml

from hoptrain.benchmarks.accuracy import PAIRED
from hoptrain.benchmarks.baselines import plain_pairs
from hoptrain.engine.datasets.triples import Triples
from hoptrain.trainers.commands.configs import FOLDER, known
from hoptrain.trainers.models.hetero.triples import EntityEncoder, exact_vectors
from hoptrain.trainers.tasks.kg import TripleDataModule

OPTIONS = {"hidden_channels": 8, "num_blocks": 2}


def triples():
    rows = np.unique(np.random.default_rng(0).integers(0, [20, 3, 20], (150, 3)), axis=0)
    rows = np.random.default_rng(1).permutation(rows)
    return Triples(splits={"train": rows[:100], "val": rows[100:120], "test": rows[120:]}, num_nodes=20, num_relations=3)


def test_the_configurations_are_there():
    assert set(PAIRED) <= set(known())


def test_rgcn_is_the_same():
    """With the same weights, PyG's layer on all edges and hoptrain's full-neighbour inference have equal outputs."""
    data = triples()
    graph, train = data.graph(), torch.from_numpy(data.splits["train"])
    theirs, ours = plain_pairs.RGCN(train, 20, 3, OPTIONS), EntityEncoder(20, 6, 8, 1, 2, 0.0).eval()
    with torch.no_grad():
        ours.table.weight.copy_(theirs.table.weight)
        ours.layers[0].weight.copy_(theirs.conv.weight)
        ours.layers[0].root.copy_(theirs.own.weight.T)
        ours.layers[0].bias.copy_(theirs.own.bias)
    kinds = torch.from_numpy(data.relations_of_edges(graph))
    found = exact_vectors(ours, graph, kinds, device=torch.device("cpu"))
    torch.testing.assert_close(theirs(torch.arange(200)), found, rtol=1e-4, atol=1e-5)


def test_edges_that_are_drawn():
    """The baseline draws edges into requested nodes only, up to the fanout for each node, and never the edges of the batch's triples."""
    train = torch.from_numpy(triples().splits["train"])
    model, numbers = plain_pairs.RGCN(train, 20, 3, OPTIONS), torch.arange(10)
    asked = train[numbers][:, [0, 2]].unique()
    seen = set()
    for _ in range(60):
        chosen = model.drawn(asked, numbers, 4)
        assert len(chosen) == len(chosen.unique())
        left = torch.cat([torch.arange(10, 100), torch.arange(110, 200)])
        degrees = torch.bincount(model.edges[1, left], minlength=20)
        expected = torch.zeros(20, dtype=torch.long)
        expected[asked] = degrees[asked].clamp(max=4)
        assert torch.bincount(model.edges[1, chosen], minlength=20).tolist() == expected.tolist()
        seen |= set(chosen.tolist())
    assert seen == {number for number in left.tolist() if model.edges[1, number] in asked}


def test_the_judge_counts_every_rank():
    data = triples()
    module = TripleDataModule(data, batch_size=10, num_workers=0, allow_unseen=True)
    vectors, relations = torch.randn(20, 4), torch.randn(6, 4)
    known = {tuple(row) for split in data.splits for row in data.queries(split).tolist()}
    expected = []
    for head, kind, tail in data.queries("test").tolist():
        scores = (vectors[head] * relations[kind]) @ vectors.T
        expected.append(1 / (1 + sum(float(scores[v]) > float(scores[tail]) for v in range(20) if (head, kind, v) not in known)))
    assert plain_pairs.mrr(module, "test", vectors, relations) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks are implicitly disabled")
@pytest.mark.parametrize("name", PAIRED)
def test_runs(name, tmp_path, monkeypatch):
    """Each configuration runs on small data in the format of its data set, and two runs have the same metric."""
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path))
    monkeypatch.setattr(plain_pairs, "BATCH", 300)
    config = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    if config["task"] == "links":
        of_items = (
            "dst_range" in config["data"]["sampler"]["init_args"]
        )  # items are the nodes from 20 on; some links of users are kept for the test split
        is_pair = np.triu(np.random.default_rng(0).random((60, 60)) < 0.3, 1)
        is_held, extra = np.zeros_like(is_pair), {}
        if of_items:
            config["data"]["sampler"]["init_args"]["dst_range"] = [20, 60]
            is_pair[:, :20] = is_pair[20:] = False
            is_held[:20:5, 58:] = is_pair[:20:5, 58:]
            extra = {"test_pairs": np.argwhere(is_held) - [0, 20], "meta": '{"users": 20}'}
        if "embeddings" not in config["model"]:
            extra = {"x": np.random.default_rng(2).random((60, 5), np.float32)}
        src, dst = np.nonzero(is_pair & ~is_held)
        order = np.lexsort([np.r_[src, dst], np.r_[dst, src]])
        indptr = np.searchsorted(np.r_[dst, src][order], np.arange(61))
        np.savez(tmp_path / config["data"]["dataset"], indptr=indptr, indices=np.r_[src, dst][order].astype(np.int32), **extra)
    else:
        splits = triples().splits
        np.savez(tmp_path / config["data"]["triples"], train=splits["train"], valid=splits["val"], test=splits["test"])
    config["model"] |= {"hidden_channels": 20}
    found = [plain_pairs.plain_pairs_score(config, 1, 0.0) for _ in range(2)]
    assert found[0] == found[1]
    assert 0 < found[0] < 1
