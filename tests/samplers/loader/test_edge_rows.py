"""The loader adds edge features to each block: with workers, from files, in every dtype, and on CUDA (simulator)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from cuda_case import needs_cuda, put_stand_in, simulated, tested_blocks, to_host  # noqa: F401
from reference.hetero_data import hetero_data

from hoptrain.engine import Dataset, HeteroDataset, to_bfloat16
from hoptrain.engine.features.take import take_rows
from hoptrain.engine.gpu_memory.device_stream import DeviceStream
from hoptrain.samplers import (
    HeteroLaborSampler,
    HeteroSampler,
    HGTSampler,
    LaborSampler,
    LinkSampler,
    MVSSampler,
    NeighborSampler,
    PinSAGESampler,
    RandomWalk,
    SaintWalkSampler,
    SampleLoader,
    ShadowSampler,
)

RNG = np.random.default_rng(3)
EDGES = np.stack([RNG.integers(0, 40, 300), (RNG.random(300) ** 2 * 36).astype(np.int64)])
ROWS = RNG.random((300, 3), dtype=np.float32)
SORTED = EDGES[:, np.lexsort(EDGES)]
"""Edges in CSC order, so that edge ids equal CSC positions."""


def data_of(rows=ROWS, edges=EDGES):
    return Dataset(
        edge_index=edges, x=RNG.random((40, 2), dtype=np.float32), y=np.arange(40) % 3, edge_attr=rows, splits={"train": np.arange(24)}
    )


def check(batch, data):
    """Check that each block's rows are the features of its edges."""
    assert batch.blocks
    for block in batch.blocks:
        found = to_host(block.edge_attr)
        expected = np.take(data.edge_attr, data.graph.ids_of(to_host(block.edge_ids)), axis=0)
        assert (found.dtype, found.shape, found.tolist()) == (expected.dtype, expected.shape, expected.tolist())


@pytest.mark.parametrize(
    "sampler",
    [NeighborSampler([4, 3], replace=True), NeighborSampler([4, 3], expand="new"), LinkSampler(LaborSampler([3])), ShadowSampler(2, 3),
     MVSSampler(NeighborSampler([3]), 4), SaintWalkSampler(3, 2, num_subgraphs=4)],
    ids=lambda sampler: type(sampler).__name__,
)  # fmt: skip
def test_each_edge_has_its_row(sampler):
    data = data_of()
    with SampleLoader(data, sampler, batch_size=1 if sampler.single_item else 8) as loader:
        for batch in loader:
            check(batch, data)
            made = batch.to_pyg()
            assert made.edge_attr.tolist() == ROWS[made.e_id].tolist()
            moved = batch.to("cpu")
            assert all(torch.is_tensor(block.edge_attr) for block in moved.blocks)
            assert moved.blocks[-1].edge_attr.tolist() == batch.blocks[-1].edge_attr.tolist()


@pytest.mark.parametrize("edges", [EDGES, SORTED], ids=["ids", "places"])
@pytest.mark.parametrize("to", [lambda rows: rows.astype(np.float16), to_bfloat16, lambda rows: (rows * 200).astype(np.uint8)])
def test_rows_are_moved_as_they_are_stored(tmp_path, to, edges):
    data_of(to(ROWS), edges).save(tmp_path / "data")
    data = Dataset.open(tmp_path / "data")
    assert (data.graph.edge_ids is None) == (edges is SORTED)
    for batch in SampleLoader(data, NeighborSampler([4, 3]), batch_size=8):
        check(batch, data)


def test_workers_change_nothing():
    found = []
    for num_workers in (0, 2):
        with SampleLoader(data_of(), NeighborSampler([4, 3], expand="new"), batch_size=8, num_workers=num_workers) as loader:
            found.append([[block.edge_attr.tolist() for block in batch.blocks] for batch in loader])
    assert found[0] == found[1]


def test_without_them_there_are_none():
    data = replace(data_of(), edge_attr=None)
    batch = next(iter(SampleLoader(data, NeighborSampler([4]), batch_size=8)))
    assert batch.blocks[0].edge_attr is None
    assert "edge_attr" not in batch.to_pyg()


