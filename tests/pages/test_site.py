"""The site's pages are right: examples run, commands parse, and statements that compare two runs hold."""

import csv
import re
import shlex
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cases.mistakes import exits

import hoptrain
from hoptrain import load_dataset
from hoptrain.trainers.cli import LIGHTNING, _parser, main
from hoptrain.trainers.commands.bench import option_parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    "index",
    "loaders",
    "reproducibility",
    "coming_from_lightning",
    "sampling",
    "larger_than_memory",
    "narrow_features",
    "several_gpus",
    "several_machines",
    "resume",
    "reference/protocols",
]
"""Pages whose examples have no test of their own."""


def examples(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


def commands(page):
    """Return the hoptrain commands of a page's shell examples, with placeholders filled in."""
    blocks = re.findall(r"```bash\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.startswith("hoptrain ")]


def mentions(page):
    """Return the complete hoptrain commands in a page's text."""
    text = re.sub(r"```.*?```", "", (DOCS / f"{page}.md").read_text(), flags=re.DOTALL)
    return [" ".join(line.split()) for line in re.findall(r"`(hoptrain\s[^`]+)`", text)]


LINES = {
    line
    for page in [*DOCS.glob("*.md"), DOCS / "../README.md"]
    for line in [*commands(page.with_suffix("")), *mentions(page.with_suffix(""))]
}
FITS = sorted(line for line in LINES if line.startswith("hoptrain fit --config") and "..." not in line)
OTHERS = sorted(line for line in LINES if not line.startswith("hoptrain fit") and "..." not in line and line != "hoptrain bench NAME")


@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.promise] if page == "loaders" else []) for page in PAGES])
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for example in examples(page):
        exec(example, names)
    shown = re.findall(r"```\n\n    (Data\(.*\))\n", (DOCS / f"{page}.md").read_text())
    assert [line for line in shown if line not in capsys.readouterr().out] == []
    assert examples(page)


def test_every_page_with_examples_is_run_by_a_test():
    elsewhere = {"training", "coming_from_pyg", "coming_from_dgl", "write_your_own_sampler", "your_own_data", "your_own_model"}
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert {page for page in pages if examples(page)} == elsewhere | set(PAGES)


@pytest.mark.parametrize("line", FITS, ids=str)
def test_commands_parse(line, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    with exits(0):
        main([*shlex.split(line)[1:], "--print_config"])
    assert "seed_everything" in capsys.readouterr().out


@pytest.mark.parametrize("line", OTHERS, ids=str)
def test_other_commands_are_understood(line):
    """The options of all other commands on the pages parse; the tests of each command check what it does."""
    name, *words = shlex.split(line)[1:]
    if name in LIGHTNING:
        assert all(re.fullmatch(r"--(config|ckpt_path|out|nodes|data\.dataset)", word) for word in words[::2])
    elif name == "bench":
        module = import_module(f"hoptrain.benchmarks.{words[0].replace('-', '_')}")
        assert words[1:] == [] or option_parser(words[0], "", module).parse_args(words[1:])
    elif any(word.startswith("-") for word in words):
        assert _parser().parse_args([name, *words]).run
    else:
        with exits(0):
            main([name, *words[:1], "--help"])


@pytest.mark.parametrize("word", ["CSVLogger", "Docker", "FAQ", "inductive", "licence", "reproducible"])
def test_a_search_finds_a_page(word):
    assert [page.name for page in DOCS.rglob("*.md") if word.lower() in page.read_text().lower()]


def test_the_site_has_a_page_for_each_public_name(monkeypatch):
    """Such a page has the options of base classes too, and every page the version and the licence."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    monkeypatch.syspath_prepend(DOCS)
    hooks = import_module("hooks")
    config = SimpleNamespace(nav=[{"Reference": []}], copyright="")
    hooks.on_config(config)
    assert config.copyright == f"hoptrain {hoptrain.__version__}, Apache-2.0 licence"
    pages = [name for group in config.nav[0]["Reference"] for entries in group.values() for entry in entries for name in entry]
    assert sorted(pages) == sorted(hoptrain._HOME)
    page = hooks.reference_page("NodeDataModule", "trainers")
    assert "## Options of SampledDataModule" in page
    assert "SampledDataModule.__init__" in page
    result = SimpleNamespace(file=SimpleNamespace(src_uri="results/x.md"), meta={})
    hooks.on_page_markdown("# Numbers", result)
    assert result.meta["search"]["boost"] < 1, "a search lists results last"


@pytest.mark.timeout(300)
def test_two_runs_differ_in_times_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (line for line in commands("reproducibility") if "default_root_dir" in line)
    for line in (first, second):
        assert main([*shlex.split(line)[1:], "--trainer.max_epochs=2"]) == 0
    one, other = (list(csv.DictReader(path.open())) for path in sorted(tmp_path.glob("*/version_0/metrics.csv")))
    are_times = re.compile(r"wait_%|Medges/s|time/.*|queue(_mean)?")
    assert any(row["val_loss"] for row in one)
    assert [{k: v for k, v in row.items() if not are_times.fullmatch(k)} for row in one] == [
        {k: v for k, v in row.items() if not are_times.fullmatch(k)} for row in other
    ]


@pytest.mark.timeout(300)
def test_a_run_resumes_as_on_the_page(tmp_path, monkeypatch):
    """In the page's example, the second command resumes in the first one's folder, and the third command starts a new run."""
    monkeypatch.chdir(tmp_path)
    for line in commands("resume"):
        assert main([*shlex.split(line)[1:], "--data.num_workers=0"]) == 0
    epochs = [torch.load(path, weights_only=True)["epoch"] for path in sorted(tmp_path.glob("runs/*/checkpoints/last.ckpt"))]
    assert epochs == [5, 1]


def test_a_run_predicts_on_another_graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", "quickstart", "--trainer.max_epochs=1", "--data.num_workers=0"]) == 0
    load_dataset("digits-knn").save("new_graph")
    (example,) = examples("training")
    exec(example, {"__name__": "page"})
    assert [line.split(",")[0] for line in (tmp_path / "new.csv").read_text().splitlines()[1:]] == ["3", "5"]
