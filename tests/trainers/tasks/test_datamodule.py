"""Data modules: data by name or in memory, with stored features or with features computed from the training graph."""

import pickle
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from cuda_case import needs_cuda
from pytorch_lightning import Trainer
from torch_geometric.data import Data, HeteroData

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.datasets.images.load import ImageSet
from hoptrain.engine.datasets.small_graphs import SmallGraphs
from hoptrain.engine.transforms.made_features import degree_features, walk_features
from hoptrain.samplers import LinkSampler, NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.tasks.items.graphs import GraphDataModule
from hoptrain.trainers.tasks.items.images import ImageDataModule
from hoptrain.trainers.tasks.items.sign import SIGNDataModule
from hoptrain.trainers.tasks.links.data import LinkDataModule


@pytest.fixture
def folders(dataset, tmp_path, monkeypatch):
    """Save the random data set with and without its features."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    dataset.save(tmp_path / "full")
    replace(dataset, x=None).save(tmp_path / "bare")
    return tmp_path


@pytest.mark.parametrize("name", ["full", "bare"])
def test_features_are_made_if_missing_and_can_replace_given_ones(folders, name):
    for features, expected in (("degrees", degree_features), ("walks", walk_features)):
        workers = int((name, features) == ("bare", "walks"))
        module = NodeDataModule(str(folders / name), NeighborSampler([3]), num_workers=workers, batch_size=32, seed=0, features=features)
        np.testing.assert_array_equal(module.data.x, expected(module.data.graph))
        loader = module.make_loader(0, 1, 0)
        try:
            batch = next(iter(loader))
            np.testing.assert_array_equal(batch.x, np.take(module.data.x, batch.node_ids, axis=0))
        finally:
            loader.close()


def test_features_know_nothing_of_links_that_are_held_out(folders):
    module = LinkDataModule(dataset=str(folders / "bare"), sampler=LinkSampler(NeighborSampler([3])), test_ratio=0.3, features="walks")
    whole = NodeDataModule(str(folders / "bare"), NeighborSampler([3]), features="walks").data
    assert module.data.graph.num_edges < whole.graph.num_edges
    np.testing.assert_array_equal(module.data.x, walk_features(module.data.graph))
    assert not np.array_equal(module.data.x, whole.x)


def pictures():
    x = np.arange(20 * 16, dtype=np.uint8).reshape(20, 4, 4, 1)
    return ImageSet(name="pictures", x=x, y=np.arange(20) % 3, splits={"train": np.arange(15), "test": np.arange(15, 20)}, num_classes=3)


def rings(dataset):
    """Return five paths of the random data set's first nodes."""
    src = np.setdiff1d(np.arange(19), np.arange(3, 19, 4))
    nodes = Dataset(name="paths", graph=Graph.from_edges(src, src + 1, 20), x=dataset.x[:20])
    splits = {"train": np.arange(3), "val": np.array([3]), "test": np.array([4])}
    return SmallGraphs(name="paths", nodes=nodes, ptr=np.arange(0, 24, 4), y=np.arange(5) % 2, splits=splits, num_classes=2)


@pytest.mark.parametrize("workers", [0, 1])
def test_data_in_memory_give_the_batches_of_the_same_in_files(folders, dataset, workers):
    options = {"sampler": NeighborSampler([3, 2]), "batch_size": 32, "num_workers": workers, "seed": 0}
    loaders = [NodeDataModule(data, **options).train_dataloader() for data in (dataset, str(folders / "full"))]
    try:
        for one, other in zip(*loaders, strict=True):
            for mine, theirs in zip(contents(one), contents(other), strict=True):
                np.testing.assert_array_equal(mine, theirs)
    finally:
        for loader in loaders:
            loader.close()


def contents(batch):
    return [*batch.arrays().values(), batch.x, batch.y]


