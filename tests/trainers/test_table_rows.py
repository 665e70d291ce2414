"""Training without workers sums rows of the feature table in the first layer, with the weights of a training that gathers them."""

import pytest
import torch
from pytorch_lightning import Callback, Trainer, seed_everything

from hoptrain import load_dataset
from hoptrain.samplers import LaborSampler, LinkSampler, NeighborSampler, SampleLoader
from hoptrain.samplers.batch.table_batch import TableBatch
from hoptrain.trainers import LinkDataModule, LinkPredictor, NodeClassifier, NodeDataModule

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run


class Seen(Callback):
    """A callback that records which batches had their features gathered when the step ended, and optionally reads them itself."""

    def __init__(self, reads=False):
        self.reads, self.gathered, self.rows = reads, [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, *_):
        if isinstance(batch, TableBatch):
            self.gathered.append(batch.table_rows._rows is not None)
        if self.reads:
            self.rows.append(torch.equal(batch.x, torch.from_numpy(module._datamodule.data.x[batch.node_ids])))


def fitted(module, model, *callbacks, **options):
    trainer = Trainer(
        max_steps=4, num_sanity_val_steps=0, limit_val_batches=0, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks), **options,
    )  # fmt: skip
    trainer.fit(model, module)
    return [weight.detach() for weight in model.parameters()]


def trained(data, *callbacks, gathers_at_once=False, sampler=None, **model):
    seed_everything(0, verbose=False)
    module = NodeDataModule(data, sampler or NeighborSampler([2, 2]), batch_size=128, num_workers=0, seed=0)
    own = NodeClassifier(module.num_features, module.num_classes, module.num_hops, **{"hidden_channels": 128, **model})
    if gathers_at_once:
        module.make_loader = lambda rank, world_size, seed: SampleLoader(data, module.sampler, batch_size=128, seed=seed)
    return fitted(module, own, *callbacks)


@pytest.fixture(scope="module")
def data():
    return load_dataset("digits-knn")


CASES = {
    "as many outputs as inputs": {},
    "sums before products": {"hidden_channels": 48},
    "weighted edges": {"sampler": LaborSampler([2, 2], importance_rounds=1)},
}


@pytest.mark.parametrize("case", CASES)
def test_weights_are_bit_identical_and_nothing_is_gathered(data, case):
    seen = Seen()
    ours, expected = trained(data, seen, **CASES[case]), trained(data, gathers_at_once=True, **CASES[case])
    assert seen.gathered == [False] * 4
    assert all(map(torch.equal, ours, expected))


def test_a_callback_that_reads_the_features_gets_them(data):
    seen = Seen(reads=True)
    trained(data, seen)
    assert seen.rows == [True] * 4


@pytest.mark.parametrize(
    "options", [{"hidden_channels": 8}, {"sampler": NeighborSampler([9, 9])}], ids=["multiplies first", "many edges share a row"]
)
def test_a_layer_gathers_where_that_is_faster(data, options):
    seen = Seen()
    ours, expected = trained(data, seen, **options), trained(data, gathers_at_once=True, **options)
    assert seen.gathered == [True] * 4
    assert all(map(torch.equal, ours, expected))


@pytest.mark.parametrize("model", [{"arch": "gcn"}, {"input_dropout": 0.1}, {"standardize_features": True}, {"normalize_features": True}])
def test_other_first_layers_get_gathered_rows(data, model):
    seen = Seen()
    trained(data, seen, **model)
    assert seen.gathered == []


def test_a_link_predictor_sums_rows_of_the_table(data):
    weights = []
    for late in (True, False):
        seed_everything(0, verbose=False)
        module, seen = LinkDataModule(data, LinkSampler(NeighborSampler([2])), batch_size=128, num_workers=0, seed=0), Seen()
        model = LinkPredictor(module.num_features, num_layers=1, hidden_channels=64, out_channels=64)
        if not late:
            module.make_loader = lambda rank, world_size, seed, module=module: SampleLoader(
                module.data, module.sampler, batch_size=128, seed=seed
            )
        weights.append(fitted(module, model, seen))
        assert seen.gathered == [False] * 4 * late
    assert all(map(torch.equal, *weights))
