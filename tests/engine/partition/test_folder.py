"""The folder of a data set in parts: every row has one place, and nothing of another partition is taken."""

import json
import shutil

import numpy as np
import pytest
from cases.damage import changed, put

from hoptrain.engine import Dataset, Graph, InputError, load_dataset
from hoptrain.engine.partition import folder as module
from hoptrain.engine.partition.folder import open_partition, part_folder, write_partition


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    graph = Graph.from_edges(*rng.integers(0, 50, (2, 300)), 50)
    x = rng.random((50, 3)).astype(np.float16)
    return Dataset(name="made", graph=graph, x=x, y=rng.integers(0, 2, 50), splits={"train": np.arange(9)})


def test_every_row_is_at_its_place(data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 20)
    write_partition(data, tmp_path / "parts", 3, "range")
    found = open_partition(tmp_path / "parts")
    nodes = np.arange(50)
    owners = found.owner(nodes)
    assert found.num_parts == 3
    assert set(owners.tolist()) == {0, 1, 2}
    for part in range(3):
        mine = nodes[owners == part]
        assert np.array_equal(found.rows(part)[found.place[mine] - found.bounds[part]], data.x[mine])
        assert len(found.rows(part)) == len(mine)
    assert found.data.x is None
    assert found.data.y.tolist() == data.y.tolist()
    assert found.data.splits["train"].tolist() == list(range(9))
    assert np.array_equal(found.data.graph.indices, data.graph.indices)
    cut = (owners[data.graph.indices] != owners[data.graph.destinations()]).mean()
    assert found.cut == cut
    assert found.requests.sum() == pytest.approx(1)


def test_a_part_of_another_partition_is_refused(data, tmp_path):
    write_partition(data, tmp_path / "two", 2, "range")
    write_partition(data, tmp_path / "three", 3, "range")
    shutil.rmtree(part_folder(tmp_path / "three", 1))
    with pytest.raises(InputError, match="holds no parts of a data set: name a folder that 'hoptrain data partition' wrote"):
        open_partition(tmp_path / "nowhere")
    with pytest.raises(InputError, match="part-1 is not on this machine: bring it"):
        open_partition(tmp_path / "three").rows(1)
    shutil.copytree(part_folder(tmp_path / "two", 1), part_folder(tmp_path / "three", 1))
    with pytest.raises(InputError, match=r"part-1 is part 1 of 2 of made, cut at other vertices: bring the one that was made with .*three"):
        open_partition(tmp_path / "three").rows(1)
    assert len(open_partition(tmp_path / "three").rows(0))


def test_damage_is_found(data, tmp_path):
    write_partition(data, tmp_path / "parts", 2, "range")
    assert len(open_partition(tmp_path / "parts").rows(1))
    for file in (part_folder(tmp_path / "parts", 1) / "x.npy", tmp_path / "parts" / "place.npy"):
        found = bytearray(file.read_bytes())
        found[-3] ^= 1
        file.write_bytes(found)
        with pytest.raises(InputError, match="does not match its checksum"):
            open_partition(tmp_path / "parts").rows(1)
        found[-3] ^= 1
        file.write_bytes(found)


WRONG_PARTS = {
    "sources too large": ("part-1", "indices", lambda own: changed(own, 2, 2_000_000_000), "the source of edge 2 is vertex 2000000000"),
    "sources negative": ("part-1", "indices", lambda own: changed(own, 2, -1), "the source of edge 2 is vertex -1"),
    "columns beyond": ("part-1", "indptr", lambda own: changed(own, -1, own[-1] + 9), "indptr runs from 0 to"),
    "too few rows": ("part-1", "x", lambda own: own[:3].copy(), r"x has shape \(3, 3\): the part has 25 nodes, a row each"),
    "places twice": ("", "place", lambda own: changed(own, 3, own[4]), "place does not hold each of 0 to 49 once"),
    "places beyond": ("", "place", lambda own: changed(own, 3, 50), "place does not hold each of 0 to 49 once"),
    "too few places": ("", "place", lambda own: own[:9].copy(), r"place has shape \(9,\): it is \(50,\)"),
    "columns that descend": ("", "indptr", lambda own: changed(own, 5, own[4] - 1), "indptr falls from"),
}


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_wrong_contents_are_refused_though_checksums_are_right(data, tmp_path, monkeypatch, case):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    folder, name, change, message = WRONG_PARTS[case]
    write_partition(data, tmp_path / "parts", 2, "range", graph="parted")
    put(tmp_path / "parts" / folder, name, change(np.load(tmp_path / "parts" / folder / f"{name}.npy")))
    with pytest.raises(InputError, match=message) as refused:
        read(open_partition(tmp_path / "parts"))
    assert "\n" not in str(refused.value)


def read(partition):
    return partition.rows(1), partition.columns(1)


@pytest.mark.parametrize(
    "bounds", [[0, 1e30, 50], [0, -1, 50], [0, 60, 50], [0, 30, 20, 50], [0, 25], [0.5, 50], "0, 50", None, [], [True, 50]]
)
def test_bounds_that_are_none(data, tmp_path, bounds):
    write_partition(data, tmp_path / "parts", 2, "range")
    header = json.loads((tmp_path / "parts" / "header.json").read_text())
    header["meta"]["bounds"] = bounds
    (tmp_path / "parts" / "header.json").write_text(json.dumps(header))
    with pytest.raises(InputError, match=r"parts: bounds are .*: they ascend from 0 to the number of nodes, 50; partition the data again"):
        open_partition(tmp_path / "parts")


def test_a_part_is_no_data_set(data, tmp_path):
    write_partition(data, tmp_path / "parts", 1, "range")
    for folder in (tmp_path / "parts", part_folder(tmp_path / "parts", 0)):
        with pytest.raises(
            InputError, match=r"is a data set in parts, or one of them: name the data set that was parted, and the parts by data.partitions"
        ):
            load_dataset(str(folder))


def test_bad_input(data, tmp_path):
    write_partition(data, tmp_path / "parts", 1, "range")
    with pytest.raises(InputError, match="exists: partition folders are not written over"):
        write_partition(data, tmp_path / "parts", 1, "range")
    with pytest.raises(InputError, match=r"part 1 of .*parts: its parts are 0 to 0; choose one"):
        open_partition(tmp_path / "parts").rows(1)
    with pytest.raises(InputError, match="made has no features: its parts would be empty"):
        write_partition(Dataset(name="made", graph=data.graph), tmp_path / "none", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]
