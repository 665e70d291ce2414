"""Turn a StopIteration that a hook raises by mistake into an error that ends the run.

Lightning's loops end on StopIteration. If a hook raised it, the rank's epoch or training would end silently, and the other ranks would wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pytorch_lightning.loops.fetchers import _DataLoaderIterDataFetcher
from pytorch_lightning.profilers import Profiler


def raise_stop_iterations(trainer: Any) -> None:
    """Turn a StopIteration that a hook raises into a RuntimeError, as PEP 479 does for generators.

    Lightning runs each hook inside ``trainer.profiler.profile``, so this function replaces that context manager.
    """
    if type(trainer.profiler).profile is Profiler.profile:
        trainer.profiler.profile = partial(_profile, trainer)


@contextmanager
def _profile(trainer: Any, action_name: str) -> Iterator[str]:
    """Profile an action like ``Profiler.profile``, and convert a StopIteration of a hook to a RuntimeError.

    This function replaces the method instead of wrapping it, so that hooks do not become slower.
    """
    try:
        trainer.profiler.start(action_name)
        yield action_name
    except StopIteration as error:
        kind, _, hook = action_name.partition("]")
        if kind not in ("[Callback", "[LightningModule", "[LightningDataModule", "[Strategy") or _takes_iterator(trainer):
            raise
        text = f"{hook} raised StopIteration, which Lightning would treat as the end of the data: catch it in the hook"
        raise RuntimeError(text).with_traceback(
            error.__traceback__
        ) from None  # without "from None", contextlib would see the StopIteration as the cause and raise it instead
    finally:
        trainer.profiler.stop(action_name)


def _takes_iterator(trainer: Any) -> bool:
    """Return whether the module's ``training_step`` takes batches from an iterator itself, in which case it may raise StopIteration."""
    return isinstance(getattr(trainer._active_loop, "_data_fetcher", None), _DataLoaderIterDataFetcher)
