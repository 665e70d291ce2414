"""Each message with a reference has an explanation, and each explanation a message."""

import re
from pathlib import Path

import pytest

from hoptrain.engine import InputError
from hoptrain.engine.errors import EXPLAINED
from hoptrain.engine.queue.preflight import check_memory
from hoptrain.trainers.cli import main

ROOT = Path(__file__).parents[3]
SOURCES = [path for floor in ("engine", "samplers", "trainers", "hoptrain/pyg", "hoptrain/dgl") for path in (ROOT / floor).rglob("*.py")]


def test_each_entry_is_named_by_a_message_and_each_message_has_an_entry():
    named = {name for path in SOURCES for name in re.findall(r"\bexplain_hint\(\s*[\"'](\w+)[\"']\s*\)", path.read_text())}
    assert named == set(EXPLAINED)


def test_the_address_of_a_message_is_a_command_that_works(capsys):
    with pytest.raises(InputError) as caught:
        check_memory(2, 4, 1 << 50)
    address = re.search(r" \[hoptrain (.*)\]$", str(caught.value))[1]
    assert main(address.split()) == 0
    said = " ".join(capsys.readouterr().out.split())
    cause, cure = (text.replace("`", "") for text in EXPLAINED["memory"])
    assert said == f"Cause: {cause} Cure: {cure}"


def test_without_a_name_all_are_listed(capsys):
    assert main(["explain"]) == 0
    assert capsys.readouterr().out.split() == list(EXPLAINED)


def test_another_name_is_answered_with_the_nearest(capsys):
    assert main(["explain", "memroy"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("did you mean memory?")
