"""The features that a data module gives: those of the data set, or others made from the graph that is trained on."""

from dataclasses import replace

import numpy as np
import pytest

from hoptrain.engine import InputError
from hoptrain.engine.derived.made_features import degree_features, walk_features
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers import GraphDataModule
from hoptrain.trainers.tasks.links import LinkDataModule


@pytest.fixture
def folders(dataset, tmp_path, monkeypatch):
    """The random data set, and the same without its features."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    dataset.save(tmp_path / "full")
    replace(dataset, x=None).save(tmp_path / "bare")
    return tmp_path


@pytest.mark.parametrize("name", ["full", "bare"])
def test_features_are_made_where_there_are_none_and_in_place_of_those_there_are(folders, name):
    for features, expected in (("degrees", degree_features), ("walks", walk_features)):
        workers = int((name, features) == ("bare", "walks"))
        module = GraphDataModule(str(folders / name), NeighborSampler([3]), num_workers=workers, batch_size=32, seed=0, features=features)
        np.testing.assert_array_equal(module.data.x, expected(module.data.graph))
        loader = module.make_loader(0, 1, 0)
        try:
            batch = next(iter(loader))
            np.testing.assert_array_equal(batch.x, np.take(module.data.x, batch.node_ids, axis=0))
        finally:
            loader.close()


def test_without_them_the_option_is_named(folders):
    with pytest.raises(InputError, match=r"random has no features: .*features: walks \(or degrees\)"):
        GraphDataModule(str(folders / "bare"), NeighborSampler([3]))


def test_features_know_nothing_of_links_that_are_held_out(folders):
    module = LinkDataModule(dataset=str(folders / "bare"), sampler=LinkSampler(NeighborSampler([3])), test_share=0.3, features="walks")
    whole = GraphDataModule(str(folders / "bare"), NeighborSampler([3]), features="walks").data
    assert module.data.graph.num_edges < whole.graph.num_edges
    np.testing.assert_array_equal(module.data.x, walk_features(module.data.graph))
    assert not np.array_equal(module.data.x, whole.x)
