"""``hoptrain configs``: lists the configuration files that come with hoptrain, and resolves their names in ``--config``."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hoptrain.engine import InputError
from hoptrain.engine.datasets import npz, pyg
from hoptrain.engine.datasets.images.cifar10 import find_cifar10
from hoptrain.engine.datasets.load import REGISTRY
from hoptrain.engine.errors import did_you_mean
from hoptrain.trainers.commands.table import aligned
from hoptrain.trainers.tasks import options_of

FOLDER = Path(__file__).parents[2] / "configs"
_COLUMNS = "name", "task", "size", "minutes", "files", "data", "about"
_DATA = "dataset", "images", "triples", "events"
"""Options of data modules that name a data set."""
OWN = "mine"
"""Name of the data set in configurations for the user's own data."""
_SIZES = {
    "cifar10": "60,000 images",
    "digits": "1,797 images",
    "flickr_attr": "7,575 nodes",
    "hetero_acm": "11,246 nodes",
    "kg_fb15k237": "310,116 triples",
    "ogbl_ddi_train_graph": "4,267 nodes",
    "rec_gowalla": "70,839 nodes",
    "temporal_jodie_wikipedia": "157,474 events",
    "tu_enzymes": "600 graphs",
    "tu_mutag": "188 graphs",
    "tu_proteins": "1,113 graphs",
    "wordnet31": "117,791 nodes",
}
"""Sizes of the data sets that are missing in the registry of data sets, or have no counts there."""
_LEGEND = """\
minutes: measured on at most 2 cores, without a GPU, and rounded up; empty if not measured
files: ready (nothing to fetch), download (fetched at the first use), yours (--data.dataset FOLDER), or missing: the file says what you have to provide"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the subcommand ``configs``."""
    parser = subparsers.add_parser(
        "configs",
        help="list the configurations that --config takes by name",
        description="List the configurations that ship with hoptrain. Give a name to --config, as in: hoptrain fit --config cora_gat",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a table of the configurations; return 0."""
    rows = [list(_COLUMNS), *(_row(name, path) for name, path in known().items())]
    width = shutil.get_terminal_size(fallback=(sys.maxsize, 0)).columns
    for line in aligned(rows, right=[_COLUMNS.index("minutes")]).splitlines():
        print(line if len(line) <= width else f"{line[: width - 1]}…")
    print(f"\n{_LEGEND}\n\nTrain one with, for example: hoptrain fit --config quickstart\nEach file describes its options: {FOLDER}")
    return 0


def _row(name: str, path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    data = next(config["data"][option] for option in _DATA if option in config["data"])
    size, files = ("", "yours") if data == OWN else (size_of(data, config["data"].get("scale", 1)), files_of(data))
    minutes = re.search(r"^# Minutes: (\d+)", text, re.MULTILINE)
    about = text.partition("\n")[0].removeprefix("# ")
    return [name, config.get("task", "nodes"), size, minutes[1] if minutes else "", files, data, about]


def size_of(data: str, scale: float = 1) -> str:
    """Return the size of a data set as text, such as ``2,708 nodes``; "" if it is unknown."""
    source = REGISTRY.get(data)
    return _SIZES.get(data, "") if source is None or source.counts is None else f"{round(source.counts.num_nodes * scale):,} nodes"


def files_of(data: str) -> str:
    """Return whether a data set is ``ready``, is downloaded at its first use (``download``), or has to be provided by the user (``missing``)."""
    if data == "cifar10":
        is_ready = bool(find_cifar10(npz.places(None)))
    elif data in REGISTRY:
        is_ready = REGISTRY[data].is_present(data, None)
    else:
        is_ready = data == "digits" or pyg.is_present(data, None)
    if is_ready:
        return "ready"
    return "download" if data in REGISTRY or data in pyg.CLASSES else "missing"


def known() -> dict[str, Path]:
    """Return the path of each shipped configuration, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def example_of(task: str, *, has_data: bool) -> str:
    """Return the name of a configuration of a task as text for a message: the one for the user's own data if there is one."""
    if task == "nodes":
        return "own_data (own_hetero for several node types)" if has_data else "quickstart"
    names = [name for name, path in known().items() if yaml.safe_load(path.read_text(encoding="utf-8")).get("task", "nodes") == task]
    return min(names, key=lambda name: not name.startswith("own_"), default="quickstart")


def with_paths(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with each configuration name after ``--config`` replaced by its path. If a file has the same name, the file takes precedence.

    Raises:
        InputError: a value of ``--config`` is neither a file nor the name of a configuration.
    """
    found = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, is_joined, name = argument.partition("=") if argument.startswith("--config=") else ("", "", argument)
        is_value = is_joined or before in ("--config", "-c")
        path = known().get(name) if is_value and not Path(name).is_file() else None
        if is_value and path is None and not Path(name).is_file() and "/" not in name and "." not in name:
            hint = did_you_mean(name, list(known())) or "give a file, or a name that 'hoptrain configs' lists"
            raise InputError(f"--config {name}: no file and no configuration has this name; {hint}")
        found.append(argument if path is None else f"{option}{is_joined}{path}")
    return found


def with_run_config(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments. If ``--config`` is missing, add the configuration of the run that wrote the checkpoint (except for ``fit``).

    A run saves its ``config.yaml`` in the parent of the checkpoints' folder.

    Raises:
        InputError: the configuration is missing, and the checkpoint is not a file.
    """
    options = dict(options_of(arguments))
    given = options.get("--ckpt_path", "last")
    checkpoint = Path(given).absolute()
    if arguments[0] == "fit" or "--config" in options or "-c" in options or given in ("", "last", "best"):
        return list(arguments)
    if not checkpoint.is_file():
        raise InputError(
            f"--ckpt_path is {given}: it must be a file; give the path of an existing checkpoint, such as one in runs/version_0/checkpoints"
        )
    config = checkpoint.parent.parent / "config.yaml"
    return [arguments[0], *(["--config", str(config)] if config.is_file() else []), *arguments[1:]]
