"""The command ``hoptrain``: picks the subcommand, turns a user's mistake into one line and exit code 2.

The engine is imported when it is needed, since ``hoptrain doctor`` has to work where it cannot be.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from types import SimpleNamespace
from typing import Any, NoReturn

from hoptrain import __version__
from hoptrain.trainers.watchdog.member import watched

LIGHTNING = {
    "fit": "train, then test the best checkpoint",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "predict": "write the scores of all nodes",
    "export": "write the model of a checkpoint as a file that runs without hoptrain's models",
}
MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130
LINES = "\n\t"
"""What a worker's traceback keeps when it is shown."""


@contextmanager
def _style(*_: object) -> Iterator[None]:
    yield


_UNUSED: dict[str, dict[str, Any]] = {
    "scipy.signal": {"hamming": None},
    "matplotlib": {"colors": SimpleNamespace(Colormap=object)},
    "matplotlib.axes": {"Axes": object},
    "matplotlib.pyplot": {"Figure": object, "style": SimpleNamespace(context=_style)},
}
"""What torchmetrics imports and a run does not use, with what it asks of it at once: whether SciPy still has a function, and types for its plots."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0, 1 for a failure of ours, 2 for a mistake in the input."""
    with redirect_stderr(_Lossy(sys.stderr)):
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # of a notebook
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a character that the encoding lacks ends no run
    atexit.register(gc.freeze)  # else the interpreter, at its end, looks for a second or more at torch's objects, which go with the process
    try:
        return _doctor(arguments) if arguments[:1] == ["doctor"] else _run(arguments)
    except KeyboardInterrupt:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # one line for all ranks
            print("hoptrain: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `hoptrain data list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE


def _doctor(arguments: list[str]) -> int:
    from hoptrain.trainers.commands import doctor

    parser = _DoctorParser(prog="hoptrain")
    doctor.add_parser(parser.add_subparsers())
    return doctor.run(parser.parse_args(arguments))


def _run(arguments: list[str]) -> int:
    from hoptrain.engine import InputError, WorkerError
    from hoptrain.engine.errors import printable

    try:
        _check_threads()
        return _dispatch(arguments)
    except InputError as error:
        print(f"hoptrain: {printable(str(error))}", file=sys.stderr)
        return MISTAKE
    except WorkerError as error:
        print(f"hoptrain: {printable(str(error), keep=LINES)}", file=sys.stderr)
        return FAILURE


def _check_threads() -> None:
    """Refuse a number of threads at which Numba would fail when the first parallel kernel starts."""
    from hoptrain.engine import InputError

    value = os.environ.get("NUMBA_NUM_THREADS", "")
    if value and not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InputError(f"NUMBA_NUM_THREADS is {value!r}: it is a number of threads, 1 or more; correct it, or unset it")


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in LIGHTNING:
        with watched():
            from hoptrain.kernels.lazy_modules import lazy_import
            from hoptrain.kernels.machine_code import CACHE_ROOT
            from hoptrain.trainers.commands.configs import with_paths

            arguments = with_paths(arguments)
            # Else torch leaves a folder in the temporary one.
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(CACHE_ROOT / "torchinductor"))
            gc.disable()  # else it looks through all that torch and Lightning define, again and again
            # torch and Lightning take seconds to import: only where they are needed.
            with ExitStack() as unused:
                for name, attributes in _UNUSED.items():
                    unused.enter_context(lazy_import(name, **attributes))
                from hoptrain.trainers.commands.lightning import run

            gc.freeze()  # it is never garbage: also the training's own collections leave it out
            gc.enable()
            run(arguments, LIGHTNING[arguments[0]])
        return 0
    if not arguments:
        _parser().print_help()
        return MISTAKE
    options = _parser().parse_args(arguments)
    with _unwound_at_sigterm():
        code: int = options.run(options)
    return code


@contextmanager
def _unwound_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end what runs as an error would, so that a folder half written goes; where a program calls this from a thread, that is its own affair."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    listener = signal.set_wakeup_fd(-1)  # of a run before in this process, which would end it at once
    try:
        yield
    finally:
        signal.set_wakeup_fd(listener, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, before)


class _Lossy:
    """A stream that loses what cannot be written: a run does not end because its messages go to a full disk, or to a reader that has gone."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, AttributeError):  # there is no stream where the process was started without a stderr
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, AttributeError):
            self._stream.flush()


class _DoctorParser(argparse.ArgumentParser):
    """Reports a mistake in the same words, but has no InputError."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKE, f"hoptrain: {message}; see 'hoptrain doctor --help'\n")


def _parser() -> argparse.ArgumentParser:
    from hoptrain.trainers.commands import bench, configs, data, doctor, explain
    from hoptrain.trainers.commands.arguments import Parser

    parser = Parser(
        prog="hoptrain",
        description="Train graph neural networks on sampled mini-batches. Begin with: hoptrain fit --config quickstart",
        epilog="'hoptrain COMMAND --help' shows the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"hoptrain {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, help_text in LIGHTNING.items():
        subparsers.add_parser(name, help=help_text)
    for command in (configs, data, doctor, explain, bench):
        command.add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
