"""``hoptrain fit --help``: examples, then the options that runs commonly have; ``--help-all`` has those that are rare, too."""

from __future__ import annotations

import argparse
import re
from typing import Any

from jsonargparse import DefaultHelpFormatter

ALL = "--help-all"
COMMON = {
    "trainer": "accelerator devices num_nodes strategy precision max_epochs max_steps max_time limit_train_batches check_val_every_n_epoch "
    "accumulate_grad_batches gradient_clip_val callbacks logger deterministic profiler default_root_dir",
    "checkpoint": "dirpath monitor save_top_k every_n_train_steps",
}
"""Of Lightning's options those that the short help shows. Of ``data`` and ``model`` it shows all."""
OWN_WORDS = {
    "out": "the file to write: .pt2 for torch.export, .onnx for ONNX.",
    "config": "a configuration: a file, or a name that 'hoptrain configs' lists.",
    "seed_everything": "draws everything anew: weights, order, samples.",
    "ckpt_path": "the checkpoint to begin with: a file, or last, the newest of the runs in trainer.default_root_dir.",
    "checkpoint.dirpath": "folder of the checkpoints; by default that of the run.",
    "checkpoint.monitor": "the score by which the best checkpoint is kept.",
    "checkpoint.save_top_k": "how many of the best are kept.",
}
"""In place of Lightning's."""
EXAMPLES = {
    "fit": """\
  hoptrain fit --config quickstart
  hoptrain fit --config cora_gat --model.lr 0.01 --trainer.max_epochs 50
  hoptrain fit --config quickstart --ckpt_path last --trainer.max_epochs 60""",
    "validate": "  hoptrain validate --config cora_gat --ckpt_path last",
    "test": "  hoptrain test --config cora_gat --ckpt_path runs/version_0/checkpoints/last.ckpt",
    "predict": "  hoptrain predict --config cora_gat --ckpt_path last",
    "export": "  hoptrain export --ckpt_path runs/version_0/checkpoints/last.ckpt --out model.pt2",
}


class Formatter(DefaultHelpFormatter):
    """Leaves the lines of a description as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in text.splitlines())


class ShortFormatter(Formatter):
    """Leaves out types, the classes that there are, and all but the first sentence of Lightning's texts."""

    def _expand_help(self, action: argparse.Action) -> str:
        text = re.sub(r", known subclasses: [^)]*\)$", ")", super()._expand_help(action))
        if action.dest.partition(".")[0] in COMMON:  # Lightning's own texts, of which the first sentence says what it is
            first, _, rest = text.partition(". ")
            text = f"{first}. {rest[at:]}" if (at := rest.rfind("(type: ")) >= 0 else text
        text = re.sub(r" \((?:required, )?type: .*?(?:, default: (?P<value>.*))?\)$", _default, text)
        return re.sub(r"``|:class:|`", "", text)


def _default(found: re.Match[str]) -> str:
    return "" if found["value"] in (None, "null") else f" (default: {found['value']})"


def shorten(parser: Any, command: str, about: str) -> None:
    """Give a subcommand's parser its examples, and leave what is rare out of its help."""
    describe(parser, command, about)
    parser.formatter_class = ShortFormatter
    parser._action_groups = [group for group in parser._action_groups if group.title != "Linked arguments"]
    parser._action_groups.sort(key=_is_of_the_trainer)
    for action in parser._actions:
        action.help = OWN_WORDS.get(action.dest, action.help) if _is_common(action) else argparse.SUPPRESS


def describe(parser: Any, command: str, about: str) -> None:
    """Give a subcommand's parser its first lines."""
    parser.formatter_class = Formatter
    parser.usage = f"hoptrain {command} --config NAME [--OPTION VALUE ...]"
    parser.description = (
        f"{about[0].upper()}{about[1:]}. 'hoptrain configs' lists the configurations; each option here changes one of its values.\n\n"
        f"Examples:\n{EXAMPLES[command]}\n\n'hoptrain {command} {ALL}' has the rare options, too; --task NAME --help those of another task."
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
