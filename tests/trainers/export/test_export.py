"""Exported programs compute the outputs of the model, also for batches of other sizes than the traced batch."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from cases.mistakes import refused
from export_case import DATA, exported, read

from hoptrain.samplers import ClusterSampler, LaborSampler, LadiesSampler, NeighborSampler, SaintWalkSampler, SampleLoader
from hoptrain.trainers.cli import main
from hoptrain.trainers.export.exported import inputs_of
from hoptrain.trainers.export.files import FORMATS

PAGE = (Path(__file__).parents[3] / "docs" / "export.md").read_text()
HAS_ONNX = bool(find_spec("onnxscript") and find_spec("onnxruntime"))


def scores_of(task, data, batch):
    task.eval().degrees = torch.from_numpy(data.graph.in_degrees()).float()
    with torch.no_grad():
        return task(batch)


@pytest.mark.parametrize(
    ("sampler", "batch_size", "options"),
    [
        (NeighborSampler([4, 3]), 16, {"arch": "sage", "normalize_features": True}),
        (LaborSampler([4, 3]), 16, {"arch": "gcn", "norm": "layer"}),
        (LadiesSampler([20, 20]), 16, {"arch": "sage"}),
        (ClusterSampler(8), 2, {"arch": "gin"}),
        (SaintWalkSampler(20, 2), 1, {"arch": "gcn"}),
        (NeighborSampler([-1]), 16, {"arch": "gatv2", "heads": 2, "edge_channels": 2}),
    ],
    ids=lambda value: getattr(value, "__class__", type(value)).__name__,
)
def test_a_file_computes_what_the_model_does(tmp_path, sampler, batch_size, options):
    task, module = exported(tmp_path / "m.pt2", sampler, batch_size, **options)
    program, facts = read(tmp_path / "m.pt2")
    assert (facts["features"], facts["feature_dtype"], facts["hops"]) == (8, "float32", module.num_hops)
    assert facts["outputs"] == {"kind": "classes", "number": 8}
    for size in (1, 3, 40):
        loader = SampleLoader(DATA, sampler, batch_size=size if sampler.by_seeds else batch_size, num_workers=0, seed=50 + size)
        batch = next(iter(loader)).to("cpu")
        found = program(*inputs_of(batch, torch.from_numpy(DATA.graph.in_degrees()).float()))
        assert found.shape == (batch.num_seeds, 8)
        torch.testing.assert_close(found, scores_of(task, DATA, batch), rtol=1e-4, atol=1e-5)


def test_what_computes_something_else_is_not_written(tmp_path, monkeypatch):
    right = FORMATS[".pt2"]

    def wrong(program, facts):
        content, serve = right(program, facts)
        return content, lambda inputs: serve(inputs) * 1.001

    monkeypatch.setitem(FORMATS, ".pt2", wrong)
    with refused("0.001", "logits differ 0.0001 m.pt2", "another arch"):
        exported(tmp_path / "m.pt2")
    assert list(tmp_path.iterdir()) == []


def test_the_command_finds_the_run_s_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", "quickstart", "--trainer.max_epochs", "1", "--data.num_workers", "0"]) == 0
    checkpoint = "runs/version_0/checkpoints/last.ckpt"
    assert main(["export", "--ckpt_path", checkpoint, "--out", "m.pt2"]) == 0
    assert "on 10 batches its logits differ from the model's by at most" in capsys.readouterr().out
    program, facts = read("m.pt2")
    assert facts["sampler"]["class_path"] == "hoptrain.samplers.NeighborSampler"
    weights = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert all(torch.equal(weights[name], tensor) for name, tensor in program.state_dict().items())
    assert main(["export", "--ckpt_path", checkpoint, "--out", "m.txt"]) == 2
    assert main(["export", "--out", "m.pt2"]) == 2
    Path("mine.ckpt").write_text("no checkpoint")
    assert main(["export", "--ckpt_path", "mine.ckpt", "--out", "m.pt2"]) == 2
    wrong = capsys.readouterr().err.splitlines()
    assert len(wrong) == 3
    assert (
        "no config.yaml is found one folder above mine.ckpt, where a run saves it: give the configuration of the run by --config"
        in wrong[2]
    )
    assert "the suffix of --out is '.txt': it must be one of .pt2, .onnx" in wrong[0]


@pytest.mark.skipif(HAS_ONNX, reason="onnxscript and onnxruntime are installed")
def test_onnx_without_its_packages(tmp_path):
    with refused(".onnx", "--out needs", "pip install onnx onnxscript onnxruntime .pt2"):
        exported(tmp_path / "m.onnx")


@pytest.mark.timeout(600)
def test_the_page_serves_a_file(tmp_path, monkeypatch, capsys):
    """The page's commands and its program run, and the program gives the logits of the checkpoint's model."""
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^hoptrain .*", PAGE, re.MULTILINE)
    assert [main(shlex.split(line)[1:]) for line in lines if ".onnx" not in line] == [0] * (len(lines) - 1)
    (program,) = re.findall(r'```python title="serve.py"\n(.*?)```', PAGE, re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 20
    names = {"__name__": "page"}
    exec(program, names)
    shown = capsys.readouterr().out.splitlines()[-1]
    assert shown == str(names["scores"](range(5)).argmax(1))
    data = names["data"]
    test = data.split("test")
    assert (names["scores"](test).argmax(1).numpy() == data.y[test]).mean() > 0.85
