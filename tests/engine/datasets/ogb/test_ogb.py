"""OGB data sets: small files in OGB's layout, and downloads from a local archive. No network."""

import gzip
import io
import zipfile

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine.datasets import load_dataset
from hoptrain.engine.datasets.ogb.download import ACCEPT

EDGES = np.array([[0, 1], [1, 0], [2, 0], [4, 3], [4, 3]])
X = np.arange(10, dtype=np.float64).reshape(5, 2) / 4
Y = np.array([[0], [2], [1], [0], [1]])
SPLIT = {"train": [3, 0], "valid": [1], "test": [2, 4]}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    for variable in ("HOPTRAIN_DATA", ACCEPT):
        monkeypatch.delenv(variable, raising=False)


def csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        stream.writelines(",".join(str(value) for value in row) + "\n" for row in rows)


def write_split(folder):
    for part, ids in SPLIT.items():
        csv(folder / f"{part}.csv.gz", [[node] for node in ids])


def write_csv_layout(folder, split, version=1):
    csv(folder / "raw" / "edge.csv.gz", EDGES)
    csv(folder / "raw" / "num-node-list.csv.gz", [[5]])
    csv(folder / "raw" / "num-edge-list.csv.gz", [[5]])
    csv(folder / "raw" / "node-feat.csv.gz", X)
    csv(folder / "raw" / "node-label.csv.gz", Y)
    write_split(folder / "split" / split)
    (folder / f"RELEASE_v{version}.txt").touch()
    return folder


def columns(graph):
    return [column.tolist() for column in np.split(graph.indices, graph.indptr[1:-1])]


def check_contents(data):
    assert np.array_equal(data.x, X)
    assert data.y.tolist() == [0, 2, 1, 0, 1]
    assert data.num_classes == 3
    assert [data.split(split).tolist() for split in ("train", "val", "test")] == [[0, 3], [1], [2, 4]]


@pytest.mark.parametrize(("name", "split"), [("ogbn-arxiv", "time"), ("ogbn-products", "sales_ranking")])
def test_the_csv_layout_becomes_undirected_with_every_edge_once(name, split, tmp_path):
    write_csv_layout(tmp_path / name.replace("-", "_"), split)
    data = load_dataset(name, root=tmp_path)
    check_contents(data)
    assert data.x.dtype == np.float32
    assert columns(data.graph) == [[1, 2], [0], [0], [4], [3]]
    assert "undirected" in data.meta["note"]
    assert "licence" in data.meta


def test_papers100m_keeps_dtype_and_direction_and_marks_missing_labels(tmp_path):
    folder = tmp_path / "ogbn_papers100M"
    (folder / "raw").mkdir(parents=True)
    arrays = {"edge_index": EDGES.T, "num_nodes_list": np.array([5]), "num_edges_list": np.array([5])}
    np.savez(folder / "raw" / "data.npz", node_feat=X.astype(np.float16), node_year=np.zeros((5, 1)), **arrays)
    np.savez(folder / "raw" / "node-label.npz", node_label=np.array([[0.0], [2], [1], [0], [np.nan]]))
    write_split(folder / "split" / "time")
    csv(folder / "split" / "time" / "test.csv.gz", [[2]])
    (folder / "RELEASE_v1.txt").touch()
    data = load_dataset("ogbn-papers100M", root=tmp_path)
    assert data.x.dtype == np.float16
    assert np.array_equal(data.x, X)
    assert data.y.tolist() == [0, 2, 1, 0, -1]
    assert columns(data.graph) == [[1, 2], [0], [], [4, 4], []]
    assert data.graph.is_sorted
    assert "directed as published" in data.meta["note"]
    assert sorted(path.name for path in (tmp_path / "cache" / "datasets").iterdir()) == [data.path.name]  # no temporary folder is left


def write_binary(folder, **changes):
    (folder / "raw").mkdir(parents=True)
    arrays = {"edge_index": EDGES.T, "num_nodes_list": np.array([5]), "node_feat": X} | changes
    np.savez(folder / "raw" / "data.npz", **{name: array for name, array in arrays.items() if array is not None})
    np.savez(folder / "raw" / "node-label.npz", node_label=Y.astype(float))
    write_split(folder / "split" / "time")
    (folder / "RELEASE_v1.txt").touch()


def test_mag_gives_its_papers_and_their_citations(tmp_path):
    folder = tmp_path / "ogbn_mag"
    csv(folder / "raw" / "relations" / "paper___cites___paper" / "edge.csv.gz", EDGES)
    csv(folder / "raw" / "relations" / "author___writes___paper" / "edge.csv.gz", [[7, 1]])
    csv(folder / "raw" / "node-feat" / "paper" / "node-feat.csv.gz", X)
    csv(folder / "raw" / "node-label" / "paper" / "node-label.csv.gz", Y)
    write_split(folder / "split" / "time" / "paper")
    (folder / "RELEASE_v2.txt").touch()
    data = load_dataset("ogbn-mag-papers", root=tmp_path)
    check_contents(data)
    assert columns(data.graph) == [[1, 2], [0], [0], [4], [3]]
    assert data.meta["note"].startswith("only papers and their citations of the heterogeneous graph")


