"""Image data sets: download, archives, user files, and safe unpickling."""

import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from cases.mistakes import Mistake, each_of, refused

from hoptrain.engine.datasets.images.load import load_images

RNG = np.random.default_rng(0)
COUNT = 20
NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)


@pytest.fixture(scope="module")
def batches():
    """Return pixels (N, 3072), channels first, and classes, by file name."""
    return {name: (RNG.integers(0, 256, (COUNT, 3072), dtype=np.uint8), RNG.integers(0, 10, COUNT)) for name in NAMES}


class Python2Pickler(pickle._Pickler):
    """A pickler that writes as Python 2 did: text, bytes without encoding, and NumPy's old module names."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_bytes(self, value):
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)

    def save_str(self, value):
        self.save_bytes(value.encode())

    dispatch[bytes], dispatch[str] = save_bytes, save_str

    def save_global(self, obj, name=None):
        module = "numpy" if obj.__name__ in ("ndarray", "dtype") else "numpy.core.multiarray"
        self.write(pickle.GLOBAL + f"{module}\n{obj.__name__}\n".encode())

    dispatch[type] = dispatch[type(len)] = save_global


def as_pickle(pixels, classes):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump({"labels": classes.tolist(), "data": pixels, "batch_label": "training batch"})
    return file.getvalue()


def as_binary(pixels, classes):
    return np.concatenate([classes.astype(np.uint8)[:, None], pixels], axis=1).tobytes()


def write_archive(root, batches, version, packed):
    folder, suffix, write = ("cifar-10-batches-py", "", as_pickle) if version == "python" else ("cifar-10-batches-bin", ".bin", as_binary)
    contents = {f"{folder}/{name}{suffix}": write(*batch) for name, batch in batches.items()}
    if not packed:
        (root / folder).mkdir()
        for name, content in contents.items():
            (root / name).write_bytes(content)
        return
    with tarfile.open(root / f"cifar-10-{version}.tar.gz", "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("version", ["python", "binary"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_archive_of_cifar10(tmp_path, batches, version, packed):
    write_archive(tmp_path, batches, version, packed)
    images = load_images("cifar10", root=tmp_path)
    pixels, classes = (np.concatenate(parts) for parts in zip(*batches.values(), strict=True))
    np.testing.assert_array_equal(images.x, pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(images.y, classes)
    assert images.shape == (32, 32, 3)
    assert images.splits["test"].tolist() == list(range(5 * COUNT, 6 * COUNT))
    assert sorted([*images.splits["train"], *images.splits["val"]]) == list(range(5 * COUNT))
    assert len(images.splits["val"]) == COUNT // 2


def test_a_pickle_runs_nothing(tmp_path, batches):
    write_archive(tmp_path, batches, "python", packed=False)
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}))
    with refused(f"{os.name}.mkdir", "data_batch_3 no batch CIFAR-10", "fetch archive again"):
        load_images("cifar10", root=tmp_path)
    assert not marker.exists()


def write_npz(path, **changes):
    arrays = {
        "train_x": RNG.integers(0, 256, (30, 4, 6, 3), dtype=np.uint8),
        "train_y": np.arange(30) % 4,
        "test_x": np.zeros((5, 4, 6, 3), np.uint8),
        "test_y": np.array([0, 1, 2, 3, 0], np.uint8),
    }
    np.savez(path, **arrays | changes)


def test_an_npz(tmp_path, monkeypatch):
    write_npz(tmp_path / "flowers.npz")
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path))
    images = load_images("flowers")
    assert (images.shape, images.num_classes, len(images.y), images.y.dtype) == ((4, 6, 3), 4, 35, np.int64)
    assert [len(images.splits[name]) for name in ("train", "val", "test")] == [27, 3, 5]
    assert isinstance(images.x, np.memmap)


def test_digits():
    images = load_images("digits")
    assert (images.shape, images.white, images.num_classes) == ((8, 8, 1), 16, 10)
    assert images.x.max() == 16
    assert sum(len(ids) for ids in images.splits.values()) == 1797


def test_real_photographs(data_root):
    images = load_images("cifar10_lossless4k", root=data_root)
    assert (images.shape, images.num_classes) == ((32, 32, 3), 10)
    assert images.y[:4].tolist() == [6, 9, 9, 4], "frog, truck, truck, deer begin data_batch_1"


def damaged_batch(folder, batches, content):
    """Write the archive's folder with a changed batch, and read it."""
    write_archive(folder, batches, "python", packed=False)
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    return load_images("cifar10", root=folder)


def damaged_archive(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"no archive")
    load_images("cifar10", root=tmp_path)


def changed_npz(folder, **changes):
    """Write an image file with changes, and read it."""
    write_npz(folder / "flowers.npz", **changes)
    return load_images("flowers", root=folder)


def graph_as_images(tmp_path):
    np.savez(tmp_path / "graph.npz", indptr=np.arange(3), indices=np.arange(2))
    load_images("graph", root=tmp_path)


MISTAKES = {
    **{
        f"{what} as a batch": Mistake(
            lambda tmp_path, batches, content=content: damaged_batch(tmp_path, batches, content),
            value="test_batch",
            rule="no batch CIFAR-10",
            remedy="fetch archive again",
        )
        for what, content in (
            ("an empty file", b""),
            ("garbage", b"garbage"),
            ("a pickle without pixels", pickle.dumps({b"labels": [1]})),
            ("a pickle with one number", pickle.dumps({b"data": 3, b"labels": [1]})),
        )
    },
    "an archive that is none": Mistake(damaged_archive, value="cifar-10-binary.tar.gz", rule="read", remedy="fetch archive again"),
    "images as fractions": Mistake(
        lambda tmp_path: changed_npz(tmp_path, train_x=np.zeros((30, 4, 6, 3))),
        value="train_x is float64",
        rule="uint8 (N, one size",
        remedy="convert",
    ),
    "images of another size to test": Mistake(
        lambda tmp_path: changed_npz(tmp_path, test_x=np.zeros((5, 9, 6, 3), np.uint8)),
        value="test_x is uint8 of shape (5, 9, 6, 3)",
        rule="images one size",
        remedy="convert",
    ),
    "fewer classes than images": Mistake(
        lambda tmp_path: changed_npz(tmp_path, test_y=np.array([0, 1])),
        value="test_y is int64 of shape (2,)",
        rule="one class 5 images",
        remedy="convert",
    ),
    "negative classes": Mistake(
        lambda tmp_path: changed_npz(tmp_path, train_y=np.full(30, -1)),
        value="train_y is int64",
        rule="class 0 30 images",
        remedy="convert",
    ),
    "a graph": Mistake(graph_as_images, value="graph.npz", rule="no set images train_x", remedy="another file"),
    "CIFAR-10 that is not there": Mistake(
        lambda tmp_path: load_images("cifar10", root=tmp_path),
        value="'cifar10'",
        rule="not machine looked",
        remedy="put cifar-10-python.tar.gz 'digits'",
    ),
    "images without a folder": Mistake(
        lambda: load_images("cats"), value="'cats'", rule="not machine root $HOPTRAIN_DATA", remedy="put cats.npz 'digits'"
    ),
    "a root that is no folder": Mistake(
        lambda tmp_path: load_images("cats", root=tmp_path / "nowhere"), value="nowhere", rule="root not folder", remedy="create another"
    ),
}


@each_of(MISTAKES)
def test_mistakes(mistake, request):
    mistake.check(request)
