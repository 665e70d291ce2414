"""Entity embeddings and logits of triples equal PyG's, and filtered ranks equal those of a loop."""

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from torch_geometric.nn import RGCNConv, kge

from hoptrain.engine.datasets.triples import Triples
from hoptrain.samplers import NeighborSampler
from hoptrain.samplers.wrappers.triples import TripleSampler
from hoptrain.trainers.models import ranks
from hoptrain.trainers.models.hetero import triples as models
from hoptrain.trainers.models.hetero.relations import score_named


def drawn(num_nodes=50, num_relations=3, number=400):
    rng = np.random.default_rng(1)
    rows = np.unique(np.stack([rng.integers(0, high, number) for high in (num_nodes - 5, num_relations, num_nodes - 5)], axis=1), axis=0)
    rows = rng.permutation(rows)
    return Triples(splits={"train": rows[:-60], "test": rows[-60:]}, num_nodes=num_nodes, num_relations=num_relations)


def encoder_of(data, layers=2):
    torch.manual_seed(0)
    return models.EntityEncoder(data.num_nodes, 2 * data.num_relations, 12, layers, 3, 0.0).eval()


def by_relation(layer, hidden, num_dst, edges, kinds):
    """Compute the layer by PyG's RGCNConv for each relation, summed and divided by the number of edges."""
    added = RGCNConv(12, 12, 6, num_blocks=3, aggr="add", root_weight=False, bias=False)
    added.weight = layer.weight
    sums = added((hidden, hidden[:num_dst]), edges, kinds)
    degrees = edges[1].bincount(minlength=num_dst).clamp(min=1)[:, None]
    return sums / degrees + hidden[:num_dst] @ layer.root + layer.bias


def test_a_layer_is_pygs():
    """The values and gradients of the R-GCN layer equal those of PyG's; one destination has no edge."""
    torch.manual_seed(0)
    x, edges, kinds = torch.randn(30, 12), torch.randint(30, (2, 200)), torch.randint(6, (200,))
    edges[1] %= 20
    [layer] = models.EntityEncoder(1, 6, 12, num_layers=1, num_blocks=3, dropout=0.0).layers
    outputs = layer((x, x[:21]), edges, kinds), by_relation(layer, x, 21, edges, kinds)
    made = [[out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))] for out in outputs]
    for own, other in zip(*made, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_exact_vectors_are_those_of_the_whole_graph(monkeypatch, layers):
    data, graph = drawn(), drawn().graph()
    encoder, relations = encoder_of(data, layers), torch.from_numpy(data.relations_of_edges(graph))
    hidden = encoder.table.weight
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), graph.destinations()]))
    for i, layer in enumerate(encoder.layers):
        hidden = hidden.relu() if i else hidden
        hidden = by_relation(layer, hidden, 50, edges, relations)
    monkeypatch.setattr(models, "MOST_NUMBERS", 48 * 100)
    found = models.exact_vectors(encoder, graph, relations, device=torch.device("cpu"))
    torch.testing.assert_close(found, hidden, rtol=1e-4, atol=1e-5)
    batch = TripleSampler(data, NeighborSampler([-1] * layers) if layers else None, 5).sample(graph, np.array([0])).to("cpu")
    sampled = encoder(batch.node_ids, batch.blocks, [relations[block.edge_ids.long()] for block in batch.blocks])
    far = ~torch.isin(batch.seeds.long(), torch.from_numpy(near(data, layers)))
    torch.testing.assert_close(sampled[far], found[batch.seeds.long()][far], rtol=1e-4, atol=1e-5)


def near(data, hops):
    """Return the entities connected to the first triple."""
    rows = data.splits["train"]
    found = set(rows[0, [0, 2]].tolist()) if hops else set()
    for _ in range(hops - 1):
        found |= {b for h, _, t in rows.tolist() for a, b in ((h, t), (t, h)) if a in found}
    return np.array(sorted(found), np.int64)


@pytest.mark.parametrize(
    ("name", "theirs"), [("distmult", kge.DistMult), ("complex", kge.ComplEx), ("transe", kge.TransE), ("rotate", kge.RotatE)]
)
def test_scores_are_pygs(name, theirs):
    torch.manual_seed(0)
    width = 8 if name in ("distmult", "transe") else 4  # PyG's width counts complex numbers
    model, score = theirs(20, 3, width, **({"p_norm": 2.0} if name == "transe" else {})), score_named(name, 8)
    tables = {key: value.detach() for key, value in model.named_parameters()}
    entities, relations = (torch.cat([tables[key] for key in sorted(tables) if key.startswith(kind)], 1) for kind in ("node", "rel"))
    if name == "transe":  # PyG normalises the vectors
        entities = torch.nn.functional.normalize(entities)
    heads, kinds, tails = torch.randint(20, (30,)), torch.randint(3, (30,)), torch.randint(20, (30,))
    queries = score.query(entities[heads], relations[kinds])
    expected = model(heads, kinds, tails).detach() - (model.margin if name == "rotate" else 0)
    torch.testing.assert_close(score.match_own(queries, entities[tails]), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(score.match(queries, entities).gather(1, tails[:, None])[:, 0], expected, rtol=1e-4, atol=1e-5)
    assert score.begin(torch.empty(3, score.width(8))).shape == relations.shape


def test_filtered_ranks_are_counted_out():
    data = drawn()
    known = {(h, r, t) for split in data.splits for h, r, t in data.queries(split).tolist()}
    queries = data.queries("test")
    scores = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (len(queries), 50)).astype(np.float32))  # with ties
    slow = []
    for row, (head, relation, tail) in zip(scores.tolist(), queries.tolist(), strict=True):
        others = [score for entity, score in enumerate(row) if (head, relation, entity) not in known]
        first, last = (sum(other > row[tail] for other in others), sum(other >= row[tail] for other in others))
        slow.append(1 + (first + last) / 2)
    tails = ranks.KnownTails.of(np.concatenate([data.queries(split) for split in data.splits]), 6)
    found = ranks.ranks_but(scores, torch.from_numpy(queries[:, 2]), *tails.places(queries[:, 0], queries[:, 1]))
    assert found.tolist() == slow


MISTAKES = {
    "an odd width of complex numbers": Mistake(
        lambda: score_named("rotate", 7), value="hidden_channels is 7", rule="decoder rotate half imaginary", remedy="even"
    ),
    "an unknown decoder": Mistake(
        lambda: score_named("distmul", 8), value="'distmul'", rule="decoder one complex transe rotate", remedy="mean distmult?"
    ),
    "blocks that cannot share the width": Mistake(
        lambda: models.EntityEncoder(10, 4, 12, 1, 5, 0.0),
        value="hidden_channels is 12",
        rule="num_blocks 5 hidden_channels multiple",
        remedy="change",
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
