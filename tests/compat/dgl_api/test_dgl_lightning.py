"""Lightning can rebuild ``hoptrain.dgl.DataLoader`` with another sampler, which it does to predict and to overfit."""

import pytest
import torch
from dgl_case import graph
from pytorch_lightning import LightningModule, Trainer

import hoptrain.dgl as own

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns about so small a run


def loader(num_workers=0):
    return own.DataLoader(graph(), torch.arange(40), own.NeighborSampler([3, 2]), batch_size=16, shuffle=True, num_workers=num_workers)


class Model(LightningModule):
    """A model that learns nothing and stores the seeds of each batch."""

    def __init__(self):
        super().__init__()
        self.weight, self.seen = torch.nn.Parameter(torch.zeros(())), []

    def training_step(self, batch):
        self.seen.append(batch[1].tolist())
        return self.weight * 1.0

    def predict_step(self, batch):
        self.seen.append(batch[1].tolist())
        return torch.zeros(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return loader()

    predict_dataloader = train_dataloader


def trainer_of(**options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(accelerator="cpu", max_epochs=2, **quiet, **options)


@pytest.mark.parametrize("given", [None, 0, 1])
def test_overfitting_takes_the_first_seeds_in_each_epoch(given):
    model = Model()
    trainer_of(overfit_batches=2).fit(model, None if given is None else loader(given))
    assert model.seen == [list(range(16)), list(range(16, 32))] * 2


@pytest.mark.parametrize("given", [None, 0, 1])
def test_prediction_goes_over_all_seeds_in_order(given):
    model = Model()
    trainer_of().predict(model, None if given is None else loader(given))
    assert model.seen == [list(range(16)), list(range(16, 32)), list(range(32, 40))]
