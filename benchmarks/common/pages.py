"""Report pages of studies (``hoptrain.benchmarks.common.grid``): their conditions, their failed cells, and the conversion of Markdown to a single HTML file."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from hoptrain.benchmarks.common.grid import COMPLETED, FAILED, HUNG, LEFT_OUT
from hoptrain.engine import InputError

Line: TypeAlias = Mapping[str, Any]
"""A line of ``cells.jsonl``: the result of a cell in one round."""

_STACK_LINES = 12

_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 sans-serif;max-width:100em;margin:2em auto;padding:0 1em;color:#222}p{max-width:72em}"
    "table{display:block;overflow-x:auto;border-collapse:collapse;font-size:13px;margin:1em 0}"
    "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:left}"
    "th{background:#f4f4f4}td{font-variant-numeric:tabular-nums}td:nth-child(2){min-width:14em}img{max-width:min(100%,72em)}"
    "pre{background:#f4f4f4;padding:1em;overflow:auto;font-size:12px}"
    "@media(prefers-color-scheme:dark){body{background:#1e2027;color:#d6d8de}a{color:#8ab4f8}th,pre{background:#2b2e37}td,th{border-color:#444854}"
    "img{filter:invert(.88) hue-rotate(180deg)}}"  # inverts the white background of the plots but keeps their hues
)


def html(text: str, folder: Path) -> str:
    """Return a Markdown page as HTML, with its PNG files from ``folder`` embedded.

    Raises:
        InputError: the package ``markdown`` is not installed.
    """
    try:
        from markdown import markdown
    except ImportError as error:
        raise InputError("report.html needs markdown, which is not installed: install it with 'pip install hoptrain[bench]'") from error

    body = markdown(text, extensions=["tables", "fenced_code"])
    body = re.sub(r'(?<=src=")[\w-]+\.png(?=")', lambda name: f"data:image/png;base64,{_base64(folder / name[0])}", body)
    title = text.partition("\n")[0].removeprefix("# ")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def surroundings(lines: Sequence[Line]) -> str:
    """Return a paragraph on a study's conditions: machine, load from other programs, versions of packages, commits and date."""
    last = lines[-1]
    machine = last["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in last["versions"].items() if version)
    commits = ", ".join(dict.fromkeys(str(line["commit"])[:12] + ("-dirty" if "dirty" in str(line["commit"]) else "") for line in lines))
    hardware = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory'] / 1e9:.0f} GB."
    return f"{hardware} {_load(lines)} Python {machine['python']}, {versions}. Commit {commits}. {last['date'][:10]}."


def _load(lines: Sequence[Line]) -> str:
    """Return a sentence on how much other programs used the machine before each round."""
    loads = [line["load"] for line in lines if line.get("load")]
    if not loads:
        return "Its load by other programs was not recorded."
    least, most = min(one["busy_cores"] for one in loads), max(one["busy_cores"] for one in loads)
    average = max(one["load_average"] for one in loads)
    return f"Before each round other programs kept {least:.1f} to {most:.1f} of its cores busy; the largest load average was {average:.1f}."


def options(lines: Sequence[Line], names: Sequence[str]) -> str:
    """Return a text with the values that the options ``names`` have in a study's cells."""
    return ", ".join(f"{name} {' or '.join(dict.fromkeys(str(line['cell'][name]) for line in lines))}" for name in names)


def bad_cells(folder: Path, lines: Sequence[Line]) -> Iterator[str]:
    """Yield a heading and a list of the cells that hung, failed or were skipped, with the stacks of those that hung."""
    bad = [line for line in lines if line["outcome"] in (HUNG, FAILED, LEFT_OUT)]
    yield "## What hung, failed or was skipped"
    if not bad:
        yield f"Nothing: all {sum(line['outcome'] == COMPLETED for line in lines)} runs were completed."
        return
    yield "\n".join(f"* {_brief(line)}, round {line['round']}: {line['outcome']}, `{line['why']}` ({line['log']})" for line in bad)
    for line in bad:
        stacks = (folder / line["log"]).with_suffix(".stacks")
        if stacks.exists():
            text = "\n".join([str(line["cell"]), *stacks.read_text(errors="replace").splitlines()[:_STACK_LINES]])
            yield f"```\n{text}\n```"


def _brief(line: Line) -> str:
    shown = ("system", "arch", "hidden", "dataset", "ranks", "workers", "threads", "batch_size")
    return " ".join(f"{name} {line['cell'][name]}" for name in shown if line["cell"].get(name) is not None)
