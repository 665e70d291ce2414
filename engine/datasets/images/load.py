"""``load_images``, which opens labelled images by name, memory-mapped. The first call converts them into the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hoptrain.engine.arrays import Array, is_integer
from hoptrain.engine.datasets.cache import convert_once, fingerprint
from hoptrain.engine.datasets.images.cifar10 import find_cifar10, read_cifar10
from hoptrain.engine.datasets.npz import find_npz, places
from hoptrain.engine.datasets.source import RANDOM_SPLIT
from hoptrain.engine.errors import InputError, one_line
from hoptrain.engine.features.splits import random_splits
from hoptrain.engine.files.untrusted import read_npz
from hoptrain.engine.store import FolderWriter, open_folder
from hoptrain.kernels.cpu.shuffle import permutation

KIND = "images"
_VERSION = 1
_VAL_SHARE = 10
"""Divisor: without a validation split in the source, 1 / ``_VAL_SHARE`` of its training images is used for validation."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ImageSet:
    """A data set of N labelled images of one size; read-only.

    Attributes:
        name: name of the data set in messages.
        x: (N, H, W, C) uint8 pixel values from 0 to ``white``.
        y: (N,) int64 classes in [0, num_classes).
        splits: image indices, (M,) int64, by split name: ``train``, ``val``, ``test``.
        num_classes: number of classes.
        white: largest possible pixel value.
        meta: source and licence of the data set, and origin of the splits.
    """

    name: str
    x: Array
    y: Array
    splits: Mapping[str, Array]
    num_classes: int
    white: int = 255
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of an image, (H, W, C)."""
        height, width, channels = self.x.shape[1:]
        return int(height), int(width), int(channels)


def load_images(name: str, *, root: str | Path | None = None) -> ImageSet:
    """Open a data set of images. The first call converts it into the cache.

    Args:
        name: ``digits`` (scikit-learn's, offline); ``cifar10``, from its archive as published (the python or the binary version, unpacked or
            not) in ``root`` or ``$HOPTRAIN_DATA``; else ``name.npz`` there, with ``train_x``, ``train_y``, ``test_x``, ``test_y``.
        root: folder that holds the files.

    Raises:
        InputError: the data set is not found or cannot be read.
    """
    folder = None if root is None else Path(root).expanduser()
    if folder is not None and not folder.is_dir():
        raise InputError(f"root {folder} is not a folder: root must be the folder of the images; create it or name another")
    if name == "digits":
        return _open_cached(f"digits-images{_VERSION}", _read_digits)
    if name == "cifar10":
        files = find_cifar10(places(folder))
        if files:
            return _open_cached(f"cifar10-images{_VERSION}-{fingerprint(files)}", lambda: _with_val(name, *read_cifar10(files)))
    path = find_npz(name, folder)
    if path is None:
        raise _not_found(name, folder)
    return _open_cached(f"{name}-images{_VERSION}-{fingerprint([path])}", lambda: _read_npz(path))


def _not_found(name: str, root: Path | None) -> InputError:
    looked = ", ".join(map(str, places(root))) or "no folder, since neither root nor $HOPTRAIN_DATA is given"
    archive = "cifar-10-python.tar.gz (https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz), packed or unpacked,"
    wanted = archive if name == "cifar10" else f"{name}.npz"
    return InputError(f"images {name!r} are not on this machine (looked in {looked}): put {wanted} there, or use 'digits'")


def _open_cached(key: str, read: Callable[[], ImageSet]) -> ImageSet:
    def write(writer: FolderWriter) -> None:
        images = read()
        for name, array in {"x": images.x, "y": images.y, **{f"split_{k}": v for k, v in images.splits.items()}}.items():
            writer.add(name, array)
        writer.meta.update(name=images.name, num_classes=images.num_classes, white=images.white, info=dict(images.meta))

    arrays, meta = open_folder(convert_once(key, KIND, write), KIND)
    splits = {name.removeprefix("split_"): ids for name, ids in arrays.items() if name.startswith("split_")}
    facts = {key: meta[key] for key in ("name", "num_classes", "white")}
    return ImageSet(x=arrays["x"], y=arrays["y"], splits=splits, meta=meta["info"], **facts)


def _read_digits() -> ImageSet:
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    return ImageSet(
        name="digits",
        x=pixels.astype(np.uint8).reshape(-1, 8, 8, 1),
        y=y.astype(np.int64),
        splits=random_splits(np.arange(len(y))),
        num_classes=10,
        white=16,
        meta={"source": "scikit-learn load_digits (UCI optical recognition of handwritten digits, test part)", "split": RANDOM_SPLIT},
    )


def _with_val(name: str, train: tuple[Array, Array], test: tuple[Array, Array]) -> ImageSet:
    """Return an image set from pairs (x, y) for training and testing. Some training images become the validation split."""
    count, total = len(train[1]), len(train[1]) + len(test[1])
    order = permutation(count, 0, 0)
    bound = count - count // _VAL_SHARE
    splits = {"train": np.sort(order[:bound]), "val": np.sort(order[bound:]), "test": np.arange(count, total)}
    y = np.concatenate([train[1], test[1]]).astype(np.int64)
    return ImageSet(
        name=name,
        x=np.concatenate([train[0], test[0]]),
        y=y,
        splits={split: ids.astype(np.int64) for split, ids in splits.items()},
        num_classes=int(y.max(initial=0)) + 1,
        meta={"split": f"test as published, val one in {_VAL_SHARE} of the training images: hoptrain's permutation with seed 0"},
    )


def _read_npz(path: Path) -> ImageSet:
    try:
        arrays = list(read_npz(path, ("train_x", "train_y", "test_x", "test_y")).values())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a set of images ({one_line(error)}): it needs train_x, train_y, test_x, test_y; choose another file"
        ) from None
    train, test = (arrays[0], arrays[1]), (arrays[2], arrays[3])
    for part, (x, y) in (("train", train), ("test", test)):
        if x.ndim != 4 or x.dtype != np.uint8 or x.shape[1:] != train[0].shape[1:]:
            raise InputError(
                f"{path}: {part}_x is {x.dtype} of shape {x.shape}: images must be (N, H, W, C) uint8, all of one size; convert it"
            )
        if y.shape != (len(x),) or not is_integer(y.dtype) or y.min(initial=0) < 0:
            raise InputError(
                f"{path}: {part}_y is {y.dtype} of shape {y.shape}: it must be one class of 0 or more for each of the {len(x):,} images; convert it"
            )
    return _with_val(path.stem, train, test)
