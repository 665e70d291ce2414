"""The folder of a partitioned data set: each row is in one partition, and no partition reads another partition's rows."""

import json
import shutil

import numpy as np
import pytest
from cases.damage import changed, put
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine import Dataset, Graph, load_dataset
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
    with refused(str(tmp_path / "nowhere"), "holds no partitioned data", "name hoptrain partition wrote"):
        open_partition(tmp_path / "nowhere")
    with refused("part-1", "not machine", "copy hoptrain partition"):
        open_partition(tmp_path / "three").rows(1)
    shutil.copytree(part_folder(tmp_path / "two", 1), part_folder(tmp_path / "three", 1))
    with refused("part 1 of 2", "part-1 made cut nodes", f"copy {tmp_path / 'three'}"):
        open_partition(tmp_path / "three").rows(1)
    assert len(open_partition(tmp_path / "three").rows(0))


def test_damage_is_found(data, tmp_path):
    write_partition(data, tmp_path / "parts", 2, "range")
    assert len(open_partition(tmp_path / "parts").rows(1))
    for file in (part_folder(tmp_path / "parts", 1) / "x.npy", tmp_path / "parts" / "place.npy"):
        found = bytearray(file.read_bytes())
        found[-3] ^= 1
        file.write_bytes(found)
        with refused(file.name, "match checksum altered", "remove convert"):
            open_partition(tmp_path / "parts").rows(1)
        found[-3] ^= 1
        file.write_bytes(found)


WRONG_PARTS = {
    "sources too large": ("part-1", "indices", lambda own: changed(own, 2, 2_000_000_000), "node 2000000000", "source edge 2"),
    "sources negative": ("part-1", "indices", lambda own: changed(own, 2, -1), "node -1", "source edge 2"),
    "columns beyond": ("part-1", "indptr", lambda own: changed(own, -1, own[-1] + 9), "0 to 158", "indptr runs 149 edges"),
    "too few rows": ("part-1", "x", lambda own: own[:3].copy(), "(3, 3)", "x partition 25 rows node"),
    "places twice": ("", "place", lambda own: changed(own, 3, own[4]), "place", "each 0 to 49 once"),
    "places beyond": ("", "place", lambda own: changed(own, 3, 50), "place", "each 0 to 49 once"),
    "too few places": ("", "place", lambda own: own[:9].copy(), "(9,)", "place (50,) partition"),
    "columns that descend": ("", "indptr", lambda own: changed(own, 5, own[4] - 1), "27 to 26", "indptr falls node 4"),
}


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_wrong_contents_are_refused_though_checksums_are_right(data, tmp_path, monkeypatch, case):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    folder, name, change, value, words = WRONG_PARTS[case]
    write_partition(data, tmp_path / "parts", 2, "range", graph="partitioned")
    put(tmp_path / "parts" / folder, name, change(np.load(tmp_path / "parts" / folder / f"{name}.npy")))
    with refused(value, words):
        read(open_partition(tmp_path / "parts"))


def read(partition):
    return partition.rows(1), partition.columns(1)


def test_bad_input(data, tmp_path):
    write_partition(data, tmp_path / "parts", 1, "range")
    with refused(str(tmp_path / "parts"), "exists partition not overwritten", "remove name another"):
        write_partition(data, tmp_path / "parts", 1, "range")
    with refused("part 1", f"{tmp_path / 'parts'} 0 to 0", "choose"):
        open_partition(tmp_path / "parts").rows(1)
    with refused("made", "no features partitions hold", "give features"):
        write_partition(Dataset(name="made", graph=data.graph), tmp_path / "none", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def opened_with_bounds(data, folder, bounds):
    write_partition(data, folder, 2, "range")
    header = json.loads((folder / "header.json").read_text())
    header["meta"]["bounds"] = bounds
    (folder / "header.json").write_text(json.dumps(header))
    open_partition(folder)


def partition_as_a_data_set(data, tmp_path):
    write_partition(data, tmp_path / "parts", 1, "range")
    load_dataset(str(tmp_path / "parts"))


def part_as_a_data_set(data, tmp_path):
    write_partition(data, tmp_path / "parts", 1, "range")
    load_dataset(str(part_folder(tmp_path / "parts", 0)))


BOUNDS = [[0, 1e30, 50], [0, -1, 50], [0, 60, 50], [0, 30, 20, 50], [0, 25], [0.5, 50], "0, 50", None, [], [True, 50]]

MISTAKES = {
    **{
        f"bounds of the parts that are {bounds}": Mistake(
            lambda data, tmp_path, bounds=bounds: opened_with_bounds(data, tmp_path / "parts", bounds),
            value=repr(bounds),
            rule="bounds ascend 0 nodes",
            remedy="50 partition",
        )
        for bounds in BOUNDS
    },
    "a partition opened as a data set": Mistake(
        partition_as_a_data_set, value="/parts", rule="data set parts", remedy="name data.partitions"
    ),
    "a part opened as a data set": Mistake(part_as_a_data_set, value="part-0", rule="data set parts", remedy="name data.partitions"),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
