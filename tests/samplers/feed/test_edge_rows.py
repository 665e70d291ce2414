"""Features of edges reach each block by the loader: with workers, from files, in every dtype, and on CUDA (simulator)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cuda_case import _quick_simulator, needs_cuda, put_stand_in, simulated, tested_blocks, to_host  # noqa: F401

from hoptrain.engine import Dataset, InputError, to_bfloat16
from hoptrain.engine.device import DeviceStream
from hoptrain.samplers import (
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
"""Edges whose places are their ids."""


def data_of(rows=ROWS, edges=EDGES):
    return Dataset(
        edge_index=edges, x=RNG.random((40, 2), dtype=np.float32), y=np.arange(40) % 3, edge_attr=rows, splits={"train": np.arange(24)}
    )


def check(batch, data):
    """Each block's rows are those of its edges."""
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
def test_pairs_that_are_no_edges_are_refused(sampler):
    with pytest.raises(InputError, match="PinSAGESampler with features of edges: its batches hold pairs that are no edges of the graph"):
        SampleLoader(data_of(), sampler, batch_size=8)


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
