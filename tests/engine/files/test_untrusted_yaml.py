import os

import pytest
import yaml
from cases.mistakes import refused

from hoptrain.engine.files.untrusted_yaml import check_yaml, read_yaml

BOMB = "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefghi", "bcdefghij", strict=True))
VALUES, LEVELS = ("20,000", "more values"), ("100", "nests more levels")
REFUSED = {
    "aliases": ("a: &a [1, 2]\n" + BOMB, *VALUES),
    "merges": ("a: &a {x: 1}\n" + BOMB.replace("[", "{<<: [").replace("]", "]}"), *VALUES),
    "many values": ("[" + "1, " * 30_000 + "1]", *VALUES),
    "brackets": ("[" * 20_000, *LEVELS),
    "mappings": ("{a: " * 20_000, *LEVELS),
    "blocks": ("- " * 20_000 + "x", *LEVELS),
    "an alias within itself": ("a: &a [1, *a]", "*a", "within value repeats"),
}


@pytest.mark.parametrize(("text", "value", "rule"), REFUSED.values(), ids=REFUSED.keys())
def test_large_texts_are_refused(text, value, rule):
    with refused(value, rule, error=yaml.MarkedYAMLError, below="line "):
        check_yaml(text)


def test_other_texts_are_refused_by_yaml():
    with pytest.raises(yaml.parser.ParserError):
        check_yaml("a: [")


@pytest.mark.parametrize("text", ["", "a", "a: &a [1, 2]\nb: [*a, *a]\nc: {<<: {x: 1}}", "a: &a 1\nb: *a", "[" * 90 + "]" * 90])
def test_others_are_read(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    assert read_yaml(tmp_path / "x.yaml") == yaml.safe_load(text)


def test_files_that_are_none(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "large").write_text("a" * 100)
    monkeypatch.setattr("hoptrain.engine.files.untrusted_yaml.MOST_BYTES", 10)
    with refused("file", "no regular", error=OSError):
        read_yaml(tmp_path / "fifo")
    with pytest.raises(UnicodeDecodeError):
        read_yaml(tmp_path / "bytes")
    with refused("0 MiB", "larger", error=ValueError):
        read_yaml(tmp_path / "large")
