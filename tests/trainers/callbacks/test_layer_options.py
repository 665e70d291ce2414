"""bf16, activation checkpointing and torch.compile with each task; docs/training.md has the table of results."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import resume_case
import torch
from cases.mistakes import refused
from pytorch_lightning import Trainer
from torch import nn

from hoptrain import ActivationCheckpointing, CompiledLayers
from hoptrain.engine import Dataset, InputError
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.models.edge_layers import OF_EDGES
from hoptrain.trainers.tasks import TASKS
from hoptrain.trainers.tasks.full_batch.task import FullBatchDataModule, WholeGraphClassifier
from hoptrain.trainers.tasks.sse import SteadyDataModule, SteadyStateClassifier

PAGE = Path(__file__).parents[3] / "docs" / "training.md"
PLAIN = {"workers": 0, "scheduler": None, "arch": "sage", "norm": "batch", "embeddings": "dense"}
OPTIONS = {"bf16-mixed": {"precision": "bf16-mixed"}, "ActivationCheckpointing": {}, "CompiledLayers": {}}
CALLBACKS = {"ActivationCheckpointing": ActivationCheckpointing, "CompiledLayers": CompiledLayers}
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run, and those of torch's compiler


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    (folder / "data").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPTRAIN_CACHE", str(folder / "cache"))
        resume_case.write_data(folder / "data")
        yield folder


def parts(task, folder, **case):
    """Return the data module and the model of a task, with the same weights at each call."""
    torch.manual_seed(1)
    known = str(folder / "data" / "random")
    if task == "full_batch":
        module = FullBatchDataModule(known, seed=4)
        return module, WholeGraphClassifier(7, 3, 2, hidden_channels=8, dropout=0.3, norm="batch")
    if case.get("hops") == 1:
        module = NodeDataModule(known, NeighborSampler([3]), batch_size=16, num_workers=0, seed=4)
        return module, NodeClassifier(7, 3, 1, hidden_channels=8, dropout=0.3, norm=case["norm"])
    if task == "sse":
        module = SteadyDataModule(known, NeighborSampler([3]), batch_size=16, num_workers=0, seed=4)
        return module, SteadyStateClassifier(7, 3, 1, 200, state_channels=8, hidden_channels=8, dropout=0.3)
    if case.get("arch") in OF_EDGES:
        data = Dataset.open(known)
        data = replace(data, edge_attr=np.random.default_rng(1).random((data.graph.num_edges, 2), dtype=np.float32))
        module = NodeDataModule(data, NeighborSampler([3, 3]), batch_size=16, num_workers=0, seed=4)
        return module, NodeClassifier(7, 3, 2, arch=case["arch"], hidden_channels=8, heads=2, dropout=0.3, edge_channels=2)
    of_sampler, of_types = {"nodes": "neighbor", "adaptive": "asgcn"}, {"arch": "rgcn"} if task.startswith("hetero") else {}
    return resume_case.parts(PLAIN | {"task": of_sampler.get(task, task)} | of_types | case, folder)


def trained(module, model, *callbacks, steps=3, **options):
    """Train, and return the loss of each step, after checking that weights have changed."""
    losses, before = [], {name: value.clone() for name, value in model.named_parameters()}
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    limits = {"max_steps": steps, "limit_val_batches": 1, "num_sanity_val_steps": 0, "use_distributed_sampler": False}
    step = model.training_step
    model.training_step = lambda *arguments: losses.append(step(*arguments)) or losses[-1]
    Trainer(accelerator="cpu", callbacks=list(callbacks), **quiet | limits | options).fit(model, module)
    assert len(losses) == steps
    assert all(torch.isfinite(loss) for loss in losses)
    assert any(not torch.equal(value, before[name]) for name, value in model.named_parameters())
    return torch.stack(losses).detach()


def without_dropout(model):
    """Switch dropout off, since torch's compiler draws other random numbers."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    return model


@pytest.mark.parametrize("task", [task for task in TASKS if task != "temporal_links"])
def test_recomputed_layers_give_bit_identical_weights(task, folder):
    made = [parts(task, folder) for _ in range(2)]
    plain = trained(*made[0])
    option, calls = ActivationCheckpointing(), []
    module, model = made[1]
    (layers,) = {type(each): each for each in model.modules() if hasattr(each, "layer")}.values()
    own = type(layers).layer
    layers.layer = lambda *arguments: calls.append(torch.is_grad_enabled()) or own(layers, *arguments)
    assert torch.equal(trained(module, model, option), plain)
    assert sum(calls) == 2 * 3 * layers.num_layers, "each layer of each step is computed once more"
    for name, value in made[0][1].state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_what_a_layer_keeps_is_what_enters_it(folder):
    """Activation checkpointing saves less than half of the bytes that layers with a vector for each edge save for the backward pass."""

    def kept(*callbacks):
        storages = {}

        def note(own):
            if own.layout == torch.strided:
                storages[own.data_ptr()] = own.nbytes
            return own

        with torch.autograd.graph.saved_tensors_hooks(note, lambda own: own):
            module, model = parts("nodes", folder, arch="gat")
            trained(module, model, *callbacks, steps=1)
        return sum(storages.values())

    assert kept(ActivationCheckpointing()) < kept() / 2


@pytest.mark.parametrize("option", [ActivationCheckpointing, CompiledLayers])
def test_what_has_no_layers_to_take_is_refused_in_a_line(option, folder):
    with refused("Scheduled", f"{option.__name__} model layer num_layers", "add leave out"):
        trained(*parts("temporal_links", folder), option())
    with refused("VRGCNSampler", f"{option.__name__} training call layer(i, x, ...) GNN", "leave out"):
        trained(*parts("vrgcn", folder), option())


def test_a_training_leaves_the_layers_as_they_were(folder):
    module, model = parts("nodes", folder)
    trained(module, model, ActivationCheckpointing())
    assert "layer" not in vars(model.model)
    model.on_train_epoch_end = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trained(module, model, ActivationCheckpointing(), max_epochs=1, steps=-1)
    assert "layer" not in vars(model.model)


def compiled_as_plain(make, backend):
    """Return whether losses of compiled layers equal those of plain layers."""
    (module, plain), (other, model) = make(), make()
    expected = trained(module, without_dropout(plain))
    torch.testing.assert_close(trained(other, without_dropout(model), CompiledLayers(backend)), expected, rtol=1e-3, atol=1e-4)


def test_compiled_layers_give_the_same_losses(folder):
    """Layers compiled by torch's default compiler have the losses of plain layers; one layer suffices, since others only take longer."""
    compiled_as_plain(lambda: parts("nodes", folder, norm="none", hops=1), "inductor")


def found(option, make):
    """Return whether an option is accepted, or rejected in one line."""
    try:
        if option == "CompiledLayers":
            compiled_as_plain(make, "aot_eager")
        else:
            trained(*make(), *([CALLBACKS[option]()] if option in CALLBACKS else []), **OPTIONS[option])
    except InputError:
        return "no"
    return "yes"


@pytest.mark.timeout(900)
def test_the_table_is_what_happens(folder):
    lines = [f"| `{task}` | {' | '.join(found(option, lambda task=task: parts(task, folder)) for option in OPTIONS)} |" for task in TASKS]
    table = re.findall(r"^\| `.*` \| (?:yes|no) \| (?:yes|no) \| (?:yes|no) \|$", PAGE.read_text(), re.MULTILINE)
    assert table == lines, "docs/training.md has another table than what was found:\n" + "\n".join(lines)