def test_every_task_takes_data_in_memory(folders, dataset):
    links = LinkDataModule(dataset=dataset, sampler=LinkSampler(NeighborSampler([3])), num_workers=0, seed=0)
    by_name = LinkDataModule(dataset=str(folders / "full"), sampler=LinkSampler(NeighborSampler([3])), num_workers=0, seed=0)
    np.testing.assert_array_equal(links.held_out["test"].links, by_name.held_out["test"].links)
    hops = [SIGNDataModule(data, num_hops=2, seed=0).collate(np.arange(9), None)[0] for data in (dataset, str(folders / "full"))]
    assert hops[0].equal(hops[1])
    images = ImageDataModule(pictures(), batch_size=5, seed=0)
    assert [len(batch.y) for batch in images.train_dataloader()] == [5, 5, 5]
    graphs = GraphDataModule(rings(dataset), batch_size=2, seed=0)
    assert sorted(len(batch.x.x) for batch in graphs.train_dataloader()) == [4, 8]


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on a run this small
def test_an_eval_sampler_of_all_neighbours_gives_the_metrics_of_exact_evaluation(dataset):
    torch.manual_seed(0)
    task, found = NodeClassifier(7, 3, 2, hidden_channels=8), []
    for eval_sampler in (None, NeighborSampler([-1, -1])):
        module = NodeDataModule(dataset, NeighborSampler([3, 3]), num_workers=0, batch_size=16, seed=1, eval_sampler=eval_sampler)
        trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
        found.append(trainer.test(task, module, verbose=False)[0])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    seeds = [batch.seeds for batch in module.val_dataloader()]
    assert np.concatenate(seeds).tolist() == dataset.splits["val"].tolist()
    sampled = NodeDataModule(dataset, NeighborSampler([3]), num_workers=0, eval_sampler=NeighborSampler([2])).val_dataloader()
    for one, other in zip(*([batch.blocks[0].indices.tolist() for batch in sampled] for _ in range(2)), strict=True):
        assert one == other  # every evaluation draws the same neighbours


@pytest.mark.parametrize(("batch_size", "steps"), [(1024, 1), (7, 3)])
def test_an_eval_sampler_shares_the_nodes_out_among_ranks(dataset, batch_size, steps):
    """Two ranks have equally many batches, and each node is in one of them, also if one batch would hold the whole split."""
    found, wanted = [], dataset.splits["val"]
    for rank in range(2):
        module = NodeDataModule(
            dataset, NeighborSampler([3]), num_workers=0, batch_size=batch_size, seed=1, eval_sampler=NeighborSampler([-1])
        )
        module.trainer = SimpleNamespace(global_rank=rank, world_size=2, predicting=False)
        loader = module.val_dataloader()
        assert len(loader) == steps
        found += [batch.seeds.copy() for batch in loader]
    assert np.sort(np.concatenate(found)).tolist() == wanted.tolist()


def test_a_batch_of_exact_evaluation_says_where_mini_batches_come_from(dataset):
    (batch,) = NodeDataModule(dataset, NeighborSampler([3]), num_workers=0).val_dataloader()
    with refused("'to_pyg'", "NodeBatch no", "give data module eval_sampler", AttributeError):
        batch.to_pyg()


def on_gpu(number):
    """Return a stub of the trainer on a GPU."""
    return SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda", number)))


@needs_cuda
@pytest.mark.parametrize(
    ("options", "gpu"),
    [
        ({"num_workers": 0, "sampler_device": "cuda"}, 3),
        ({"num_workers": 0, "sampler_device": "cuda:3"}, 3),
        ({"num_workers": 1, "sampler_device": "cuda"}, 3),
        ({"sampler_device": "cuda:1"}, 1),  # the default is two processes, as on the CPU
        ({"num_workers": 1}, None),
    ],
)
def test_the_sampling_process_gets_the_gpu(dataset, monkeypatch, options, gpu):
    """The sampler gets the index of the trainer's GPU, also in sampler processes and before training has set the device.

    ``trainer.devices=[3]`` means GPU 3.
    """
    monkeypatch.setattr("hoptrain.samplers.loader.maker.torch_on_device", lambda: torch)  # memory is pinned if there is a device
    module = NodeDataModule(dataset, NeighborSampler([3]), batch_size=32, seed=0, **options)
    module.trainer = on_gpu(3)
    task = module.make_loader(0, 1, 0).task
    assert task.workspace.gpu == gpu
    assert pickle.loads(pickle.dumps(task.workspace)).gpu == gpu


