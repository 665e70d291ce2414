"""The page "Coming from DGL" lists exactly the arguments of DGL, and its example runs. The signatures of DGL 2.1 are copied here."""

import importlib
import inspect
import json
import re
import sys
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import pytest
from cases.mistakes import refused
from torch.utils.data import DataLoader

PAGE = Path(__file__).parents[3] / "docs" / "coming_from_dgl.md"
KEPT = json.loads(Path(__file__).with_name("dgl_signatures.json").read_text())
needs_dgl = pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed: pip install hoptrain[dgl]")


def signature(function):
    return {p.name: "required" if p.default is p.empty else p.default for p in inspect.signature(function).parameters.values()}


def test_every_argument_is_in_the_table():
    rows = [line.split("|")[1:4] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    named = {name for arguments in KEPT.values() for name in arguments} | set(inspect.signature(DataLoader).parameters)
    assert documented == named - {"kwargs"}
    assert {row[2].strip() for row in rows} == {"same", "other", "ignored", "refused"}


@needs_dgl
@pytest.mark.parametrize("name", KEPT)
def test_signatures_are_those_of_dgl(name):
    import hoptrain.dgl
    from hoptrain.samplers.batch.dgl_compat import import_dgl

    theirs = import_dgl() if name.startswith("sampling.") else import_dgl().dataloading
    assert signature(attrgetter(name)(theirs)) == KEPT[name]
    assert signature(attrgetter(name)(hoptrain.dgl)) == KEPT[name]


@needs_dgl
def test_every_name_has_a_signature_here():
    import hoptrain.dgl
    from hoptrain.samplers.batch.dgl_compat import import_dgl

    theirs, modules = {"BlockSampler", "GraphDataLoader", "Sampler"}, {"negative_sampler", "sampling"}
    assert set(hoptrain.dgl.__all__) - modules - theirs == {name for name in KEPT if "." not in name}
    assert all(getattr(hoptrain.dgl, name) is getattr(import_dgl().dataloading, name) for name in theirs)
    of_sampling = {
        name for name, own in vars(hoptrain.dgl.sampling).items() if getattr(own, "__module__", None) == hoptrain.dgl.sampling.__name__
    }
    assert {f"sampling.{name}" for name in of_sampling if not name.startswith("_")} <= set(KEPT)


@needs_dgl
def test_other_names_are_dgls():
    import hoptrain.dgl
    from hoptrain.samplers.batch.dgl_compat import import_dgl

    dgl = import_dgl()
    assert hoptrain.dgl.EdgePredictionSampler is dgl.dataloading.EdgePredictionSampler
    for name in ("sample_etype_neighbors", "node2vec_random_walk", "PinSAGESampler"):
        assert getattr(hoptrain.dgl.sampling, name) is getattr(dgl.sampling, name)
    for module, theirs in ((hoptrain.dgl, "dgl.dataloading"), (hoptrain.dgl.sampling, "dgl.sampling")):
        with refused("'NeighbourSampler'", f"{module.__name__} {theirs} attribute", error=AttributeError):
            _ = module.NeighbourSampler


@needs_dgl
def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"__name__": "page"}
    exec(example, names)
    assert len(names["loader"]) == 4
    assert names["loss"].item() > 0


def test_without_dgl_the_import_says_so(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[:2] == ["hoptrain", "dgl"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dgl", None)
    with refused("dgl", "DGL cannot imported", "install pip hoptrain[dgl]"):
        importlib.import_module("hoptrain.dgl")