def test_files_that_change_are_converted_again(tmp_path):
    folder = write_csv_layout(tmp_path / "ogbn_arxiv", "time")
    first = load_dataset("ogbn-arxiv", root=tmp_path)
    assert load_dataset("ogbn-arxiv", root=tmp_path).path == first.path
    csv(folder / "raw" / "edge.csv.gz", [[0, 4]])
    assert load_dataset("ogbn-arxiv", root=tmp_path).graph.num_edges == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Response(io.BytesIO):
    def info(self):
        return {"Content-Length": len(self.getvalue())}


def serve(monkeypatch, content):
    """Replace the network by ``content``, and return the list of requests."""
    asked = []

    def urlopen(url):
        asked.append(url)
        if isinstance(content, Exception):
            raise content
        return Response(content)

    monkeypatch.setattr("ogb.utils.url.ur.urlopen", urlopen)
    return asked


@pytest.fixture
def archive(tmp_path):
    folder = write_csv_layout(tmp_path / "packed" / "arxiv", "time")
    with zipfile.ZipFile(tmp_path / "arxiv.zip", "w") as packed:
        for file in folder.rglob("*"):
            packed.write(file, file.relative_to(folder.parent))
    return (tmp_path / "arxiv.zip").read_bytes()


def test_a_licence_accepted_by_the_variable_downloads_once(archive, monkeypatch, capsys):
    asked = serve(monkeypatch, archive)
    monkeypatch.setenv(ACCEPT, "1")
    check_contents(load_dataset("ogbn-arxiv"))
    check_contents(load_dataset("ogbn-arxiv"))
    assert asked == ["https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"]
    assert "licence ODC-BY (https://opendatacommons.org/licenses/by/1-0/)" in capsys.readouterr().err


def test_a_terminal_is_asked(archive, monkeypatch):
    asked = serve(monkeypatch, archive)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with refused("ogbn-arxiv", "not downloaded licence declined", f"{ACCEPT}=1 accept"):
        load_dataset("ogbn-arxiv")
    assert not asked
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    check_contents(load_dataset("ogbn-arxiv"))


def test_without_a_terminal_nothing_waits(archive, monkeypatch):
    asked = serve(monkeypatch, archive)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with refused("ogbn-arxiv", "before licence ODC-BY accepted", f"{ACCEPT}=1"):
        load_dataset("ogbn-arxiv")
    assert not asked


@pytest.mark.parametrize("content", [OSError("no route to host"), b"<html>not found</html>"])
def test_a_failed_download_leaves_nothing_behind(content, tmp_path, monkeypatch):
    serve(monkeypatch, content)
    monkeypatch.setenv(ACCEPT, "1")
    (tmp_path / "root").mkdir()
    with refused("ogbn-arxiv", "not download https:// failed", "try again unpack ogbn_arxiv"):
        load_dataset("ogbn-arxiv", root=tmp_path / "root")
    assert not list((tmp_path / "root").iterdir())


def papers100m(folder, **changes):
    """Write ogbn-papers100M in its binary layout with the given changes, and read it."""
    write_binary(folder / "ogbn_papers100M", **changes)
    return load_dataset("ogbn-papers100M", root=folder)


def another_release(tmp_path):
    write_csv_layout(tmp_path / "ogbn_arxiv", "time", version=0)
    load_dataset("ogbn-arxiv", root=tmp_path)


def half_a_file(folder, file):
    path = write_csv_layout(folder / "ogbn_arxiv", "time") / file
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    load_dataset("ogbn-arxiv", root=folder)


def no_file(folder, file):
    (write_csv_layout(folder / "ogbn_arxiv", "time") / file).unlink()
    load_dataset("ogbn-arxiv", root=folder)


MISTAKES = {
    "an edge beyond the nodes": Mistake(
        lambda tmp_path: papers100m(tmp_path, edge_index=np.array([[0, 1], [1, 5]])),
        value="node 5",
        rule="edge 1 data.npz 4",
        remedy="download",
    ),
    "binary files without features": Mistake(
        lambda tmp_path: papers100m(tmp_path, node_feat=None),
        value="node_feat",
        rule="raw missing file damaged",
        remedy="remove download ogbn-papers100M",
    ),
    "features that are no numbers": Mistake(
        lambda tmp_path: papers100m(tmp_path, node_feat=np.full((5, 2), np.nan)),
        value="x[0, 0] is nan",
        rule="ogbn-papers100M features finite",
        remedy="replace np.nan_to_num(x)",
    ),
    "another release": Mistake(another_release, value="RELEASE_v1.txt", rule="not release 1 ogbn-arxiv", remedy="remove folder downloaded"),
    **{
        f"{what} of {file}": Mistake(
            lambda tmp_path, wrong=wrong, file=file: wrong(tmp_path, file),
            value=file,
            rule="missing damaged",
            remedy="remove folder downloaded",
        )
        for what, wrong in (("half", half_a_file), ("nothing", no_file))
        for file in ("raw/node-feat.csv.gz", "split/time/valid.csv.gz")
    },
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
