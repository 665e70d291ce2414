"""The task temporal_links: runs learn, ranks agree, evaluation continues after the training events, and resumed runs are bit-identical."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cases.mistakes import Mistake, each_of, refused
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EMAWeightAveraging, ModelCheckpoint
from ranks.command import here, in_ranks
from ranks.on_machines import START_S

from hoptrain.engine.datasets.events import Events
from hoptrain.trainers.cli import main
from hoptrain.trainers.tasks.temporal_links import EventDataModule, EventPredictor

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
SMALL = {"memory_channels": 8, "time_channels": 4, "hidden_channels": 8}


def events(number=400):
    """Return events between twelve users and eight items, some of which are far more popular."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 12, number), 12 + (rng.random(number) ** 4 * 8).astype(np.int64)
    return Events(src=src, dst=dst, t=np.sort(rng.integers(0, 5000, number)))


def module_of(**options):
    return EventDataModule(events(), **{"batch_size": 20, "num_neighbors": 4, "num_negatives": 5, "num_workers": 0, "seed": 4} | options)


def fit(folder, *, module=None, callbacks=(), ckpt_path=None, dropout=0.2, **options):
    torch.manual_seed(0)
    module = module or module_of()
    model = EventPredictor(module.num_nodes, module.message_channels, **SMALL, dropout=dropout, lr=0.01)
    checkpoints = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=1, save_top_k=-1, filename="{step}")
    trainer = Trainer(
        **{"max_epochs": 2} | options, accelerator="cpu", callbacks=[checkpoints, *callbacks], use_distributed_sampler=False,
        num_sanity_val_steps=0, enable_progress_bar=False, enable_model_summary=False, logger=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, module, ckpt_path=ckpt_path, weights_only=True)
    return trainer, model


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Stop(Callback):
    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == 19:
            raise KeyError("power cut")


@pytest.mark.promise
def test_a_run_that_is_resumed_in_mid_epoch(tmp_path):
    """A run stopped in its second epoch and resumed is bit-identical to an uninterrupted one.

    An epoch has 14 steps; a worker made the batches before the stop.
    """
    whole, model = fit(tmp_path)
    assert whole.global_step == 28
    for file in (tmp_path / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(KeyError):
        fit(tmp_path, callbacks=[Stop()], module=module_of(num_workers=1))
    resumed, other = fit(tmp_path, ckpt_path=tmp_path / "checkpoints" / "step=19.ckpt")
    assert resumed.global_step == 28
    assert same(state(model), state(other))
    assert {name: float(figure) for name, figure in whole.callback_metrics.items()} == {
        name: float(figure) for name, figure in resumed.callback_metrics.items()
    }


def test_evaluation_starts_from_the_training_and_leaves_no_trace(tmp_path):
    trainer, model = fit(tmp_path, dropout=0.0)
    train, val = trainer.datamodule.data.ends
    before, scores = state(model), dict(trainer.callback_metrics)
    assert int(model.model.memory.num_taken) == train
    assert {f"val_{name}" for name in ("loss", "ap", "auc", "mrr")} <= scores.keys()
    again = trainer.validate(model, trainer.datamodule, verbose=False)[0]
    assert all(float(scores[name]) == value for name, value in again.items()), "as in the training"
    seen = []
    update = type(model.model.memory).update
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.model.memory), "update", lambda self, *span: (seen.append(span), update(self, *span)))
        tests = [trainer.test(model, trainer.datamodule, verbose=False)[0] for _ in range(2)]
    assert seen[0] == (train, train + 20), "first the events of the validation"
    assert [begin for begin, _ in seen] == 2 * [*range(train, val, 20), *range(val, 400, 20)]
    assert tests[0] == tests[1]
    assert same(before, state(model))


def test_validation_in_mid_epoch_changes_no_training(tmp_path):
    assert same(*(state(fit(tmp_path, max_epochs=1, val_check_interval=interval)[1]) for interval in (1.0, 0.5)))


def test_two_ranks_learn_as_one():
    """Two ranks with half of every batch learn as one: memories are bit-identical, gradients equal up to the order of summation."""
    module = module_of()
    torch.manual_seed(0)
    models = [EventPredictor(module.num_nodes, 1, **SMALL, dropout=0.0) for _ in range(3)]
    for model in models:
        model.load_state_dict(models[0].state_dict())
        model.model.memory.events = module.tensors(model.device)
    one, *two = models
    one.trainer = SimpleNamespace(world_size=1)
    for model in two:
        model.trainer = SimpleNamespace(world_size=2)
    large = module_of(batch_size=40).make_loader(0, 1, 4)
    for batch, *parts in zip(large, module.make_loader(0, 2, 4), module.make_loader(1, 2, 4), strict=True):
        for model, each in zip(models, (batch, *parts), strict=True):
            model.zero_grad()
            model.training_step(each.to("cpu"), 0).backward()
        for name, buffer in one.model.memory.named_buffers():
            assert name == "_assoc" or torch.equal(buffer, dict(two[0].model.memory.named_buffers())[name])
            assert name == "_assoc" or torch.equal(buffer, dict(two[1].model.memory.named_buffers())[name])
        for parameter, *others in zip(*(model.parameters() for model in models), strict=True):
            mean = (others[0].grad + others[1].grad) / 2
            torch.testing.assert_close(mean, parameter.grad, rtol=1e-4, atol=1e-6)
    assert int(one.model.memory.num_taken) == module.data.ends[0]


