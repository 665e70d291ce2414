"""A page in Markdown as one of HTML that holds its pictures in itself."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from hoptrain.engine import InputError

_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 sans-serif;max-width:100em;margin:2em auto;padding:0 1em;color:#222}p{max-width:72em}"
    "table{display:block;overflow-x:auto;border-collapse:collapse;font-size:13px;margin:1em 0}"
    "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:left}"
    "th{background:#f4f4f4}td{font-variant-numeric:tabular-nums}td:nth-child(2){min-width:14em}img{max-width:min(100%,72em)}"
    "pre{background:#f4f4f4;padding:1em;overflow:auto;font-size:12px}"
    "@media(prefers-color-scheme:dark){body{background:#1e2027;color:#d6d8de}a{color:#8ab4f8}th,pre{background:#2b2e37}td,th{border-color:#444854}"
    "img{filter:invert(.88) hue-rotate(180deg)}}"  # pictures have a white ground: it becomes dark, and hues stay
)


def html(text: str, folder: Path) -> str:
    """Return the page whose Markdown is ``text`` and whose pictures, PNGs, lie in ``folder``.

    Raises:
        InputError: markdown is not installed.
    """
    try:
        from markdown import markdown
    except ImportError as error:
        raise InputError("report.html needs markdown, which is not installed: install it with 'pip install hoptrain[bench]'") from error

    body = markdown(text, extensions=["tables", "fenced_code"])
    body = re.sub(r'(?<=src=")\w+\.png(?=")', lambda name: f"data:image/png;base64,{_base64(folder / name[0])}", body)
    title = text.partition("\n")[0].removeprefix("# ")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
