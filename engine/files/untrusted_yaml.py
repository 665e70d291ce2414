"""Reader for untrusted YAML files that limits the number of values after alias expansion, and the nesting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hoptrain.engine.files.untrusted import open_regular

MOST_BYTES = 4 << 20
"""Maximum size in bytes of a YAML file."""
_MOST_VALUES = 20_000
_MOST_LEVELS = 100


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file of plain values.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: the file is not UTF-8 text, or larger than 4 MiB.
        yaml.YAMLError: the text is not YAML, or has too many values or levels (see ``check_yaml``).
    """
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"the file is larger than {MOST_BYTES >> 20} MiB")
    text = content.decode()
    check_yaml(text)
    return yaml.safe_load(text)


def check_yaml(text: str) -> None:
    """Raise YAMLError if a YAML text has too many values, with aliases expanded, because readers may copy each alias.

    Raises:
        yaml.YAMLError: the text is not YAML, has more than 20,000 values, or nests more than 100 levels.
    """
    total, levels, sizes = 0, list[tuple[str | None, int]](), dict[str, int]()
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in levels):
                raise _refused(f"*{event.anchor} is within the value that it repeats", event)
            total += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = levels.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.CollectionStartEvent):
            levels.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if total > _MOST_VALUES:
            raise _refused(f"it has more than {_MOST_VALUES:,} values", event)
        if len(levels) > _MOST_LEVELS:
            raise _refused(f"it nests more than {_MOST_LEVELS} levels", event)


def _refused(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