def test_walks_have_no_edges():
    for batch in SampleLoader(data_of(), RandomWalk(3), batch_size=8):
        assert batch.blocks == ()


@pytest.mark.parametrize("sampler", [PinSAGESampler([3]), LinkSampler(PinSAGESampler([3]))], ids=["alone", "within"])
def test_pairs_without_an_edge_are_refused(sampler):
    with refused("PinSAGESampler", "features edges batches pairs", "Dataset without edge_attr"):
        SampleLoader(data_of(), sampler, batch_size=8)


HETERO = {
    ("author", "writes", "paper"): RNG.random((400, 3), dtype=np.float32),
    ("paper", "on", "subject"): RNG.integers(0, 255, 200).astype(np.uint8),  # one edge feature; the other relations have none
}


def check_hetero(batch, data):
    seen = set()
    for hop in batch.blocks:
        for relation, block in hop.items():
            if relation in HETERO:
                places = to_host(block.edge_ids)
                expected = take_rows(data.edge_attr[relation], data.graph.relations[relation].ids_of(places))
                assert (block.edge_attr.dtype, block.edge_attr.shape) == (expected.dtype, expected.shape)
                assert np.array_equal(block.edge_attr, expected)
                seen |= {relation} if block.num_edges else set()
            else:
                assert block.edge_attr is None
    return seen


@pytest.mark.parametrize(
    ("sampler", "options", "form"),
    [
        (HeteroSampler([3, 2], "paper"), {}, None),
        (HeteroSampler([3, 2], "paper", expand="new"), {"num_workers": 2}, None),
        (HeteroSampler([3, 2], "paper", replace=True), {"feature_cache": "200KiB"}, None),
        (HeteroLaborSampler([3, 2], "paper"), {}, None),
        (HGTSampler([9, 9], "paper"), {}, None),
        (HeteroSampler([3, 2], "paper"), {"num_workers": 1}, "float16"),
    ],
    ids=["here", "workers", "feature cache", "labor", "hgt", "narrow"],
)
def test_hetero_edges_have_their_rows(sampler, options, form, tmp_path):
    hetero_data(edge_attr=HETERO).save(tmp_path / "mixed", features=form)
    data = HeteroDataset.open(tmp_path / "mixed")
    with SampleLoader(data, sampler, batch_size=16, **options) as loader:
        assert set().union(*(check_hetero(batch, data) for batch in loader)) == HETERO.keys()


def test_hetero_batches_as_pyg_s_and_copied_to_a_device():
    data = hetero_data(edge_attr=HETERO)
    for batch in SampleLoader(data, HeteroSampler([3, 2], "paper", expand="new"), batch_size=16):
        made, moved = batch.to_pyg(), batch.to("cpu")
        for relation in data.graph.relations:
            if relation in HETERO:
                assert np.array_equal(made[relation].edge_attr, data.edge_attr[relation][made[relation].e_id])
                assert np.array_equal(moved.blocks[0][relation].edge_attr, batch.blocks[0][relation].edge_attr)
                assert torch.is_tensor(moved.blocks[0][relation].edge_attr)
            else:
                assert "edge_attr" not in made[relation]


@needs_cuda
@simulated
@pytest.mark.usefixtures("tested_blocks")
@pytest.mark.parametrize("edges", [EDGES, SORTED], ids=["ids", "places"])
@pytest.mark.parametrize("expand", ["all", "new"])
def test_gathered_on_the_device(monkeypatch, expand, edges):
    data, sampler = data_of(to_bfloat16(ROWS), edges), NeighborSampler([3, 2], expand=expand)
    put_stand_in(monkeypatch)
    monkeypatch.setattr(DeviceStream, "hand_to_torch", lambda self, *arrays: None)
    for batch in SampleLoader(data, sampler, batch_size=8, device="cuda", bulk=2):
        check(batch, data)
        assert torch.is_tensor(batch.blocks[0].edge_attr)
