"""Mixed precision: every convolution trains and evaluates, and sums over edges keep float32 accuracy."""

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer

from hoptrain.engine import Graph
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers import NodeClassifier, NodeDataModule
from hoptrain.trainers.models.sums import aggregate


def trainer(folder, precision):
    options = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "enable_checkpointing": False}
    return Trainer(max_epochs=1, accelerator="cpu", precision=precision, use_distributed_sampler=False, default_root_dir=folder, **options)


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("hidden", [4, 16], ids=["narrow", "wide"])
@pytest.mark.parametrize("arch", ["sage", "gcn", "gat", "gin"])
def test_a_model_trains_and_its_scores_are_those_of_float32(dataset, tmp_path, arch, hidden):
    """A model trains in mixed precision with float32 parameters, and its logits are close to float32 precision's.

    Hidden widths are smaller and larger than the features, since layers may multiply before or after averaging.
    """
    dataset.save(tmp_path / "data")
    module = NodeDataModule(str(tmp_path / "data"), NeighborSampler([3, 3]), batch_size=16, num_workers=0, seed=4)
    torch.manual_seed(0)
    model = NodeClassifier(module.num_features, module.num_classes, module.num_hops, arch=arch, hidden_channels=hidden, heads=2)
    before = [value.clone() for value in model.parameters()]
    mixed = trainer(tmp_path, "bf16-mixed")
    mixed.fit(model, module)
    assert mixed.global_step == 8
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in model.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert "test_acc" in mixed.test(model, module, verbose=False)[0]
    scores = [torch.cat(trainer(tmp_path, precision).predict(model, module)) for precision in ("bf16-mixed", "32-true")]
    assert scores[0].dtype == scores[1].dtype == torch.float32
    scale = scores[1].abs().max()
    torch.testing.assert_close(scores[0] / scale, scores[1] / scale, rtol=0, atol=0.03)


def test_a_sum_of_many_values_of_16_bits_does_not_stop_growing():
    graph = Graph.from_edges(np.arange(1000), np.zeros(1000, np.int64), 1001)
    block = NeighborSampler([-1]).sample(graph, np.array([0])).to("cpu").blocks[0]
    ones = torch.ones(block.num_src, 2, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        total, mean = aggregate(block, ones), aggregate(block, ones, reduce="mean")
    assert total.tolist() == [[1000.0, 1000.0]]
    assert mean.tolist() == [[1.0, 1.0]]
