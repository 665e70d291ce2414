"""Download of archives of the Open Graph Benchmark, after the user has accepted their licences."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from hoptrain.engine.datasets.cache import unusable
from hoptrain.engine.errors import InputError, one_line

ACCEPT = "HOPTRAIN_ACCEPT_OGB_LICENCE"
_STALL_S = 60.0
_URL = "https://snap.stanford.edu/ogb/data"


class Release(NamedTuple):
    """An archive of OGB: data set name, version, folder in the archive, size in GB if known, licence, and folder on OGB's server."""

    name: str
    version: int
    archive: str
    gigabytes: float | None
    licence: str
    server_folder: str = "nodeproppred"

    @property
    def url(self) -> str:
        """URL of the archive."""
        return f"{_URL}/{self.server_folder}/{self.archive}.zip"


def download(release: Release, folder: Path) -> None:
    """Download and extract an archive as ``folder``, completely or not at all.

    Raises:
        InputError: the licence was not accepted, the network or the disk space does not suffice, or the archive is damaged.
    """
    accept_licence(release)
    from ogb.utils.url import download_url, extract_zip  # imported here, since importing ogb checks for a newer release over the network

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise unusable(folder.parent, "written", error) from error
    patience = socket.getdefaulttimeout()
    try:
        socket.setdefaulttimeout(_STALL_S)  # a timeout for downloads, since ogb sets none
        extract_zip(download_url(release.url, str(scratch)), str(scratch))
        (scratch / release.archive).rename(folder)
    except (OSError, RuntimeError, zipfile.BadZipFile) as error:
        if not (folder / "raw").is_dir():  # otherwise another process has finished the download first
            raise InputError(
                f"{release.name} is not at {folder} and its download from {release.url} failed ({one_line(error)}): "
                f"try again with a network, or unpack the archive there as {folder.name}"
            ) from error
    finally:
        socket.setdefaulttimeout(patience)
        shutil.rmtree(scratch, ignore_errors=True)


def accept_licence(release: Release) -> None:
    """Print licence and size, and check that the user accepts the licence: by the environment variable, or in reply to a question if there is a terminal."""
    size = "" if release.gigabytes is None else f"{release.gigabytes} GB "
    print(f"{release.name}: {size}from {release.url}, licence {release.licence}", file=sys.stderr)
    if os.environ.get(ACCEPT) == "1":
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise InputError(
            f"{release.name} has the licence {release.licence}: it must be accepted before the download; set {ACCEPT}=1 to accept it"
        )
    if input("Download it and accept the licence? (y/N) ").strip().lower() != "y":
        raise InputError(f"{release.name} was not downloaded: its licence was declined; set {ACCEPT}=1 to accept it without a question")