@needs_cuda
def test_a_gpu_of_its_own_is_for_processes(dataset):
    module = NodeDataModule(dataset, NeighborSampler([3]), sampler_device="cuda:1", num_workers=0)
    module.trainer = on_gpu(3)
    with refused("cuda:1", "sampler_device num_workers 0 training cuda:3", "num_workers cuda"):
        module.make_loader(0, 1, 0)


@needs_cuda
def test_memory_for_features_is_asked_for_by_the_data_module(dataset, tmp_path):
    dataset.save(tmp_path / "data")
    module = NodeDataModule(str(tmp_path / "data"), NeighborSampler([3]), num_workers=0, feature_cache="40KiB", prefetch_steps=3)
    with module.make_loader(0, 1, 0) as loader:
        for batch in loader:
            np.testing.assert_array_equal(batch.x, dataset.x[batch.node_ids])
    with refused("features are in memory", "rows file folder", "save open"):
        NodeDataModule(dataset, NeighborSampler([3]), feature_cache="40KiB").make_loader(0, 1, 0)


def test_a_device_cache_is_asked_for_by_the_data_module(dataset):
    for size, known in (("2KiB", nullcontext()), ("2QiB", refused("2QiB", "gpu_cache bytes share rows", "give 2GiB 0.1"))):
        with known:
            NodeDataModule(dataset, NeighborSampler([3]), sampler_device="cuda", gpu_cache=size).make_loader(0, 1, 0)
    with refused("gpu_cache is 0.1", "GPU samples", "leave out"):
        NodeDataModule(dataset, NeighborSampler([3]), gpu_cache=0.1).make_loader(0, 1, 0)


MISTAKES = {
    "no features": Mistake(
        lambda folders: NodeDataModule(str(folders / "bare"), NeighborSampler([3])),
        value="random",
        rule="no features model",
        remedy="features: walks degrees",
    ),
    "a root with data in memory": Mistake(
        lambda dataset: NodeDataModule(dataset, NeighborSampler([3]), root="x"),
        value="root is x",
        rule="data memory name",
        remedy="leave out",
    ),
    "a scale with data in memory": Mistake(
        lambda dataset: SIGNDataModule(dataset, scale=0.5), value="scale is 0.5", rule="data memory name", remedy="leave out"
    ),
    "graphs of PyG": Mistake(
        lambda: GraphDataModule([Data(x=torch.ones(2, 1))]), value="list", rule="SmallGraphs object", remedy="SmallGraphs.from_pyg(data)"
    ),
    "one graph of PyG for small graphs": Mistake(
        lambda: GraphDataModule(Data(x=torch.ones(2, 1))), value="Data", rule="SmallGraphs object", remedy="SmallGraphs.from_pyg([data])"
    ),
    "a heterogeneous graph of PyG": Mistake(
        lambda: NodeDataModule(HeteroData(), NeighborSampler([3])),
        value="HeteroData",
        rule="Dataset",
        remedy="HeteroDataset.from_pyg(data)",
    ),
    "an eval_sampler for links": Mistake(
        lambda dataset: LinkDataModule(dataset, LinkSampler(NeighborSampler([3])), eval_sampler=NeighborSampler([3])),
        value="LinkDataModule",
        rule="eval_sampler nodes",
        remedy="leave out",
    ),
    "a fold with data in memory": Mistake(
        lambda dataset: GraphDataModule(rings(dataset), fold=3), value="fold is 3", rule="data memory name", remedy="leave out"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
