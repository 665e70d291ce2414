"""``hoptrain fit --help``: examples and the common options; ``--help-all`` also lists the rare ones."""

from __future__ import annotations

import argparse
import re
import textwrap
from typing import Any

from jsonargparse import DefaultHelpFormatter

ALL = "--help-all"
COMMON = {
    "trainer": "accelerator devices num_nodes strategy precision max_epochs max_steps max_time limit_train_batches check_val_every_n_epoch "
    "accumulate_grad_batches gradient_clip_val callbacks logger deterministic profiler default_root_dir",
    "checkpoint": "dirpath monitor save_top_k every_n_train_steps",
}
"""Options of Lightning's trainer and checkpoint callback that the short help includes. It includes all options of ``data`` and ``model``."""
OWN_WORDS = {
    "config": "a configuration: a YAML file, or a name that 'hoptrain configs' lists. Other options override its values.",
    "seed_everything": "seed of the initial weights, the order of the seeds, and sampling.",
    "ckpt_path": "the checkpoint to start from: a file, or last for the newest last.ckpt in trainer.default_root_dir.",
    "checkpoint.dirpath": "folder of the checkpoints; by default the folder of the run.",
    "checkpoint.monitor": "metric that decides which checkpoint is best.",
    "checkpoint.save_top_k": "number of best checkpoints to keep.",
    "checkpoint.every_n_train_steps": "steps between two checkpoints; by default one after each validation.",
    "trainer.accelerator": "hardware to train on: cpu, cuda, or auto for a GPU if there is one.",
    "trainer.devices": "number of GPUs or CPU processes (ranks) on each machine, or a list of GPUs.",
    "trainer.num_nodes": "number of machines.",
    "trainer.strategy": "how ranks work together: auto, ddp, or hoptrain.trainers.PipelineStrategy.",
    "trainer.precision": "floating-point precision: 32-true (the default), bf16-mixed or 16-mixed.",
    "trainer.max_epochs": "stop after this number of epochs.",
    "trainer.max_steps": "stop after this number of steps; -1 for no limit.",
    "trainer.max_time": "stop after this time, as DD:HH:MM:SS.",
    "trainer.limit_train_batches": "train on this number of batches per epoch, or on this fraction of them.",
    "trainer.check_val_every_n_epoch": "epochs between two validations.",
    "trainer.accumulate_grad_batches": "batches whose gradients are accumulated for one optimiser step.",
    "trainer.gradient_clip_val": "largest norm of the gradient; larger gradients are scaled down.",
    "trainer.callbacks": "Lightning callbacks to add, by class name.",
    "trainer.logger": "logger, by class name; by default metrics.csv, and TensorBoard if installed; false for none.",
    "trainer.deterministic": "use only deterministic algorithms of PyTorch; warn to allow others with a warning.",
    "trainer.profiler": "Lightning profiler: simple, advanced or pytorch.",
    "trainer.default_root_dir": "folder of the runs.",
}
"""Help texts that replace those of Lightning and of docstrings in the short help."""
_TITLES = {"trainer": "trainer (PyTorch Lightning)", "checkpoint": "checkpoints", "out": "input and output", "ckpt_path": "starting point"}
"""Titles of option groups in the short help, by the first part of an option's name. The titles of ``data`` and ``model`` are class docstrings."""
EXAMPLES = {
    "fit": """\
  hoptrain fit --config quickstart
  hoptrain fit --config cora_gat --model.lr 0.01 --trainer.max_epochs 50
  hoptrain fit --config quickstart --ckpt_path last --trainer.max_epochs 60""",
    "validate": "  hoptrain validate --config cora_gat --ckpt_path last",
    "test": "  hoptrain test --config cora_gat \\\n      --ckpt_path runs/version_0/checkpoints/last.ckpt",
    "predict": """\
  hoptrain predict --config cora_gat --ckpt_path last
  hoptrain predict --ckpt_path runs/version_0/checkpoints/last.ckpt \\
      --data.dataset new_graph --nodes ids.csv --out predictions.csv""",
    "export": "  hoptrain export --ckpt_path runs/version_0/checkpoints/last.ckpt \\\n      --out model.pt2",
}


class Formatter(DefaultHelpFormatter):
    """A help formatter that keeps the line breaks of the description, and wraps its longer lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrapped(indent + line, width) for line in text.splitlines())

    def start_section(self, heading: str | None) -> None:
        """Start a group of options, whose heading may be a class's description."""
        super().start_section(heading and _wrapped(heading, self._width))


def _wrapped(line: str, width: int) -> str:
    return line if len(line) <= width else textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False)


class ShortFormatter(Formatter):
    """A help formatter for the short help: without types and lists of classes, and with only the first sentence of Lightning's texts."""

    def _expand_help(self, action: argparse.Action) -> str:
        text = re.sub(r", known subclasses: [^)]*\)$", ")", super()._expand_help(action))
        if action.dest.partition(".")[0] in COMMON:  # the first sentence of Lightning's texts suffices
            first, _, rest = text.partition(". ")
            text = f"{first}. {rest[at:]}" if (at := rest.rfind("(type: ")) >= 0 else text
        text = re.sub(r" \((?:required, )?type: .*?(?:, default: (?P<value>.*))?\)$", _default, text)
        return re.sub(r"``|:class:|`", "", text)


def _default(found: re.Match[str]) -> str:
    return "" if found["value"] in (None, "null") else f" (default: {found['value']})"


def shorten(parser: Any, command: str, about: str) -> None:
    """Give a subcommand's parser its description and examples, and hide rare options from its help."""
    describe(parser, command, about)
    parser.formatter_class = ShortFormatter
    parser._action_groups = [group for group in parser._action_groups if group.title != "Linked arguments"]
    parser._action_groups.sort(key=_is_of_the_trainer)
    for group in parser._action_groups:
        names = {action.dest.partition(".")[0] for action in group._group_actions}
        group.title = next((title for name, title in _TITLES.items() if name in names), group.title)
        if name := next((name for name in ("model", "data") if name in names), ""):
            group.title = f"{name}: {(group.title or '').replace('``', '')}"
    for action in parser._actions:
        action.help = OWN_WORDS.get(action.dest, action.help) if _is_common(action) else argparse.SUPPRESS


def describe(parser: Any, command: str, about: str) -> None:
    """Give a subcommand's parser its usage line, description and examples."""
    parser.formatter_class = Formatter
    needed = "--ckpt_path FILE --out FILE" if command == "export" else "--config NAME"
    configs = (
        "The configuration is that of the run which wrote the checkpoint, or --config."
        if command == "export"
        else "'hoptrain configs' lists the configurations. Options override their values."
    )
    parser.usage = f"hoptrain {command} {needed} [--OPTION VALUE ...]"
    parser.description = (
        f"{about[0].upper()}{about[1:]}.\n"
        f"{configs}\n\n"
        f"Examples:\n{EXAMPLES[command]}\n\n"
        f"'hoptrain {command} {ALL}' also lists rare options.\n"
        f"'hoptrain {command} --task NAME --help' lists the options of another task."
    )


def _is_of_the_trainer(group: Any) -> bool:
    return any(action.dest.startswith("trainer") for action in group._group_actions)


def _is_common(action: Any) -> bool:
    names = [option.removeprefix("--") for option in action.option_strings]
    if not names or any(name.endswith(".help") for name in names):
        return False
    group, _, option = action.dest.partition(".")
    if group not in COMMON:
        return action.dest not in ("weights_only", "print_config") and action.metavar != "CONFIG"
    return option in COMMON[group].split()
