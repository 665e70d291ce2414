"""Full-batch training by chunks and by ranks: the gradient equals that of one batch of all training nodes with all neighbours."""

import threading
from itertools import accumulate, pairwise

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of
from pytorch_lightning import Trainer, seed_everything
from ranks import in_threads
from ranks.command import here, in_ranks
from ranks.on_machines import START_S
from torch import nn

from hoptrain.engine import Dataset, Graph
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models import GNN
from hoptrain.trainers.tasks.full_batch import part
from hoptrain.trainers.tasks.full_batch.task import FullBatchDataModule, WholeGraphClassifier

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, since in such small layers two threads wait for each other longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data():
    """Return 60 nodes with parallel edges, self loops and a hub; some nodes have no in-edges."""
    generator = np.random.default_rng(2)
    src, dst = generator.integers(0, 60, 500), np.minimum(generator.integers(0, 60, 500), generator.integers(0, 80, 500)) % 55
    x, y = generator.normal(size=(60, 7)).astype(np.float32), generator.integers(0, 3, 60)
    order = generator.permutation(60)
    splits = {"train": order[:25], "val": order[25:40], "test": order[40:]}
    return Dataset(name="small", graph=Graph.from_edges(src, dst, 60), x=x, y=y, splits=splits)


def gnn(arch):
    torch.manual_seed(3)
    return GNN(arch, 7, 8, 3, 3, dropout=0.0, heads=2).double()


def loss_of(logits, y):
    return nn.functional.cross_entropy(logits, torch.from_numpy(y), reduction="sum")


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def of_one_batch(data, model):
    """Compute the gradient from one batch of all training nodes, hop by hop."""
    train = data.splits["train"]
    batch = NeighborSampler([-1] * 3).sample(data.graph, train).to("cpu")
    degrees = torch.from_numpy(data.graph.in_degrees()).double()
    logits = model(torch.from_numpy(data.x)[batch.node_ids.long()].double(), batch.blocks, degrees[batch.node_ids.long()])
    return gradients(model, loss_of(logits, data.y[train]))


def of_part(data, model, chunk_edges, rank=0, world_size=1):
    """Return the gradient of one rank's partition, and its number of chunks."""
    own = part.WholePart.of(data, chunk_edges, normalize=False, device=CPU, rank=rank, world_size=world_size)
    object.__setattr__(own, "x", own.x.double())
    for piece in own.pieces:
        object.__setattr__(piece, "degrees", piece.degrees.double())
    train = data.splits["train"]
    train = train[(own.first <= train) & (train < own.last)]
    logits = own.apply(model, "blocks+degrees", (0, 0, 0))
    return gradients(model, loss_of(logits[torch.from_numpy(train) - own.first], data.y[train])), len(own.pieces)


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("arch", "chunk_edges"), [("sage", 60), ("gcn", 60), ("gat", 60), ("gat", 1 << 20), ("gin", 1 << 20)])
def test_chunks_have_the_gradient_of_one_batch(data, arch, chunk_edges):
    model = gnn(arch)
    found, number = of_part(data, model, chunk_edges)
    assert (number == 1) == (chunk_edges > 1000)
    assert_close(found, of_one_batch(data, model))


def through_threads(monkeypatch, number):
    """Exchange rows between threads of this process, instead of between ranks."""
    board, meeting = [None] * number, threading.Barrier(number, timeout=20)

    def sent(out, rows, expected, sizes, group):
        rank = int(threading.current_thread().name)
        ends = list(accumulate(sizes, initial=0))
        board[rank] = [rows[begin:end] for begin, end in pairwise(ends)]
        meeting.wait()
        got = [board[other][rank] for other in range(number)]
        meeting.wait()
        assert tuple(map(len, got)) == tuple(expected)
        out.copy_(torch.cat(got))

    monkeypatch.setattr(part.distributed, "all_to_all_single", sent)
    monkeypatch.setattr(part.distributed, "new_group", lambda: None)


