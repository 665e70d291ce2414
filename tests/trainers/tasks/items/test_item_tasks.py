"""Tasks with independent items (images, small graphs, hop features): batches, and runs of the command line."""

import csv
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import refused
from ranks.command import in_ranks
from ranks.on_machines import START_S

from hoptrain.engine import Address
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.lightning import run
from hoptrain.trainers.pipeline import PipelineModule
from hoptrain.trainers.tasks import TASKS, task_of
from hoptrain.trainers.tasks.items.feed import ItemDataModule
from hoptrain.trainers.tasks.items.graphs import GraphClassifier, GraphDataModule
from hoptrain.trainers.tasks.items.images import ImageDataModule
from hoptrain.trainers.tasks.items.sign import SIGN

CONFIGS = Path(__file__).parents[4] / "configs"
QUIET = ("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu")


class Numbers(ItemDataModule):
    """A task whose items are their indices."""

    def collate(self, items, address):
        return torch.from_numpy(items), torch.from_numpy(items % 3)


@pytest.fixture
def numbers():
    splits = {"train": np.arange(100, 167), "val": np.arange(5), "test": np.arange(5, 12)}
    return Numbers(SimpleNamespace(name="numbers", splits=splits), batch_size=10, seed=3)


def items_of(batches):
    return [batch.x.tolist() for batch in batches]


def test_every_item_once_and_equal_steps(numbers):
    loaders = [numbers.make_loader(rank, 2, seed=3) for rank in range(2)]
    epochs = [[items_of(loader) for loader in loaders] for _ in range(2)]
    for first, second in epochs:
        assert len(first) == len(second) == len(loaders[0]) == 4
        assert sorted(chain(*first, *second)) == list(range(100, 167))
    assert epochs[0] != epochs[1]
    batches = [list(loader) for loader in (numbers.make_loader(rank, 2, seed=3) for rank in range(2))]
    for one, other in zip(*batches, strict=True):
        assert one.num_step_items == other.num_step_items == len(one.x) + len(other.x)
    assert len({batch.address for part in batches for batch in part}) == 8


def test_a_loader_resumes(numbers):
    whole = numbers.make_loader(0, 1, seed=3)
    wanted = items_of(whole) + items_of(whole)
    loader = numbers.make_loader(0, 1, seed=3)
    batches = iter(loader)
    seen = items_of(next(batches) for _ in range(5))
    resumed = numbers.make_loader(0, 1, seed=3)
    resumed.load_state_dict(loader.state_dict())
    assert seen + items_of(resumed) + items_of(resumed) == wanted


def test_evaluation_shares_the_items_out(numbers, monkeypatch):
    found = []
    for rank in range(3):
        monkeypatch.setattr(numbers, "trainer", SimpleNamespace(global_rank=rank, world_size=3, predicting=False))
        loader = numbers.predict_dataloader()
        assert len(loader) == 3, "79 items in shares of 27 or 26"
        found += chain(*items_of(loader))
    assert found == [*range(12), *range(100, 167)]


def test_a_split_that_is_empty(numbers):
    numbers.data.splits["train"] = np.empty(0, np.int64)
    with refused("numbers", "no train items splits", "another data set"):
        numbers.make_loader(0, 1, seed=0)


def test_images_change_by_their_address():
    module = ImageDataModule("digits", shift=1, mirror=True, seed=0)
    items = np.arange(50)
    plain, y = module.collate(items, None)
    assert (plain.shape, plain.min().item(), plain.max().item(), y.tolist()) == ((50, 8, 8, 1), -1, 1, module.data.y[:50].tolist())
    changed, again, other = (module.collate(items, Address(0, 0, batch))[0] for batch in (0, 0, 1))
    assert torch.equal(changed, again)
    assert not torch.equal(changed, other)
    padded = torch.nn.functional.pad(plain, (0, 0, 1, 1, 1, 1))
    both = (padded, torch.nn.functional.pad(plain.flip(2), (0, 0, 1, 1, 1, 1)))
    for i in range(50):
        crops = [image[i, top : top + 8, left : left + 8] for image in both for top in range(3) for left in range(3)]
        assert any(torch.equal(changed[i], crop) for crop in crops)


