"""Data sets from tables: what is read, and every row that cannot be."""

import numpy as np
import pytest

from hoptrain.engine import Dataset, InputError, load_dataset, load_hetero_dataset
from hoptrain.engine.datasets import list_datasets
from hoptrain.engine.datasets.tables import rows
from hoptrain.engine.datasets.typed.tables import read_typed_tables

PAPERS = "id,year,score,label,split\np1,1,0.5,graphs,train\np2,2,1.5,,\n007,3,-2,trees,val\n7,4,0,graphs,test\n"
AUTHORS = "id,a\n10,1\n-3,0\n12,1\n"
WRITES = "src,dst,weight,time,note\n12,7,0.5,30,x\n10,p1,1,10,y\n12,007,2,20,z\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)
    monkeypatch.setattr(rows, "BYTES", 10)  # so that everything comes in pieces


def write(folder, **changes):
    files = {
        "nodes/paper": PAPERS,
        "nodes/author": AUTHORS,
        "edges/author__writes__paper": WRITES,
        "edges/paper__cites__paper": "src,dst\np1,7\n",
    }
    for name, text in (files | changes).items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
    return folder


def check(data):
    assert data.graph.num_nodes == {"author": 3, "paper": 4}
    writes, cites = (data.graph.relations[key] for key in (("author", "writes", "paper"), ("paper", "cites", "paper")))
    order = np.argsort(writes.ids_of(np.arange(3)))
    assert writes.indices[order].tolist() == [2, 0, 2]
    assert writes.destinations()[order].tolist() == [3, 0, 2]
    assert writes.weights[order].tolist() == [0.5, 1, 2]
    assert writes.times[order].tolist() == [30, 10, 20]
    assert (cites.indices.tolist(), cites.destinations().tolist()) == ([0], [3])
    assert data.x["paper"].tolist() == [[1, 0.5], [2, 1.5], [3, -2], [4, 0]]
    assert (data.x["paper"].dtype, data.x["author"].dtype) == (np.float32, np.uint8)
    assert (data.seed_type, data.y.tolist(), data.meta["classes"]) == ("paper", [0, -1, 1, 0], ["graphs", "trees"])
    assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [0], "val": [2], "test": [3]}


def test_tables_wherever_they_lie(tmp_path):
    folder = write(tmp_path / "mine")
    (folder / "nodes" / "author.csv").rename(tmp_path / "people.csv")
    nodes = {"author": str(tmp_path / "people.csv"), "paper": folder / "nodes" / "paper.csv"}
    edges = {
        (kind, name, "paper"): folder / "edges" / f"{kind}__{name}__paper.csv" for kind, name in (("author", "writes"), ("paper", "cites"))
    }
    data = read_typed_tables(nodes, edges, name="ours")
    check(data)
    assert (data.name, data.meta["source"]) == ("ours", "tables: people.csv, paper.csv, author__writes__paper.csv, paper__cites__paper.csv")
    for wrong, line in (
        (
            (nodes, edges | {("paper", "has", "field"): edges["paper", "cites", "paper"]}),
            "joins type field: there is no table of its vertices",
        ),
        ((nodes, {"writes": edges["author", "writes", "paper"]}), "'writes' is no relation: .*give three texts"),
        ((nodes | {"author": tmp_path / "none.csv"}, edges), r"none\.csv cannot be read"),
        ((nodes, edges, "field"), "seed_type is 'field': data has tables of author, paper"),
    ):
        with pytest.raises(InputError, match=line) as caught:
            read_typed_tables(*wrong)
        assert "\n" not in str(caught.value)


def test_a_typed_graph(tmp_path):
    folder = write(tmp_path / "mine")
    data = load_hetero_dataset(str(folder))
    check(data)
    check(load_hetero_dataset("mine", root=tmp_path))
    assert data.meta["not_carried"] == ["author__writes__paper.csv: note"]
    assert load_hetero_dataset(str(folder)).path == data.path
    assert [entry.about for entry in list_datasets(tmp_path) if entry.name == "mine"] == ["tables of vertices and edges"]
    write(folder, **{"edges/paper__cites__paper": "src,dst\np1,7\n7,7\n"})
    assert load_hetero_dataset(str(folder)).graph.num_edges == 5


