"""The figure in docs/design.md matches the code: all subpackages, no arrow without an import, and the steps of a batch."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hoptrain import NeighborSampler, SampleLoader, load_dataset

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def drawing(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import architecture

    return architecture


def test_the_figure_has_each_subpackage_with_its_number_of_files(drawing):
    figure = drawing.architecture()
    texts = {text.text for text in ElementTree.fromstring(figure).iter("{http://www.w3.org/2000/svg}text")}
    for package in drawing.LAYER_OF.keys() - drawing.UNDIVIDED:
        files = [path.relative_to(drawing.ROOT / package) for path in (drawing.ROOT / package).rglob("*.py")]
        number = Counter(path.parts[0] for path in files if len(path.parts) > 1)
        assert {f"{name} {files}" for name, files in number.items()} <= texts
    assert len(figure) < 40_000


def test_arrows_that_follow_from_others_are_left_out(drawing):
    boxes = {"a": ["a.one", "a.two"], "b": ["b"], "c": ["c"], "d": ["d"]}
    imports = {"a.one": {"a.two", "b"}, "a.two": {"c", "elsewhere"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert drawing._arrows(boxes, imports) == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}


def test_boxes_are_right_of_their_importers(drawing):
    columns, pieces = drawing._columns({"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": {"c"}, "e": {"a", "c"}, "f": {"c"}})
    assert [{box for box in column if box[0] != ">"} for column in columns] == [{"e"}, {"a"}, {"b", "d", "f"}, {"c"}]
    assert {("e", ">c/2"), (">c/2", ">c/1"), (">c/1", "c"), ("f", "c")} <= set(pieces)


def names_in(path):
    """Return the functions, classes and methods of a file."""
    names = set()
    for node in ast.parse((DOCS.parent / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names |= {node.name} | {f"{node.name}.{own.name}" for own in getattr(node, "body", []) if isinstance(own, ast.FunctionDef)}
    return names


def test_the_functions_of_the_path_are_in_the_files_that_the_page_names():
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*`)[^|`]*\|([^|]*\.py`)[^|`]*\|$", (DOCS / "design.md").read_text(), re.MULTILINE)
    assert len(rows) == 16
    for functions, files in rows:
        known = [names_in(file) for file in re.findall(r"`([^`]+)`", files)]
        asked = re.findall(r"`([^`]+)`", functions)
        assert set(asked) <= set.union(*known)
        assert all(own & set(asked) for own in known)


def test_a_batch_passes_the_stations(drawing):
    """A batch passes the subpackages of the figure in order.

    The loader has no workers, so that all calls are in one process; compiled kernels do not appear as Python calls.
    """
    entered = []

    def note(frame, event, _):
        if event == "call" and (path := Path(frame.f_code.co_filename)).is_relative_to(DOCS.parent):
            entered.append(path.relative_to(DOCS.parent).as_posix().removeprefix("hoptrain/"))

    with SampleLoader(load_dataset("digits-knn"), NeighborSampler([3, 2]), batch_size=64, num_workers=0) as loader:
        batches = iter(loader)
        next(batches)
        sys.setprofile(note)
        next(batches)
        sys.setprofile(None)
    stations = {station.name: station.places for station in drawing.PATH}
    for_workers = {"engine/queue/worker.py", "engine/queue/pool.py", "kernels/cpu/nodewise"}
    on_the_way = [place for name in list(stations)[: list(stations).index("model")] for place in stations[name] if place not in for_workers]
    assert set(on_the_way) <= set(entered)
    in_order = [entered.index(stations[name][0]) for name in ("schedule", "sampler", "hops", "rows")]
    assert in_order == sorted(in_order)