@pytest.fixture
def rings(tmp_path, monkeypatch):
    """Write 40 small graphs of 4 to 7 nodes, rings or paths, and return the folder."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    sizes, y = 4 + np.arange(40) % 4, np.arange(40) // 4 % 2
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    columns = []
    for (begin, end), is_ring in zip(pairwise(ptr), y, strict=True):
        for v in range(begin, end):
            near = [v - 1 if v > begin else end - 1 if is_ring else None, v + 1 if v + 1 < end else begin if is_ring else None]
            columns.append(sorted(u for u in near if u is not None))
    indptr = np.concatenate([[0], np.cumsum([len(column) for column in columns])])
    labels = np.arange(ptr[-1]) % 2
    arrays = {"indptr": indptr, "indices": np.array([*chain(*columns)]), "node_label": labels, "graph_ptr": ptr, "graph_y": y}
    np.savez(tmp_path / "rings.npz", **arrays)
    return tmp_path


@pytest.mark.parametrize("readout", ["sum", "mean"])
def test_graphs_of_a_batch_do_not_touch(rings, readout):
    module = GraphDataModule("rings", root=str(rings), seed=0)
    torch.manual_seed(0)
    model = GraphClassifier(module.num_features, module.num_classes, readout=readout).double().eval()
    items = np.array([7, 0, 33, 12])

    def scores(items):
        x, y = module.collate(items, None)
        assert y.tolist() == module.data.y[items].tolist()
        return model.model(x._replace(x=x.x.double()))

    torch.testing.assert_close(scores(items), torch.cat([scores(items[i : i + 1]) for i in range(4)]))
    assert len(module.collate(items[:0], None)[1]) == 0


@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        (["fit"], "nodes"),
        (["fit", "--task", "images"], "images"),
        (["fit", "--task=graphs"], "graphs"),
        (["fit", "--config", str(CONFIGS / "digits_vig.yaml")], "images"),
        (["fit", "--config", str(CONFIGS / "digits_vig.yaml"), "--task", "sign"], "sign"),
        (["fit", "--config", str(CONFIGS / "quickstart.yaml")], "nodes"),
    ],
)
def test_which_task(arguments, task):
    assert task_of(arguments) == TASKS[task]


def test_an_unknown_task(capsys):
    assert main(["fit", "--task", "molecules"]) == 2
    assert (
        "task 'molecules' is unknown: choose one of nodes, adaptive, images, graphs, links, kg, edges, hetero, hetero_links, temporal_links, sign"
        in capsys.readouterr().err
    )


def fit(config, *options):
    return run(["fit", "--config", str(CONFIGS / f"{config}.yaml"), *QUIET, *options])


def column(folder, name):
    with open(folder / "metrics.csv") as file:
        return [row[name] for row in csv.DictReader(file) if row.get(name)]


EVERY_4 = ("--checkpoint.every_n_train_steps=4",)
SMALL_VIG = ("--model.num_blocks=1", "--model.width=16", "--data.batch_size=200", "--trainer.log_every_n_steps=1")


@pytest.fixture
def vig_run(tmp_path, monkeypatch):
    """Train two epochs on the digits, and return the folder of the run."""
    monkeypatch.chdir(tmp_path)
    cli = fit("digits_vig", *SMALL_VIG, "--trainer.max_epochs=2")
    return Path(cli.trainer.log_dir)


@pytest.mark.promise
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # the checkpoint's callback belongs to another command
def test_images(vig_run, capsys):
    """An image run resumed in mid-epoch equals an uninterrupted one; its checkpoint predicts, and another model rejects it."""
    wanted = column(vig_run, "train_loss_step")
    assert len(wanted) == 2 * -(-1078 // 200)
    fit("digits_vig", *SMALL_VIG, "--trainer.max_steps=8", *EVERY_4)
    ckpt = "runs/version_1/checkpoints/last.ckpt"
    fit("digits_vig", *SMALL_VIG, "--trainer.max_epochs=2", *EVERY_4, f"--ckpt_path={ckpt}")
    assert column(Path("runs/version_1"), "train_loss_step") + column(Path("runs/version_2"), "train_loss_step") == wanted
    assert column(Path("runs/version_2"), "val_loss")[-1] == column(vig_run, "val_loss")[-1]

    config = str(CONFIGS / "digits_vig.yaml")
    run(["predict", "--config", config, *SMALL_VIG[:3], *QUIET, f"--ckpt_path={ckpt}"])
    scores = np.load("runs/version_3/predictions.npy")
    assert scores.shape == (1797, 10)
    assert np.isfinite(scores).all()
    capsys.readouterr()
    assert main(["test", "--config", config, *SMALL_VIG[1:3], *QUIET, f"--ckpt_path={ckpt}"]) == 2
    assert "the checkpoint's model has num_blocks 1, this one 4" in capsys.readouterr().err


@pytest.mark.timeout(2 * START_S)
@pytest.mark.usefixtures("forkserver")
def test_images_in_a_pipeline(vig_run, tmp_path):
    """A pipeline of two stages and three chunks has the losses and metrics of one process, up to rounding."""
    options = ("--trainer.max_epochs=2", "--trainer.strategy.init_args.chunks=3", "--trainer.strategy.init_args.balance=[2,1]")
    arguments = ["fit", "--config", str(CONFIGS / "digits_vig_pipeline.yaml"), *QUIET, *SMALL_VIG, *options]
    in_ranks(*arguments)
    for name in ("train_loss", "val_loss"):
        piped, alone = (np.array(column(folder, name), np.float64) for folder in (tmp_path / "runs" / "version_1", vig_run))
        np.testing.assert_allclose(piped, alone, rtol=1e-4)
    assert [float(value) for value in column(tmp_path / "runs" / "version_1", "padding_%")] != []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--data.batch_size=7", "--trainer.strategy.init_args.chunks=8"], "8 chunks of a batch of 7 items"),
        (["--trainer.strategy.init_args.chunking=by-index"], "chunking by-index for items"),
        (["--model.norm=batch"], "BatchWise, whose statistics need a whole batch"),
    ],
)
def test_a_pipeline_that_cannot_be(tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", str(CONFIGS / "digits_vig_pipeline.yaml"), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.promise
def test_graphs(rings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fit(
        "proteins_gin",
        "--data.dataset=rings",
        f"--data.root={rings}",
        "--data.batch_size=8",
        "--trainer.max_epochs=25",
        "--model.dropout=0",
    )
    assert "test accuracy 1.000" in capsys.readouterr().out, "a path has ends"


def test_hops(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fit(
        "pubmed_sign",
        "--data.dataset=digits-knn",
        "--data.num_hops=2",
        "--data.normalize_features=false",
        "--model.lr=0.01",
        "--model.weight_decay=0",
        "--trainer.max_epochs=10",
    )
    assert "\ntest accuracy 0.9" in capsys.readouterr().out


def test_sign_in_chunks():
    """Gradients of chunks add up to those of the batch, and SIGN's layers can be the layers of a pipeline."""
    torch.manual_seed(0)
    model = SIGN(5, 3, num_hops=2, hidden_channels=4, num_layers=3, dropout=0.0).double()
    assert isinstance(model, PipelineModule)
    x, y = torch.randn(6, 3, 5, dtype=torch.float64), torch.arange(6) % 3

    def gradients(*parts):
        model.zero_grad()
        for part in parts:
            torch.nn.functional.cross_entropy(model(x[part]), y[part], reduction="sum").backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    torch.testing.assert_close(gradients(slice(0, 1), slice(1, 6)), gradients(slice(0, 6)))
    out = x
    for i in range(model.num_layers):
        assert i == 0 or out.shape[1:] == model.shape(i)
        out = model.layer(i, out)
    assert torch.equal(out, model(x))
    modules = [model.get_submodule(name) for i in range(model.num_layers) for name in model.modules_of(i)]
    assert [*chain(*(module.parameters() for module in modules))] == [*model.parameters()]