def test_labels_of_several_types(tmp_path):
    """A type for each training; one without labels may be named too, as links need none."""
    folder = str(write(tmp_path / "mine", **{"nodes/author": "id,a,label,split\n10,1,0.5,train\n-3,0,,\n12,1,-2e3,val\n"}))
    with pytest.raises(InputError, match=r"labels of author, paper: .* name it by seed_type \(data\.seed_type"):
        load_hetero_dataset(folder)
    for _ in range(2):
        data = load_hetero_dataset(folder, seed_type="author", add_reverse=True)
        np.testing.assert_array_equal(data.y, np.array([0.5, np.nan, -2000], np.float32))
        assert (data.seed_type, data.num_classes, data.x["author"].tolist()) == ("author", 1, [[1], [0], [1]])
        assert {name: ids.tolist() for name, ids in data.splits.items()} == {"train": [0], "val": [2]}
        check(load_hetero_dataset(folder, seed_type="paper"))
    bare = str(write(tmp_path / "bare", **{"nodes/paper": "id,f\np1,1\n007,2\n7,3\n"}))
    assert load_hetero_dataset(bare, seed_type="author").y is None
    with pytest.raises(InputError, match=r"seed_type is 'venue': .* has tables of author, paper; name one of these types"):
        load_hetero_dataset(bare, seed_type="venue")
    load_hetero_dataset(folder, seed_type="paper").save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"seed_type is 'author': .* has labels of paper alone; leave it out"):
        load_hetero_dataset(str(tmp_path / "saved"), seed_type="author")


def test_a_plain_graph(tmp_path):
    folder = tmp_path / "plain"
    files = dict.fromkeys(("nodes/paper", "nodes/author", "edges/author__writes__paper", "edges/paper__cites__paper"))
    write(folder, nodes="id,f,label\na,1,0\nb,2,1\nc,3,\n", edges="src,dst,d\nc,a,0.5\na,b,1.5\n", **files)
    data = load_dataset(str(folder))
    assert isinstance(data, Dataset)
    assert data.graph.indptr.tolist() == [0, 1, 2, 2]
    assert data.graph.indices.tolist() == [2, 0]
    assert (data.x.tolist(), data.y.tolist(), data.edge_attr.tolist()) == ([[1], [2], [3]], [0, 1, -1], [[0.5], [1.5]])


