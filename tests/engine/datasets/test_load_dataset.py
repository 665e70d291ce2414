"""The lookup order of data set names, and the message if a name is not found."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, Graph
from hoptrain.engine.datasets import list_datasets, load_dataset
from hoptrain.engine.datasets.load import REGISTRY

_KERNEL_CACHE = {name: value for name, value in os.environ.items() if name == "HOPTRAIN_CACHE"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)


def pair(name="pair", **meta):
    return Dataset(name=name, graph=Graph(np.array([0, 1, 2]), np.array([1, 0])), meta=meta)


def write_npz(path, num_nodes=3):
    indptr = np.arange(num_nodes + 1)
    np.savez(path, indptr=indptr, indices=(np.arange(num_nodes, dtype=np.int32) + 1) % num_nodes)


def test_a_folder_in_root_root_itself_and_a_path_open_the_same_data(tmp_path):
    pair().save(tmp_path / "root" / "pair")
    found = [
        load_dataset("pair", root=tmp_path / "root"),
        load_dataset("pair", root=str(tmp_path / "root" / "pair")),
        load_dataset(str(tmp_path / "root" / "pair")),
    ]
    for data in found:
        assert data.path == tmp_path / "root" / "pair"
        assert data.graph.indices.tolist() == [1, 0]
    assert not (tmp_path / "cache" / "datasets").exists()  # a folder is opened in place


def test_a_folder_at_another_scale_is_refused(tmp_path):
    pair("synthetic:arxiv", scale=0.5).save(tmp_path / "root")
    assert load_dataset("synthetic:arxiv", root=tmp_path / "root", scale=0.5).name == "synthetic:arxiv"
    with refused("scale 0.5", "holds synthetic:arxiv not 0.25", "give scale leave root"):
        load_dataset("synthetic:arxiv", root=tmp_path / "root", scale=0.25)


def test_root_goes_before_the_environment(tmp_path, monkeypatch):
    for place, size in (("root", 3), ("variable", 5)):
        (tmp_path / place).mkdir()
        write_npz(tmp_path / place / "ring.npz", size)
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path / "variable"))
    assert load_dataset("ring").graph.num_nodes == 5
    assert load_dataset("ring", root=tmp_path / "root").graph.num_nodes == 3
    assert load_dataset(str(tmp_path / "root" / "ring.npz")).graph.num_nodes == 3


def test_a_missing_file_names_both_places(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_DATA", "/elsewhere")
    with refused("'karate'", f"file folder {tmp_path} /elsewhere", "hoptrain data list import"):
        load_dataset("karate", root=tmp_path)


def test_the_list_has_every_name_and_what_lies_in_root(tmp_path):
    write_npz(tmp_path / "ring.npz")
    write_npz(tmp_path / "karate.npz")
    pair().save(tmp_path / "folder")
    (tmp_path / "broken.npz").write_bytes(b"PK")
    np.savez(tmp_path / "pictures.npz", train_x=np.zeros((3, 8, 8, 1), np.uint8), train_y=np.zeros(3), test_x=np.zeros((2, 8, 8, 1)))
    entries = list_datasets(tmp_path)
    known, found = ({entry.name: entry for entry in entries if entry.is_found == is_found} for is_found in (False, True))
    assert known.keys() == REGISTRY.keys() | {"digits", "cifar10"}
    assert known["cora"].counts == (2_708, 10_556, 1_433, 7)
    assert not known["reddit"].is_present
    assert {name: entry.counts for name, entry in found.items()} == {
        "broken": None, "folder": (2, 2, 0, 0), "karate": (3, 3, 0, 0), "pictures": None, "ring": (3, 3, 0, 0),
    }  # fmt: skip
    assert found["broken"].about.startswith("cannot be read")
    assert found["pictures"].about == "5 images, 8 x 8, for task: images"


def test_two_processes_may_convert_at_once(tmp_path):
    # The variable is set after the import, so that machine code is still loaded from the usual cache.
    code = (
        "import os; from hoptrain.engine.datasets import load_dataset;"
        f"os.environ['HOPTRAIN_CACHE'] = {str(tmp_path / 'cache')!r};"
        "print(load_dataset('synthetic:arxiv', scale=0.3).graph.num_edges)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HOPTRAIN_CACHE"} | _KERNEL_CACHE
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=100)[0] for process in processes] == ["699746\n"] * 2
    assert len(list((tmp_path / "cache" / "datasets").iterdir())) == 1


def test_a_conversion_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("hoptrain.engine.datasets.cache.shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with refused("0.0 GB free", "0.1 GB needed", "free $HOPTRAIN_CACHE smaller scale"):
        load_dataset("synthetic:arxiv", scale=0.9)
    assert not list((tmp_path / "cache" / "datasets").iterdir())


def root_of_another_set(tmp_path):
    pair().save(tmp_path / "root")
    load_dataset("cora", root=tmp_path / "root")


def cache_that_is_a_file(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    load_dataset("digits-knn")


MISTAKES = {
    "another data set in root": Mistake(root_of_another_set, value="'pair'", rule="root not 'cora'", remedy="give name another root"),
    "an unknown root": Mistake(
        lambda: load_dataset("cora", root="/does/not/exist"), value="/does/not/exist", rule="root not folder data", remedy="create another"
    ),
    "a name with a slip": Mistake(lambda: load_dataset("coar"), value="'coar'", rule="data set known", remedy="mean cora"),
    "a name like nothing": Mistake(lambda: load_dataset("?"), value="'?'", rule="data set known", remedy="hoptrain data list import"),
    **{
        f"half of {name}": Mistake(
            lambda name=name: load_dataset(name, scale=0.5), value="scale is 0.5", rule=f"{name} scaled synthetic:", remedy="scale 1.0"
        )
        for name in ("cora", "digits-knn")
    },
    "a name without a file": Mistake(
        lambda: load_dataset("karate"), value="'karate'", rule="neither root $HOPTRAIN_DATA given", remedy="hoptrain data list import"
    ),
    "a path without a folder": Mistake(
        lambda: load_dataset("./nowhere"), value="nowhere", rule="not folder", remedy="hoptrain data import convert"
    ),
    "a path without a file": Mistake(
        lambda: load_dataset("./nowhere.npz"), value="nowhere.npz", rule="read whole .npz pickles", remedy="fetch again"
    ),
    "a cache that is a file": Mistake(cache_that_is_a_file, value="digits-knn-1", rule="not written", remedy="$HOPTRAIN_CACHE root folder"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)


def test_the_text_of_a_file_is_no_name():
    """The command line passes the contents of a text file whose name is given as a data set."""
    with refused("id,age", "text file name folder", "data import --like"):
        load_dataset("id,age\n1,2\n" * 1000)
