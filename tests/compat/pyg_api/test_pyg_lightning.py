"""Lightning can rebuild the loaders of ``hoptrain.pyg`` with another sampler, which it does to predict, to overfit, and for several ranks."""

import os
import pickle
import subprocess
import sys

import pytest
import torch
from cases.mistakes import refused
from pyg_case import batches_of, numbers, some_data, some_hetero_data
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.trainer.states import RunningStage
from pytorch_lightning.utilities.data import _update_dataloader
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

import hoptrain.pyg as own

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run

SEEDS = torch.arange(3, 190, 3)
LOADERS = {
    "nodes": lambda: own.NeighborLoader(some_data(), [3, 2], SEEDS, input_id=SEEDS + 1000, batch_size=16, shuffle=True),
    "hetero": lambda: own.NeighborLoader(some_hetero_data(), [3, 2], "paper", batch_size=16, shuffle=True),
    "links": lambda: own.LinkNeighborLoader(some_data(), [3], neg_sampling_ratio=1.0, batch_size=100, shuffle=True),
    "hgt": lambda: own.HGTLoader(some_hetero_data(), [4, 4], "paper", batch_size=16, shuffle=True),
    "shadow": lambda: own.ShaDowKHopSampler(some_data(), 2, 3, SEEDS, batch_size=16, shuffle=True),
    "random": lambda: own.RandomNodeLoader(some_data(), 4, shuffle=True),
    "hetero random": lambda: own.RandomNodeLoader(some_hetero_data(), 4, shuffle=True),
    "clusters": lambda: own.ClusterLoader(own.ClusterData(some_data(), 8, log=False), batch_size=2, shuffle=True),
    "saint": lambda: own.GraphSAINTEdgeSampler(some_data(), batch_size=20, num_steps=4, shuffle=True),
    "walks": lambda: own.GraphSAINTRandomWalkSampler(some_data(), batch_size=20, walk_length=2, num_steps=4, shuffle=True),
}


class Model(LightningModule):
    """A model that learns nothing and stores each batch."""

    def __init__(self, in_hook=None):
        super().__init__()
        self.weight, self.seen, self.in_hook = torch.nn.Parameter(torch.zeros(())), [], in_hook

    def training_step(self, batch):
        self.seen.append(batch)
        return self.weight * 1.0

    def predict_step(self, batch):
        self.seen.append(batch)
        return torch.zeros(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return LOADERS[self.in_hook]()

    predict_dataloader = train_dataloader


def trainer_of(**options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(accelerator="cpu", max_epochs=2, **quiet, **options)


@pytest.mark.parametrize("is_in_hook", [False, True])
@pytest.mark.parametrize("name", LOADERS)
def test_overfitting_takes_the_first_items_in_each_epoch(name, is_in_hook):
    loader = LOADERS[name]()
    model = Model(name)
    trainer_of(overfit_batches=1).fit(model, None if is_in_hook else loader)
    first, second = model.seen
    for batch in (first, second):
        if name == "nodes":
            assert batch.input_id.tolist() == (SEEDS[:16] + 1000).tolist()
            assert batch.num_sampled_edges[0] <= 48
        elif name == "links":
            assert batch.input_id.tolist() == list(range(100))
            assert len(batch.edge_label) == 200
        elif name in ("hetero", "hgt"):
            assert batch["paper"].input_id.tolist() == list(range(16))
        elif name == "random":
            assert sorted(map(tuple, batch.x.tolist())) == sorted(map(tuple, some_data().x[:50].tolist()))
        elif name == "shadow":
            assert torch.equal(batch.x[batch.root_n_id], some_data().x[SEEDS[:16]])
    assert (numbers(first) == numbers(second)) == (
        name in ("random", "hetero random", "clusters")
    )  # the other loaders sample differently in each epoch


@pytest.mark.parametrize("is_in_hook", [False, True])
@pytest.mark.parametrize("name", LOADERS)
def test_prediction_goes_over_all_batches(name, is_in_hook):
    model = Model(name)
    if name in ("saint", "walks"):
        with refused("batch_sampler", "step one subgraph Trainer.predict", "leave out"):
            trainer_of().predict(model, None if is_in_hook else LOADERS[name]())
        return
    loader = LOADERS[name]()
    trainer_of().predict(model, None if is_in_hook else loader)
    assert len(model.seen) == len(loader)
    if name == "nodes":
        ids = torch.cat([batch.input_id for batch in model.seen])
        assert ids.sort().values.tolist() == (SEEDS + 1000).tolist()


@pytest.mark.parametrize("name", LOADERS)
def test_ranks_have_their_shares(name):
    loader = LOADERS[name]()
    shares = [_update_dataloader(loader, DistributedSampler(loader.dataset, 2, rank)) for rank in (0, 1)]
    yielded = [index for share in shares for step in share.batch_sampler for index in step]
    assert sorted(set(yielded)) == list(range(len(loader.dataset)))
    assert len(shares[0]) == len(shares[1]) == -(-len(shares[0].sampler) // loader.batch_sampler.batch_size)
    made = next(iter(shares[0]))
    if name in ("saint", "walks"):  # each batch still has ``batch_size`` draws, not torch's batch size of 1
        assert made.num_nodes > 10


def test_a_rebuilt_loader_gives_the_batches_of_one_with_that_sampler():
    """A loader that was rebuilt twice keeps all its options, also with workers."""
    data = some_data()
    options = {"time_attr": "made", "input_time": torch.arange(63) % 37, "num_workers": 1, "batch_size": 10, "drop_last": True}
    loader = own.NeighborLoader(data, [3, 2], SEEDS, transform=_marked, shuffle=True, **options)
    again = _update_dataloader(
        _update_dataloader(loader, SequentialSampler(loader.dataset), RunningStage.TRAINING), SequentialSampler(range(63))
    )
    torch.manual_seed(3)
    batches = list(again)
    torch.manual_seed(3)
    expected = list(own.NeighborLoader(data, [3, 2], SEEDS, transform=_marked, **options))
    again.close()
    assert len(batches) == len(expected) == 6
    for one, other in zip(batches, expected, strict=True):
        assert one.is_marked
        assert torch.equal(one.n_id, other.n_id)
        assert torch.equal(one.edge_index, other.edge_index)


def _marked(batch):
    batch.is_marked = True
    return batch


def equal(one, other):
    """Return whether nested values with tensors are bit-identical."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    return all(map(equal, one, other)) and len(one) == len(other) if isinstance(one, list) else one == other


@pytest.mark.parametrize("name", LOADERS)
def test_a_pickled_loader_gives_the_same_batches(name):
    loader = LOADERS[name]()
    copied = pickle.loads(pickle.dumps(loader))
    assert equal(batches_of(copied), batches_of(loader))


THERE = "import pickle, sys; from pyg_case import batches_of; pickle.dump(batches_of(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)"


def test_a_new_process_gives_the_same_batches_of_links():
    """A loader that is pickled to a new process makes the same batches.

    The test uses a pipe, since multiprocessing would leave a resource tracker running.
    """
    loader = LOADERS["links"]()
    path = os.pathsep.join(entry for entry in sys.path if entry)
    child = subprocess.run(
        [sys.executable, "-P", "-c", THERE],
        input=pickle.dumps(loader),
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        check=True,
        timeout=100,
    )
    assert equal(pickle.loads(child.stdout), batches_of(loader))
