"""Batches are those of the version before, on any machine: a change of theirs is one for users too. See ``write.py``."""

import json

import pytest
from cuda_case import SMALL, _quick_simulator, needs_cuda, to_host  # noqa: F401
from golden.write import ADDRESS, FILE, LOADER, cases, digest, loader_digests

from hoptrain.samplers import Workspace

GOLDEN = json.loads(FILE.read_text())
NAMES = sorted(set(GOLDEN) - {LOADER})
REMEDY = "write.py tells which batches changed; if they should, run it and name the change in CHANGELOG.md"


@pytest.fixture(scope="module")
def made():
    return cases()


def test_every_case_is_kept(made):
    assert sorted(made) == NAMES


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_on_the_cpu(made, name, threads):
    sampler, graph, bulk = made[name]
    found = sampler.sample_bulk(graph, bulk, workspace=Workspace(threads), **ADDRESS)
    assert [digest(batch) for batch in found] == GOLDEN[name], REMEDY


@pytest.mark.parametrize("num_workers", [0, 2])
def test_through_a_loader(num_workers):
    assert loader_digests(num_workers) == GOLDEN[LOADER], REMEDY


@needs_cuda
@pytest.mark.parametrize("name", NAMES)
def test_on_cuda(made, name):
    sampler, graph, bulk = made[name]
    workspace = Workspace(device="cuda")
    workspace.thresholds = SMALL
    found = sampler.sample_bulk(graph, bulk, workspace=workspace, **ADDRESS)
    assert [digest(batch, on_host=to_host) for batch in found] == GOLDEN[name], REMEDY
