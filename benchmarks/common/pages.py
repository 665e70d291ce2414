"""A page of texts, tables and pictures, in Markdown and in HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from hoptrain.benchmarks.common import tables

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:100em;margin:2em auto;padding:0 1em;color:#222}p{max-width:72em}"
    "table{border-collapse:collapse;font-size:13px;margin:1em 0}td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:left}"
    "th{background:#f4f4f4}td{font-variant-numeric:tabular-nums}"
    "div{overflow-x:auto}td:nth-child(2){min-width:14em}img{max-width:min(100%,72em)}"
    "pre{background:#f4f4f4;padding:1em;overflow:auto;font-size:12px}"
)


class Part(NamedTuple):
    """A piece of the page: a heading, a paragraph, a table (its rows) or a picture (its PNG)."""

    kind: str
    text: str = ""
    table: Sequence[Mapping[str, Any]] = ()
    picture: bytes = b""


def markdown(parts: Sequence[Part], folder: Path) -> str:
    """The page in Markdown, its pictures as files in ``folder``."""
    pieces = []
    for part in parts:
        if part.kind == "picture":
            name = re.sub("[^a-z]+", "_", part.text.lower()).strip("_") + ".png"
            (folder / name).write_bytes(part.picture)
            pieces.append(f"![{part.text}]({name})")
        elif part.kind == "table":
            pieces.append(tables.markdown(part.table).rstrip())
        elif part.kind == "code":
            pieces.append(f"```\n{part.text}\n```")
        else:
            pieces.append({"title": "# ", "heading": "## "}.get(part.kind, "") + part.text)
    return "\n\n".join(pieces) + "\n"


def html(parts: Sequence[Part]) -> str:
    """The page in HTML, which holds all in itself."""
    body = "\n".join(map(_html_part, parts))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(parts[0].text)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html_part(part: Part) -> str:
    if part.kind == "picture":
        return f'<img alt="{escape(part.text)}" src="data:image/png;base64,{base64.b64encode(part.picture).decode()}">'
    if part.kind == "table":
        columns = tables.columns(part.table)
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = "\n".join("<tr>" + "".join(f"<td>{escape(tables.cell(row, name))}</td>" for name in columns) + "</tr>" for row in part.table)
        return f"<div><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    tag = {"title": "h1", "heading": "h2", "code": "pre"}.get(part.kind, "p")
    return f"<{tag}>{escape(part.text)}</{tag}>"
