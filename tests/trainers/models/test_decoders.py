"""Decoders equal their formulas, and ranks among all nodes equal those of a loop over pairs."""

import itertools

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.engine import Graph
from hoptrain.trainers.models import ranks
from hoptrain.trainers.models.decoders import make_decoder

NAMES = ("dot", "mlp", "hadamard", "distmult", "complex")


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_formulas():
    source, destination = vectors(5, 6), vectors(5, 6, seed=1)
    assert torch.equal(make_decoder("dot", 6)(source, destination), (source * destination).sum(1))
    distmult = make_decoder("distmult", 6)
    assert torch.allclose(distmult(source, destination), torch.einsum("nc,c,nc->n", source, distmult.weights, destination))
    decoder = make_decoder("complex", 6)
    as_complex = [torch.complex(*rows.chunk(2, -1)) for rows in (source, decoder.weights, destination)]
    expected = (as_complex[0] * as_complex[1] * as_complex[2].conj()).sum(-1).real
    assert torch.allclose(decoder(source, destination), expected, atol=1e-6)
    mlp = make_decoder("mlp", 6)
    hidden, last = mlp.pair.mlp.lins
    expected = last(torch.relu(hidden(torch.cat([source, destination], 1))))[:, 0]
    assert torch.allclose(mlp(source, destination), expected)
    hadamard = make_decoder("hadamard", 6)
    hidden, last = hadamard.mlp.lins
    assert torch.allclose(hadamard(source, destination), last(torch.relu(hidden(source * destination)))[:, 0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_source", [True, False])
def test_against_all_is_pair_by_pair(name, is_source):
    decoder, rows = make_decoder(name, 4), vectors(7, 4)
    found = decoder.against(rows[:3], rows, is_source)
    for i, j in itertools.product(range(3), range(7)):
        pair = (rows[i], rows[j]) if is_source else (rows[j], rows[i])
        assert torch.allclose(found[i, j], decoder(*pair), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [1, 40, 1 << 20])
def test_filtered_ranks(name, most, monkeypatch):
    """Filtered ranks equal ranks computed pair by pair, for any number of candidates at a time."""
    monkeypatch.setattr(ranks, "MOST_NUMBERS", most)
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 12, (2, 30))
    rows, links = (vectors(12, 4) * 2).round(), torch.from_numpy(np.stack([src, dst])[:, :8])
    decoder = make_decoder(name, 4)
    known = {(int(u), int(v)) for u, v in zip(src, dst, strict=True)}
    known |= {(v, u) for u, v in known}
    found = ranks.ranks_among_all(decoder, rows, links, Graph.from_pairs(src, dst, 12))
    expected = []
    for given, other, is_source in ((links[0], links[1], True), (links[1], links[0], False)):
        scores = decoder.against(rows[given], rows, is_source).tolist()
        for u, v, own in zip(given.tolist(), other.tolist(), scores, strict=True):
            others = [own[w] for w in range(12) if (u, w) not in known]
            expected.append(1 + (sum(x > own[v] for x in others) + sum(x >= own[v] for x in others)) / 2)
    assert found.tolist() == expected
    pairs = torch.cat([links, links.flip(0)], 1)
    assert torch.allclose(ranks.scores_in_parts(decoder, rows, pairs), decoder(*rows[pairs]), atol=1e-6)


def test_mistakes():
    with refused("'dots'", "mlp hadamard distmult complex", "mean dot?"):
        make_decoder("dots", 4)
    with refused("out_channels is 5", "decoder complex half imaginary", "even"):
        make_decoder("complex", 5)