def test_parquet_is_the_same(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install hoptrain[parquet]")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "pq" / "nodes").mkdir(parents=True)
    (tmp_path / "pq" / "edges").mkdir()
    files = {
        "nodes/paper": {
            "id": ["p1", "p2", "007", "7"],
            "vector": [[1.0, 0.5], [2.0, 1.5], [3.0, -2.0], [4.0, 0.0]],
            "label": ["graphs", None, "trees", "graphs"],
            "split": ["train", None, "val", "test"],
        },
        "nodes/author": {"id": [10, -3, 12], "a": [1, 0, 1]},
        "edges/author__writes__paper": {"src": [12, 10, 12], "dst": ["7", "p1", "007"], "weight": [0.5, 1, 2], "time": [30, 10, 20]},
        "edges/paper__cites__paper": {"src": ["p1"], "dst": ["7"]},
    }
    for name, columns in files.items():
        parquet.write_table(pyarrow.table(columns), tmp_path / "pq" / f"{name}.parquet")
    check(load_hetero_dataset(str(tmp_path / "pq")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes/author": "id,a\n10,1\n11,0\n10,1\n"}, r"author\.csv, line 4: id is '10': each vertex has one row"),
        ({"nodes/author": "id,a\n10,1\n,0\n12,1\n"}, r"author\.csv, line 3: id is '': each vertex has an id"),
        ({"nodes/author": "name,a\n10,1\n"}, r"author\.csv has no column id: its columns are name, a; correct the header"),
        ({"nodes/author": "id,a\n10,1\n-3,0\n12,KDD\n"}, r"author\.csv, line 4: a is 'KDD': it has to be a finite number; encode it"),
        ({"nodes/author": "id,a\n10,1\n-3,\n12,2\n"}, r"author\.csv, line 3: a is '': it has to be a finite number"),
        ({"nodes/author": "id,a\n10,inf\n-3,1\n12,2\n"}, r"author\.csv, line 2: a is 'inf'"),
        ({"nodes/author": "id,a\n10,1\n-3,1,4\n12,2\n"}, r"author\.csv, line 3: it has 3 cells: 2 is what the first line has"),
        ({"nodes/author": "id,a,label\n10,1,0\n-3,1,0\n12,1,0\n"}, "labels of author, paper: vertices of one type are trained on"),
        ({"nodes/paper": PAPERS.replace("label", "venue_")}, "paper.csv, line 2: venue_ is 'graphs'"),
        ({"nodes/paper": "id,label\n7,1\np1,-2\n007,\n"}, r"paper\.csv, line 3: label is -2: classes count from 0 on"),
        ({"nodes/paper": "id\n7\np1\n007\n"}, "labels of no type: .* give one table a column label"),
        ({"nodes/paper": PAPERS.replace("p2,2,1.5,,", "p2,2,1.5,,train")}, "vertex 1 of split train has no label"),
        (
            {"nodes/paper": PAPERS.replace("trees,val", "trees,valid")},
            "line 4: split is 'valid': training takes those called train, val, test; write val",
        ),
        (
            {"nodes/author": "id,a\n", "edges/author__writes__paper": "src,dst\nAda,7\n"},
            r"writes__paper\.csv, line 2: src is 'Ada': no vertex of author\.csv has this id",
        ),
        ({"nodes/author": None}, r"edges/author__writes__paper\.csv joins type author: there is no table of its vertices"),
        ({"edges/writes": "src,dst\n"}, r"writes\.csv names no relation: a table of edges is called SOURCE__NAME__DESTINATION"),
        (
            {"edges/author__writes__paper": "src,dst\n10,7\n12,p1\n99,7\n"},
            r"writes__paper\.csv, line 4: src is '99': no vertex of author\.csv",
        ),
        ({"edges/author__writes__paper": "src,dst\n10,7\n12,07\n"}, r"line 3: dst is '07': no vertex of paper\.csv has this id"),
        (
            {"edges/author__writes__paper": "src,dst,weight\n10,7,1\n12,7,-1\n"},
            "line 3: weight is '-1': weights are finite and not negative",
        ),
        ({"edges/author__writes__paper": "src,dst,time\n10,7,1\n12,7,1.5\n"}, "line 3: time is '1.5': times are whole numbers"),
        ({"nodes": "id\n1\n"}, "beside folders of tables"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(changes, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        load_hetero_dataset(str(write(tmp_path / "mine", **changes)))
    assert "\n" not in str(caught.value)


def test_tables_without_rows(tmp_path):
    data = load_hetero_dataset(
        str(write(tmp_path / "mine", **{"nodes/author": "id,a\n", "edges/author__writes__paper": "src,dst,weight,time\n"}))
    )
    assert data.graph.num_nodes == {"author": 0, "paper": 4}
    assert data.graph.relations["author", "writes", "paper"].num_edges == 0


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    folder = write(tmp_path / "mine", **{"nodes/author": None})
    (folder / "nodes" / "author.parquet").touch()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(
        InputError, match=r"Parquet are read by pyarrow, which is not installed: pip install hoptrain\[parquet\], or give \.csv"
    ):
        load_hetero_dataset(str(folder))
