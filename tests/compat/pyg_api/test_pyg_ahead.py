"""Without workers, a thread may make the next batch: results stay the same, and the thread does not start with custom code."""

import threading

import pytest
import torch
from pyg_case import some_data

import hoptrain.pyg


@pytest.fixture
def data():
    return some_data()


THREADED = {"nodes": ("Neighbor", {"shuffle": True}), "links": ("LinkNeighbor", {"neg_sampling": "binary", "shuffle": True})}


@pytest.mark.parametrize(("kind", "options"), THREADED.values(), ids=THREADED)
def test_a_thread_changes_neither_batches_nor_what_the_training_draws(data, kind, options, monkeypatch):
    """A prefetch thread changes neither the batches nor the random numbers that the training draws."""

    def run():
        torch.manual_seed(3)
        loader = getattr(hoptrain.pyg, f"{kind}Loader")(
            data, [4, 3], batch_size=30, transform=lambda batch: batch.update({"drawn": torch.rand(2)}), **options
        )
        found = []
        for batch in loader:
            is_ahead = any(thread.name.startswith("hoptrain-ahead") for thread in threading.enumerate())
            found.append((batch.n_id, batch.e_id, batch.x, batch.drawn, torch.rand(3)))
        return is_ahead, found, torch.get_rng_state()

    monkeypatch.setattr("hoptrain.samplers.loader.cores.cores_are_free", lambda: True)
    is_ahead, found, state = run()
    monkeypatch.setattr("hoptrain.pyg.feed.runs_ahead", lambda _: False)
    was_ahead, wanted, after = run()
    assert (is_ahead, was_ahead) == (True, False)
    assert len(found) > 1
    assert all(torch.equal(*pair) for one, other in zip(found, wanted, strict=True) for pair in zip(one, other, strict=True))
    assert torch.equal(state, after)


class Chooses(hoptrain.pyg.NeighborLoader):
    """A custom loader whose batches depend on what the training has done."""

    used = 0

    def collate_fn(self, index):
        return super().collate_fn([(each + self.used) % 30 for each in index])


def test_a_user_s_code_runs_when_its_batch_is_asked_for(data, monkeypatch):
    monkeypatch.setattr("hoptrain.samplers.loader.cores.cores_are_free", lambda: True)
    loader = Chooses(data, [2], input_nodes=torch.arange(30), batch_size=10)
    for step, batch in enumerate(loader):
        assert batch.n_id[:10].tolist() == [(each + 7 * step) % 30 for each in range(10 * step, 10 * step + 10)]
        loader.used += 7


@pytest.mark.parametrize(("kind", "calls"), [("nodes", 1), ("links", 2)])
def test_pyg_s_code_runs_once_for_a_batch_of_nodes(data, monkeypatch, kind, calls):
    """PyG's sampling method runs once for a batch of nodes, and twice for a batch of links, whose seeds the first call finds."""
    made = []
    loader = {
        "nodes": lambda: hoptrain.pyg.NeighborLoader(data, [2], input_nodes=torch.arange(30), batch_size=10),
        "links": lambda: hoptrain.pyg.LinkNeighborLoader(data, [2], batch_size=10, edge_label_index=data.edge_index[:, :30]),
    }[kind]()
    for name in ("sample_from_nodes", "sample_from_edges"):
        sample = getattr(hoptrain.pyg.NeighborSampler, name)
        monkeypatch.setattr(
            hoptrain.pyg.NeighborSampler, name, lambda *args, sample=sample, **options: (made.append(kind), sample(*args, **options))[1]
        )
    monkeypatch.setattr("hoptrain.pyg.feed.runs_ahead", lambda _: True)
    assert len(list(loader)) == 3
    assert len(made) == 3 * calls
