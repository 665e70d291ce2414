"""The command ``hoptrain``: runs the subcommand, and reports an input error in one line with exit code 2.

The engine is imported only when needed, since ``hoptrain doctor`` must also work if it cannot be imported.
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
from hoptrain.trainers.watchdog.rank_agent import watched

LIGHTNING = {
    "fit": "train a model, then test its best checkpoint",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "predict": "write a checkpoint's outputs for all nodes to predictions.npy",
    "export": "write a trained model as a .pt2 or .onnx file",
}
"""Subcommands with Lightning's options, and the help text of each."""
_HEADINGS = {"fit": "training", "configs": "configurations and data", "doctor": "diagnosis and measurement"}
"""Headings in the list of commands, by the first command below each."""
MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130
LINES = "\n\t"
"""Control characters in a worker's traceback that are printed unchanged; others are escaped."""


@contextmanager
def _style(*_: object) -> Iterator[None]:
    yield


_UNUSED: dict[str, dict[str, Any]] = {
    "scipy.signal": {"hamming": None},
    "matplotlib": {"colors": SimpleNamespace(Colormap=object)},
    "matplotlib.axes": {"Axes": object},
    "matplotlib.pyplot": {"Figure": object, "style": SimpleNamespace(context=_style)},
}
"""Modules that torchmetrics imports but a run does not use, by name. The values are the attributes that torchmetrics reads during its import.

These are a function of SciPy, and types of matplotlib for plots.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 after a failure, 2 after an input error, or 130 after a Ctrl-C."""
    with redirect_stderr(_Lossy(sys.stderr)):
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # the streams of a notebook lack the method ``reconfigure``
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # else a character that the encoding lacks would end the run
    atexit.register(gc.freeze)  # else the interpreter spends a second or more at exit collecting torch's objects
    try:
        return _doctor(arguments) if arguments[:1] == ["doctor"] else _run(arguments)
    except KeyboardInterrupt:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # only rank 0 prints, so that the line appears once
            print("hoptrain: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has closed it, as in `hoptrain data list | head`
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
    """Raise ``InputError`` if NUMBA_NUM_THREADS is a value with which Numba would fail at the first parallel kernel."""
    from hoptrain.engine import InputError

    value = os.environ.get("NUMBA_NUM_THREADS", "")
    if value and not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InputError(f"NUMBA_NUM_THREADS is {value!r}: it must be an integer, 1 or more; give a number of threads, or unset it")


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in LIGHTNING:
        with watched():
            from hoptrain.kernels.lazy_modules import lazy_import
            from hoptrain.kernels.machine_code import CACHE_ROOT
            from hoptrain.trainers.commands.configs import with_paths

            arguments = with_paths(arguments)
            # Without this setting torch leaves a folder in the system's temporary folder.
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(CACHE_ROOT / "torchinductor"))
            gc.disable()  # otherwise the garbage collector repeatedly scans everything that torch and Lightning define
            # torch and Lightning take seconds to import, so only these subcommands import them.
            with ExitStack() as unused:
                for name, attributes in _UNUSED.items():
                    unused.enter_context(lazy_import(name, **attributes))
                from hoptrain.trainers.commands.lightning import run

            gc.freeze()  # imported objects are never garbage, so later collections skip them
            gc.enable()
            run(arguments, LIGHTNING[arguments[0]])
        return 0
    if arguments in ([], ["bench"], ["data"]):  # without a subcommand, print the list of commands, benchmarks or actions
        with suppress(SystemExit):
            _parser().parse_args([*arguments, "--help"])
        return MISTAKE
    _check_command(arguments[0])
    options = _parser().parse_args(arguments)
    with _unwound_at_sigterm():
        code: int = options.run(options)
    return code


def _check_command(name: str) -> None:
    """Raise ``InputError`` if the name of a configuration is given instead of a command."""
    from hoptrain.engine import InputError
    from hoptrain.trainers.commands.configs import known

    if name in known():
        raise InputError(f"{name!r} is a configuration, not a command: did you mean hoptrain fit --config {name}?")


@contextmanager
def _unwound_at_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit inside the context, so that a half-written folder is removed. Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    listener = signal.set_wakeup_fd(
        -1
    )  # an earlier run in this process may have set a wakeup fd, whose reader would end the process at once
    try:
        yield
    finally:
        signal.set_wakeup_fd(listener, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, before)


class _Lossy:
    """A stream that drops text that cannot be written. A run then continues if stderr is a closed pipe, or a file on a full disk."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, AttributeError):  # the stream is None if the process was started without a stderr
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, AttributeError):
            self._stream.flush()


class _DoctorParser(argparse.ArgumentParser):
    """A parser that reports an input error as other commands do, without importing the engine."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKE, f"hoptrain: {message}; see 'hoptrain doctor --help'\n")


class _GroupedCommands(argparse.RawDescriptionHelpFormatter):
    """A help formatter that lists the commands under headings."""

    def _format_action(self, action: argparse.Action) -> str:
        heading = _HEADINGS.get(action.dest, "")
        return (f"\n  {heading}:\n" if heading else "") + super()._format_action(action)


def _parser() -> argparse.ArgumentParser:
    from hoptrain.trainers.commands import bench, configs, data, doctor, explain
    from hoptrain.trainers.commands.arguments import Parser

    parser = Parser(
        prog="hoptrain",
        description="Train graph neural networks on sampled mini-batches.\n\nStart with: hoptrain fit --config quickstart",
        epilog="'hoptrain COMMAND --help' describes a command and its options.",
        formatter_class=_GroupedCommands,
    )
    parser.add_argument("--version", action="version", version=f"hoptrain {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, help_text in LIGHTNING.items():
        subparsers.add_parser(name, help=help_text)
    for command in (configs, data, doctor, explain, bench):
        command.add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
