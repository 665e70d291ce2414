"""The table of layers in docs/export.md is right: an export tests each cell."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest
import yaml
from export_case import exported, read

from hoptrain.engine import InputError
from hoptrain.samplers import NeighborSampler
from hoptrain.trainers.models.edge_layers import OF_EDGES
from hoptrain.trainers.models.layers import Arch

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "export.md").read_text()
HAS_ONNX = bool(find_spec("onnxscript") and find_spec("onnxruntime"))


def kinds():
    named = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (?:yes|no) \|$", (DOCS / "your_own_model.md").read_text(), re.MULTILINE)
    plain = {arch: ({"edge_channels": 2} if arch in OF_EDGES else {}) for arch in get_args(Arch)}
    return plain | {
        f"torch_geometric.nn.{name}": {"edge_channels": 2, "arch_args": yaml.safe_load(args) if args else {}} for name, args in named
    }


def row(arch, options, folder):
    """Return the table row of a layer, without the cell for .onnx if the packages for it are missing."""
    fields = []
    for name in ("m.pt2", "m.onnx") if HAS_ONNX else ("m.pt2",):
        try:
            exported(folder / name, NeighborSampler([4]), arch=arch, **options)
        except InputError:
            fields.append("")
            continue
        fields.append("yes")
        if name == "m.pt2":
            fields.append(str(read(folder / name)[1]["fewest_seeds"]))
    return arch, *(fields if fields[0] else ("", "", *fields[1:]))


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # torch's and PyG's deprecations within torch.export
def test_the_table_is_what_happens(tmp_path):
    found = [row(arch, options, tmp_path) for arch, options in kinds().items()]
    table = re.findall(r"^\| `([\w.]+)` \| (.*?) ?\| (\d?) ?\| (.*?) ?\|$", PAGE, re.MULTILINE)
    text = "".join(f"| `{fields[0]}` | {' | '.join(fields[1:])} |\n".replace("|  |", "| |").replace("|  |", "| |") for fields in found)
    assert [fields[: len(found[0])] for fields in table] == found, f"docs/export.md has another table than what was found:\n{text}"
