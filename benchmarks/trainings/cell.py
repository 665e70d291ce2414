"""A cell of ``hoptrain bench trainings``: a system and a training. ``hoptrain.benchmarks.trainings.program`` is the program that runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hoptrain.engine import InputError

ARCHS = ("sage", "gcn", "gat", "gin")
DEVICES = ("cpu", "cuda")
FEATURES = ("host", "pinned", "device")


class System(NamedTuple):
    """A system: its name, the module in this folder with its script, alternative packages of which one must be installed, and the script's arguments."""

    name: str
    script: str
    needs: tuple[str, ...]
    arguments: Mapping[str, Any]

    @property
    def family(self) -> str:
        """Library whose loader is used: ``hoptrain``, ``PyG`` or ``DGL``."""
        return re.split(r"\W", self.name)[0]

    @property
    def weights(self) -> str:
        """Library whose weight initialisation the layers use, ``PyG`` or ``DGL``. hoptrain's own is PyG's."""
        return "DGL" if self.script == "dgl" else "PyG"


_PYG = {"loader": "torch_geometric.loader", "layers": "torch_geometric.nn", "trim": True}
_DGL = {"dataloading": "dgl.dataloading", "layers": "dgl.nn", "ids": "int64"}
_SAMPLES = ("pyg_lib", "torch_sparse")
SYSTEMS = {
    "fit": System("hoptrain fit", "fit", (), {}),
    "hoptrain.pyg": System("hoptrain.pyg", "pyg", ("torch_geometric",), _PYG | {"loader": "hoptrain.pyg"}),
    "hoptrain.pyg.nn": System(
        "hoptrain.pyg and its layers", "pyg", ("torch_geometric",), {"loader": "hoptrain.pyg", "layers": "hoptrain.pyg.nn", "trim": False}
    ),
    "pyg": System("PyG", "pyg", _SAMPLES, _PYG | {"trim": False}),
    "pyg-trim": System("PyG, trim_to_layer", "pyg", ("pyg_lib",), _PYG),
    "hoptrain.dgl": System("hoptrain.dgl", "dgl", ("dgl",), _DGL | {"dataloading": "hoptrain.dgl"}),
    "hoptrain.dgl.nn": System(
        "hoptrain.dgl and its layers", "dgl", ("dgl",), _DGL | {"dataloading": "hoptrain.dgl", "layers": "hoptrain.dgl.nn"}
    ),
    "dgl-int64": System("DGL, int64", "dgl", ("dgl",), _DGL),
    "dgl-int32": System("DGL, int32", "dgl", ("dgl",), _DGL | {"ids": "int32"}),
}
"""Systems by the name that an option takes, in the order in which tables and plots show them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A training that one system runs: data set, model, loader settings and hardware.

    Attributes:
        system: key of ``SYSTEMS``.
        arch: sage, gcn, gat or gin.
        hidden: hidden channels, of all heads together.
        dataset: name, as in ``load_dataset``.
        scale: scale of a synthetic data set, in (0, 1].
        fanouts: neighbours per hop from the seeds outward, one number for each layer.
        batch_size: seeds of a step.
        steps: maximum number of steps of an epoch, whose seeds are a random subset of the training split.
        epochs: timed epochs, after one that starts workers and compiles.
        workers: loader processes; 0 loads in the training process.
        threads: torch's threads in the training process. If there are enough cores for workers and threads, PyG and DGL pin them to different cores.
        device: device to train on, cpu or cuda.
        features: memory that holds the features: "host" on the CPU; "pinned" or "device" on a GPU.
        lr: learning rate of Adam.
        dropout: dropout probability of hidden inputs.
        heads: attention heads of gat.
        test_nodes: maximum number of test nodes on which the accuracy is computed after the last epoch.
        seed: seed of weights and batches.
    """

    system: str
    arch: str = "sage"
    hidden: int = 256
    dataset: str = "synthetic:products"
    scale: float = 0.2
    fanouts: tuple[int, ...] = (15, 10, 5)
    batch_size: int = 1024
    steps: int = 8
    epochs: int = 10
    workers: int = 0
    threads: int = 1
    device: str = "cpu"
    features: str = "host"
    lr: float = 0.01
    dropout: float = 0.5
    heads: int = 4
    test_nodes: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("system", tuple(SYSTEMS)), ("arch", ARCHS), ("device", DEVICES), ("features", FEATURES)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(known)}")
        least = min(self.hidden, self.batch_size, self.steps, self.epochs, self.threads, self.test_nodes, len(self.fanouts))
        if least < 1 or self.workers < 0:
            raise InputError(
                f"width {self.hidden}, batches of {self.batch_size}, {self.steps} steps, {self.epochs} epochs, {self.workers} workers: all must be at "
                "least 1 (workers at least 0); give larger numbers"
            )
        if self.hidden % self.heads:
            raise InputError(f"hidden is {self.hidden}: it is divided among the {self.heads} heads of gat; give a multiple of {self.heads}")
        if (self.device == "cpu") != (self.features == "host"):
            raise InputError(
                f"features is {self.features!r} on {self.device}: it must be host on cpu, and pinned or device on cuda; give one of these"
            )

    def widths(self, in_channels: int, out_channels: int) -> list[tuple[int, int]]:
        """Return the numbers of input and output channels of each layer."""
        inner = [self.hidden] * (len(self.fanouts) - 1)
        return list(zip([in_channels, *inner], [*inner, out_channels], strict=True))
