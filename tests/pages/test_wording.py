"""The wording of the library: established terms, docstrings that stand alone, and short sentences."""

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("kernels", "engine", "samplers", "trainers", "hoptrain", "benchmarks")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))
MAX_WORDS = 40
MAX_CODE = 112
"""Columns of a code block that a page of the site shows without scrolling in a window of 1,280 pixels."""
TERMS = {
    r"vert(ex|ices)": "node",
    r"typed (graph|data set|batch|edge)s?": "heterogeneous",
    r"parted": "partitioned",
    r"deal(s|t) out": "yields, assigns",
    r"hand(s|ed)? over": "passes, transfers",
    r"carrier": "communication process",
    r"roll call": "rendezvous",
    r"to the bit": "bit-identical",
    r"pairs that are (none|no links)": "negatives",
    r"page.lock\w*|locked pages": "pinned memory",
    r"fore(tell|told|tells|see|seen)|reckon(ed|s)?": "predict, estimate",
    r"but for": "except for",
    r"correct (it|them)": "a concrete remedy",
    r"made anew|begins? anew": "recomputed, from scratch",
    r"the house|twins?|rooms?": "architecture; second buffer, synthetic counterpart; subpackage, capacity, space",
}
"""Words with several meanings, or used only in this project, and their replacements."""
FORBIDDEN = re.compile(rf"(?i)\b(?:{'|'.join(TERMS)})\b")
FRAGMENT = re.compile(r"(What|Whether|Of|As|By|Those|See|Likewise|The same|Apply\.|State the)\b")
ENTRY = re.compile(r"(?m)^ +\w+: ")  # the names of arguments
QUOTED = re.compile(r"``[^`]*``|`[^`\n]*`|\]\([^)]*\)|<[^>]*>|\{[^{}]*\}")


def texts(path: Path):
    """Yield the line and the words of every comment and every string with a space in it."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield token.start[0], QUOTED.sub("", ENTRY.sub("", token.string))


def docstrings(path: Path):
    """Yield the line and the docstring of the module and of each class and function, and those below constants and fields."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        for child in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and isinstance(child.value.value, str):
                yield child.lineno, child.value.value


def sentences(page: Path):
    """Yield the sentences of a page's prose, without code, tables and links; each list item is separate."""
    text = re.sub(r"(?ms)^( *)```.*?^ *```", "", page.read_text())
    for block in re.split(r"\n\s*\n|\n(?= *(?:[*-]|\d+\.) )", text):
        if not block.lstrip().startswith(("|", "#", "<", "![")):
            yield from re.split(r"(?<=[.!?:])\s+(?=[A-Z`*\[])", QUOTED.sub("x", " ".join(block.split())))


def test_the_check_finds_what_it_looks_for(tmp_path):
    source = tmp_path / "source.py"
    source.write_text('"""Of a table."""\nX = 1\n"""By name."""\nY = f"a vertex {vertex}"  # dealt out\n')
    assert [line for line, text in texts(source) if FORBIDDEN.search(text)] == [4, 4]
    assert [line for line, text in docstrings(source) if FRAGMENT.match(text)] == [1, 3]
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{'word ' * 41}end.\n\n* {'word ' * 30}\n* {'word ' * 30}\n")
    assert [len(sentence.split()) for sentence in sentences(page)] == [42, 31, 31]


def test_terms_are_those_of_the_field():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {hit[0]}" for path in SOURCES for line, text in texts(path) for hit in FORBIDDEN.finditer(text)
    ]
    found += [f"{page.relative_to(ROOT)}: {hit[0]}" for page in PAGES for hit in FORBIDDEN.finditer(QUOTED.sub("", page.read_text()))]
    assert not found, "\n".join(found)


def test_docstrings_stand_alone():
    """The first line of a docstring stands alone; a benchmark's first line is a question, which may begin with What."""
    starts = ((path, line, text.partition("\n")[0]) for path in SOURCES for line, text in docstrings(path))
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path, line, text in starts if FRAGMENT.match(text) and not text.endswith("?")]
    assert not found, "\n".join(found)


def test_sentences_of_pages_are_short():
    found = [f"{page.relative_to(ROOT)}: {one[:90]}" for page in PAGES for one in sentences(page) if len(one.split()) > MAX_WORDS]
    assert not found, "\n".join(found)


def test_code_fits_the_page():
    pages = sorted((ROOT / "docs").rglob("*.md"))
    blocks = ((page, block) for page in pages for block in re.findall(r"```.*?\n(.*?)```", page.read_text(), re.DOTALL))
    found = [f"{page.relative_to(ROOT)}: {line}" for page, block in blocks for line in block.splitlines() if len(line) > MAX_CODE]
    assert not found, "\n".join(found)