CONFIG = """
task: temporal_links
data: {events: met, batch_size: 20, num_neighbors: 4, num_workers: 0, num_negatives: 5}
model: {memory_channels: 8, time_channels: 4, hidden_channels: 8, lr: 0.01}
trainer: {max_epochs: 1, accelerator: cpu, logger: false, enable_progress_bar: false, enable_model_summary: false}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = events(1000)
    np.savez(tmp_path / "met.npz", src=data.src, dst=data.dst, t=data.t)
    (tmp_path / "run.yaml").write_text(CONFIG)
    return tmp_path


def command(name, *options):
    return main([name, "--config", "run.yaml", "--data.root", ".", *options])


def test_the_command_learns(folder, capsys):
    assert command("fit", "--trainer.max_epochs", "12") in (0, None)
    said = capsys.readouterr().out
    assert float(said.rsplit("test average precision ", 1)[1].split()[0]) > 0.6, "half are events: without learning 0.5"
    last = next((folder / "runs").rglob("last.ckpt"))
    assert command("test", "--ckpt_path", str(last), "--trainer.default_root_dir=other") in (0, None)


@pytest.mark.timeout(2 * START_S)
@pytest.mark.usefixtures("forkserver")
def test_two_ranks_train_as_one(folder, capsys):
    """Two ranks have the memory and metrics of one rank with batches of twice the size, up to the order of summation."""
    found = []
    for number, size in ((1, 20), (2, 10)):
        options = f"--trainer.devices={number} --data.batch_size={size} --data.root=. --model.dropout=0 --model.lr=0.001 --trainer.default_root_dir=of{number}"
        arguments = ["fit", "--config", "run.yaml", *options.split()]
        printed = (here(capsys, *arguments) if number == 1 else in_ranks(*arguments)).out
        checkpoint = torch.load(next((folder / f"of{number}").rglob("last.ckpt")), weights_only=True)
        assert len(checkpoint["hoptrain"]["ranks"]) == number
        found.append((checkpoint["state_dict"], float(printed.rsplit("test average precision ", 1)[1].split()[0])))
    (one, metric), (two, other) = found
    assert abs(metric - other) < 0.01
    for name in ("num_taken", "last_update", "msg_s_store", "msg_d_store"):
        assert torch.equal(one[f"model.memory.{name}"], two[f"model.memory.{name}"])
    # Adam amplifies rounding errors of zero gradients: with a larger learning rate, results differ much between processors.
    torch.testing.assert_close(one["model.memory.memory"], two["model.memory.memory"], rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--data.shuffle", "true"], "shuffle is True: it must be false, since the memory is updated in the order of time"),
        (["--data.val_ratio", "0.9"], "val_ratio is 0.9 and test_ratio 0.15: both must be 0 or more, and their sum below 1"),
        (["--data.events", "nowhere"], "nowhere is not on this machine: root . has no nowhere.npz"),
        (["--model.heads", "3"], "all must be at least 1, and hidden_channels a multiple of heads"),
        (["--trainer.precision", "bf16-mixed"], "trainer.precision is bf16-mixed: times and memory need full precision"),
        (["--trainer.devices", "2", "--data.batch_size", "4000"], "2 ranks for 1 batches"),
        (
            ["--trainer.strategy=hoptrain.trainers.pipeline.PipelineStrategy", "--trainer.strategy.stages=2", "--trainer.devices=2"],
            "EventPredictor does not run in a pipeline",
        ),
    ],
)
def test_mistakes(folder, capsys, options, line):
    assert command("fit", *options) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert line in said[-1]


def test_events_are_not_predicted(folder, capsys):
    assert command("predict", "--untrained") == 2
    assert "predict with events: a pair's logit depends on the time" in capsys.readouterr().err


def test_the_nodes_memory_is_not_averaged(tmp_path):
    """Weight averaging that includes buffers is rejected, since it would average the node memory, which events have written."""
    with refused("EMAWeightAveraging", "average buffer EventPredictor", "use_buffers: false"):
        fit(tmp_path, callbacks=[EMAWeightAveraging()])
    fit(tmp_path, callbacks=[EMAWeightAveraging(use_buffers=False)], max_epochs=1)


ENDED = Events(src=[0, 1], dst=[2, 3], t=[0, 1], ends=(1, 2))


def fit_data_without_events():
    trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(EventPredictor(4, 1), [0])


MISTAKES = {
    "a share of events that have their ends": Mistake(
        lambda: EventDataModule(ENDED, val_ratio=0.1), value="val_ratio is 0.1", rule="test_ratio None own split", remedy="leave out"
    ),
    "no events to test on": Mistake(
        lambda: EventDataModule(ENDED).test_dataloader(), value="events", rule="no test train val", remedy="test_ratio"
    ),
    "data without events": Mistake(
        fit_data_without_events, value="EventPredictor", rule="needs events", remedy="trainer.fit(model, datamodule=EventDataModule("
    ),
}


@each_of(MISTAKES)
def test_mistakes_in_python(mistake, request):
    mistake.check(request)
