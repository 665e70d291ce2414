"""If the user cannot use the cache folder, the error is one line with a remedy."""

import errno
import os
import shutil
import tempfile
import urllib.request  # noqa: F401 - the user whom some tests become may not read Python's own folder
from pathlib import Path

import pytest
from cases.mistakes import refused

from hoptrain.engine.datasets.cache import convert_once, converted, downloads, is_folder, unusable
from hoptrain.engine.datasets.ogb import download as download_module
from hoptrain.engine.datasets.pyg import load_pyg

NOBODY = 65534
WRITABLE = "set $HOPTRAIN_CACHE root write"


@pytest.fixture
def others_cache(monkeypatch):
    """Return a function that makes another user's cache folder with the given mode."""
    root = Path(tempfile.mkdtemp())  # outside of pytest's own folder, which no other user can read
    monkeypatch.setenv("HOPTRAIN_CACHE", str(root))
    (root / "datasets").mkdir()
    (root / "downloads").mkdir()
    is_root = os.geteuid() == 0

    def become(mode):
        for folder in (root / "datasets", root / "downloads", root):
            folder.chmod(mode if is_root else (mode & 0o7) << 6)
        if is_root:
            os.seteuid(NOBODY)
        return root

    yield become
    if is_root:
        os.seteuid(0)
    for folder in (root, root / "datasets", root / "downloads"):
        folder.chmod(0o700)
    shutil.rmtree(root)


def test_a_cache_that_may_not_be_read(others_cache):
    root = others_cache(0o700)
    for call in (lambda: converted("digits-knn-1"), lambda: convert_once("digits-knn-1", "dataset", lambda writer: None)):
        with refused(f"{root}/datasets", "read Permission denied", WRITABLE):
            call()
    with refused(f"{root}/downloads", "read Permission denied", WRITABLE):
        downloads(None)
    with refused(f"{root}/datasets/x", "read Permission denied", WRITABLE):
        is_folder(root / "datasets" / "x")


def test_a_cache_that_may_only_be_read(others_cache):
    root = others_cache(0o755)
    assert converted("x") == root / "datasets" / "x"
    assert not is_folder(root / "datasets" / "x")
    with refused(f"{root}/datasets/x", "written Permission denied", WRITABLE):
        convert_once("x", "dataset", lambda writer: None)


def test_a_download_into_such_a_cache(others_cache, monkeypatch):
    monkeypatch.setattr(download_module, "accept_licence", lambda release: None)
    release = download_module.Release("x", 1, "x", None, "none")
    monkeypatch.setattr("hoptrain.engine.datasets.pyg.fetch", lambda name, folder: folder.mkdir())
    root = others_cache(0o755)
    with refused(f"{root}/downloads", "written Permission denied", WRITABLE):
        download_module.download(release, root / "downloads" / "x")
    with refused(f"{root}/downloads", "written Permission denied", WRITABLE):
        load_pyg("cora", None, 1.0)


def test_a_full_disk_asks_for_space():
    error = unusable(Path("x"), "written", OSError(errno.ENOSPC, "No space left on device"))
    assert (
        str(error) == "x cannot be written (No space left on device): free disk space, or set $HOPTRAIN_CACHE to a folder with free space"
    )
