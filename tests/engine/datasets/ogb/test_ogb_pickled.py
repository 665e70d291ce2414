"""Files written by torch are read without torch: values equal torch's, and no code in the file is run."""

import os
import pickle

import numpy as np
import pytest
import torch
from cases.mistakes import refused

from hoptrain.engine.datasets.ogb.pickled import read_torch_file

VALUES = {
    "ints": np.arange(12).reshape(3, 4),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "none": np.zeros((0, 2), np.int32),
    "tensor": torch.arange(10)[4:].reshape(3, 2),
    "floats": torch.tensor([0.5, -1.25]),
    "scalar": torch.tensor(7),
    "plain": ["text", 3, None],
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("is_zip", [True, False])
def test_as_torch_reads_them(tmp_path, protocol, is_zip):
    path = tmp_path / "values.pt"
    torch.save(VALUES, path, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
    found = read_torch_file(path)
    assert found.pop("plain") == VALUES["plain"]
    assert found.keys() == VALUES.keys() - {"plain"}
    for name, own in found.items():
        wanted = np.asarray(VALUES[name])
        assert (own.dtype, own.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(own, wanted)


class Spring:
    """An object whose pickle would run code."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.mkdir, ("sprung",)), f"{os.name}.mkdir"),
        ((eval, ("__import__('os').mkdir('sprung')",)), ".eval"),
        ((torch.load, ("other.pt",)), "torch.serialization.load"),
        ((np.load, ("other.npy",)), "numpy.load"),
        ((np.ndarray.__new__, (np.ndarray, (1 << 60,))), ".getattr"),
        ((getattr, ("text", "upper")), ".getattr"),
    ],
)
def test_nothing_is_executed(tmp_path, monkeypatch, protocol, is_zip, call, name):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": VALUES["ints"], "b": Spring(*call)}, tmp_path / "values.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)  # fmt: skip
    with refused(name, "names no array needs", error=pickle.UnpicklingError):
        read_torch_file(tmp_path / "values.pt")
    assert not (tmp_path / "sprung").exists()


def test_arrays_of_objects_and_views_are_refused(tmp_path):
    path = tmp_path / "values.pt"
    for value, shown, words in (
        (np.array([{}, 3], object), "'O8'", "array no numbers"),
        (np.array(["a"]), "'U1'", "array no numbers"),
        (torch.arange(6).reshape(2, 3).T, "(3, 2)", "tensor strides (1, 3)"),
    ):
        torch.save({"a": value}, path, pickle_protocol=4)
        with refused(shown, words, error=ValueError):
            read_torch_file(path)


def test_whatever_is_cut_off_raises(tmp_path):
    path = tmp_path / "values.pt"
    for is_zip in (True, False):
        torch.save(VALUES, path, pickle_protocol=4, _use_new_zipfile_serialization=is_zip)
        content = path.read_bytes()
        for size in (0, 1, 10, len(content) // 2, len(content) - 9):
            path.write_bytes(content[:size])
            with pytest.raises(Exception, match=r"."):
                read_torch_file(path)
