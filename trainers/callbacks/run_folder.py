"""The loggers of a run, which write to its folder ``version_N``: ``metrics.csv``, and TensorBoard files if tensorboard is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger


class RunFolder(CSVLogger):
    """A ``CSVLogger`` with a folder that no other run uses. Rank 0 creates the folder, and tries the next number if another run has just created the folder."""

    def _get_next_version(self) -> int:
        version = super()._get_next_version()
        if getattr(rank_zero_only, "rank", 0) != 0:  # other ranks log nothing, and get the folder of the checkpoints from rank 0
            return version
        os.makedirs(self.root_dir, exist_ok=True)
        while True:
            try:
                os.mkdir(os.path.join(self.root_dir, f"version_{version}"))
            except FileExistsError:
                version += 1
            else:
                return version


class Curves(TensorBoardLogger):
    """A ``TensorBoardLogger`` that writes into the folder of another logger.

    Args:
        table: the logger whose folder is used.
    """

    def __init__(self, table: RunFolder) -> None:
        super().__init__(table.save_dir, name="")
        self._table = table

    def _get_next_version(self) -> int:
        version = self._table.version
        return int(version)


def make_loggers(folder: str) -> list[Logger]:
    """Return the loggers of a run whose folder is created in ``folder``: a ``RunFolder``, and ``Curves`` if tensorboard is installed."""
    table = RunFolder(folder, name="")
    return [table, Curves(table)] if find_spec("tensorboard") else [table]
