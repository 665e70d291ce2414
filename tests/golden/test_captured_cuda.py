"""Bulks captured as CUDA graphs give the golden batches (``test_golden.py``), with the expected number of launches."""

from itertools import islice

import pytest
from cuda_case import _launched, _replays, needs_cuda, simulated, to_host  # noqa: F401
from golden_batches import check, digests, read
from golden_samplers import ADDRESSES, ON_CPU, SAMPLED
from nodewise_cuda_case import on_cuda

pytestmark = [needs_cuda, simulated]
GOLDEN = read()
LAUNCHES = {
    "neighbor": 22,
    "neighbor, all": 23,
    "neighbor, replace": 22,
    "neighbor, weighted": 24,
    "neighbor, weighted, all": 25,
    "neighbor, weighted, float64": 24,
    "neighbor, weighted, replace": 22,
    "neighbor, new": 22,
    "neighbor, new, weighted, replace": 24,
    "neighbor, int64": 22,
    "neighbor, share": 23,
    "neighbor, share, replace, new": 24,
    "neighbor, share, weighted": 25,
    "neighbor, share, weighted, replace": 25,
    "labor, share": 28,
    "temporal, share": 32,
    "typed, share": 72,
    "labor": 28,
    "labor, all": 28,
    "labor, importance": 82,
    "labor, int64": 28,
    "pinsage": 22,
    "pinsage, no restart": 12,
    "temporal": 24,
    "temporal, replace": 31,
    "temporal, recent": 24,
    "vrgcn": 28,
    "ladies": 94,
    "ladies, gcn, normalize": 96,
    "fastgcn": 68,
    "fastgcn, gcn": 68,
    "asgcn": 100,
    "asgcn, scores": 100,
    "cluster": 24,
    "cluster, METIS": 24,
    "saint, node": 27,
    "saint, edge": 27,
    "saint, walk": 27,
    "saint, walk, int64": 27,
    "ripple": 26,
    "shadow": 50,
    "shadow, ppr": 18,
    "links": 32,
    "links, degree": 20,
    "links, pairs": 32,
    "links, in batch": 23,
    "links, temporal": 14,
    "mvs": 22,
    "mvs, vrgcn": 18,
    "weighted seeds": 22,
    "weighted seeds, typed": 68,
    "typed": 68,
    "typed, replace": 68,
    "typed, by relation": 52,
    "program": 22,
    "program, collective": 70,
    "walk": 10,
    "walk, int64": 10,
    "walk, restart": 10,
    "node2vec": 10,
    "links, filtered": 17,
    "links, among some": 17,
    "metapath": 10,
}
"""Number of kernel launches in the replay of a bulk. No sampler launches a kernel outside the replay."""


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_sampler_is_one_call(name, replays, launched):
    """A replayed bulk of every sampler is one call and gives the golden batches.

    The first bulks of a shape allocate buffers, the next bulk is captured, and later ones are replayed.
    """
    if name == "cluster, METIS":
        pytest.importorskip("pymetis")
    case, workspace = SAMPLED[name](), on_cuda()
    for which in (1, 2, 2, 2):
        launched.clear()
        expected = dict(islice(GOLDEN[name].items(), which * len(case.bulk), (which + 1) * len(case.bulk)))
        check(name, digests(case.in_bulks(workspace, [ADDRESSES[which]], to_host)), expected)
    assert (set(replays), launched) == ({LAUNCHES[name]}, [])


def test_no_sampler_is_left_out():
    assert LAUNCHES.keys() == {name for name in SAMPLED if "large" not in name} - ON_CPU