@pytest.mark.parametrize("arch", ["sage", "gat"])
@pytest.mark.parametrize(("ranks", "chunk_edges"), [(2, 60), (5, 1 << 20)])
def test_ranks_have_its_gradient_together(data, arch, ranks, chunk_edges, monkeypatch):
    through_threads(monkeypatch, ranks)
    models = [gnn(arch) for _ in range(ranks)]  # created here, since threads share a generator
    work = [lambda rank=rank: of_part(data, models[rank], chunk_edges, rank, ranks)[0] for rank in range(ranks)]
    found = [sum(each) for each in zip(*in_threads(work), strict=True)]
    assert_close(found, of_one_batch(data, gnn(arch)))


def test_the_boundary_is_the_sources_that_are_not_own_nodes(data):
    bounds = part.partition_bounds(data.graph, 4)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, 60, 5)
    for rank, (first, last) in enumerate(pairwise(bounds.tolist())):
        named = {u for v in range(first, last) for u in data.graph.indices[data.graph.indptr[v] : data.graph.indptr[v + 1]].tolist()}
        assert part.find_boundary(data.graph, bounds, rank).tolist() == sorted(named - set(range(first, last)))


def fit(data, epochs=1, model=None, **options):
    seed_everything(0, verbose=False)
    module = FullBatchDataModule(data, num_hops=2, chunk_edges=options.pop("chunk_edges", 100), seed=0)
    sizes = (module.num_features, module.num_classes, module.num_hops)
    task = WholeGraphClassifier(model=model) if model else WholeGraphClassifier(*sizes, hidden_channels=32, lr=0.05, **options)
    trainer = Trainer(
        max_epochs=epochs, num_sanity_val_steps=0, use_distributed_sampler=False, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, module)
    return task, trainer


@pytest.mark.promise
def test_training_learns_and_is_bit_reproducible(data):
    found = [fit(data, 15, dropout=0.3) for _ in range(2)]
    assert all(trainer.global_step == 15 for _, trainer in found)
    assert float(found[0][1].callback_metrics["train_loss"]) < 0.9  # log(3) = 1.1 without learning
    for one, other in zip(*(task.parameters() for task, _ in found), strict=True):
        assert torch.equal(one, other)


@pytest.mark.timeout(2 * START_S)
@pytest.mark.usefixtures("forkserver")
def test_two_ranks_train_as_one(data, tmp_path, monkeypatch, capsys):
    """Two ranks train the weights of one rank, while DDP's collectives run concurrently with the exchange of boundary rows."""
    monkeypatch.chdir(tmp_path)
    data.save(tmp_path / "small")
    weights = []
    for ranks in (1, 2):
        options = {
            "task": "full_batch", "data.dataset": "./small", "data.num_hops": 3, "data.chunk_edges": 100, "model.dropout": 0, "model.hidden_channels": 8,
            "model.arch": "gat", "seed_everything": 1, "trainer.max_epochs": 4, "trainer.devices": ranks, "trainer.accelerator": "cpu",
            "trainer.default_root_dir": f"run{ranks}", "trainer.enable_progress_bar": "false",
        }  # fmt: skip
        arguments = ["fit", *(f"--{name}={value}" for name, value in options.items())]
        if ranks == 1:
            here(capsys, *arguments)
        else:
            in_ranks(*arguments)
        (path,) = (tmp_path / f"run{ranks}").rglob("last.ckpt")
        state = torch.load(path, weights_only=True)["state_dict"]
        weights.append({name: tensor for name, tensor in state.items() if name.startswith("model.")})
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=1e-4, atol=1e-5)


MISTAKES = {
    "chunks of no edges": Mistake(
        lambda data: FullBatchDataModule(data, chunk_edges=0), value="chunk_edges is 0", rule="least 1", remedy="give 1048576"
    ),
    "a mean over a batch that is cut": Mistake(
        lambda data: fit(data, norm="batch"), value="norm is batch", rule="6 chunks mean own", remedy="data.chunk_edges norm layer"
    ),
    "a model without layers": Mistake(
        lambda data: fit(data, model=nn.Linear(7, 3)), value="Linear", rule="task full_batch layer", remedy="add task nodes"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
