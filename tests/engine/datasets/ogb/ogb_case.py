"""OGB files as tests write them, and a separate data set cache."""

import gzip

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)


def csv(path, rows):
    """Write rows as OGB does: compressed, without a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as stream:
        stream.writelines(",".join(map(str, row)) + "\n" for row in rows)
