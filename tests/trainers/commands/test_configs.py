"""Configuration files, selected by name."""

import re

import pytest
import yaml
from cases.mistakes import refused

from hoptrain.engine.datasets import npz
from hoptrain.engine.datasets.load import load_any
from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.configs import FOLDER, known, with_paths

QUICKSTART = str(FOLDER / "quickstart.yaml")


def test_a_name_becomes_a_path_after_config_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert with_paths(["fit", "--config", "quickstart", "--data.dataset", "quickstart"]) == [
        "fit", "--config", QUICKSTART, "--data.dataset", "quickstart",
    ]  # fmt: skip
    assert with_paths(["fit", "--config=quickstart", "-c", "quickstart"]) == ["fit", f"--config={QUICKSTART}", "-c", QUICKSTART]
    assert with_paths(["fit", "--config"]) == ["fit", "--config"]
    (tmp_path / "quickstart").mkdir()  # a run's folder may have this name
    assert with_paths(["-c", "quickstart"]) == ["-c", QUICKSTART]
    with refused("quickstrat", "--config no file configuration name", "mean quickstart?"):
        with_paths(["fit", "--config", "quickstrat"])


def test_a_file_of_that_name_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text("task: nodes\n")
    assert with_paths(["fit", "--config", "quickstart"]) == ["fit", "--config", "quickstart"]


@pytest.fixture
def listed(tmp_path, monkeypatch, capsys):
    """Return a function that lists the configurations on a machine with only the given files; it returns the cells of each configuration."""
    monkeypatch.setenv("HOPTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOPTRAIN_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")

    def run(*files):
        for file in files:
            (tmp_path / file).touch()
        assert main(["configs"]) == 0
        header, *lines = capsys.readouterr().out.splitlines()[: len(known()) + 1]
        assert header.split() == ["name", "task", "size", "minutes", "files", "data", "about"]
        assert max(map(len, lines)) <= 120
        return {line.split()[0]: re.split(r" {2,}", line) for line in lines}

    return run


def test_the_list_has_task_data_and_size_of_each(listed):
    rows = listed()
    assert list(rows) == list(known())
    assert rows["quickstart"][1:3] == ["nodes", "1,797 nodes"]
    assert rows["wikipedia_tgn"][1:3] == ["temporal_links", "157,474 events"]
    assert all(re.fullmatch(r"[\d,]+ (nodes|images|graphs|triples|events)", row[2]) for row in rows.values() if "yours" not in row)
    assert rows["quickstart"][-1].startswith("Real handwritten")


def test_the_list_marks_what_cannot_be_downloaded(listed):
    def of(rows, state):
        return {name for name, row in rows.items() if state in row}

    rows = listed()
    assert of(rows, "yours") == {"own_data", "own_hetero", "own_hetero_links", "own_links"}
    assert of(rows, "ready") == {"quickstart", "diabetes_sage", "digits_vig", "digits_vig_pipeline", "synthetic_products"}
    assert {"cora_gat", "physics_gcn", "mutag_gin", "fb15k237_rgcn", "wikipedia_tgn"} < of(rows, "download")
    missing = of(rows, "missing")
    assert {"acm_han", "gowalla_lightgcn", "wordnet_edges", "cifar10_vig"} < missing
    assert all("Needs " in known()[name].read_text() for name in missing)
    rows = listed("hetero_acm.npz", "cora.npz", "tu_mutag.npz", "cifar-10-python.tar.gz")
    assert {"acm_han", "acm_links", "cora_gat", "mutag_gin", "cifar10_vig"} < of(rows, "ready")


@pytest.mark.parametrize("name", ["own_data", "own_hetero", "own_hetero_links", "own_links"])
def test_configurations_for_own_data_end_by_themselves(name):
    """They standardise features, such as a Unix time, and stop if the validation does not improve."""
    config = yaml.safe_load(known()[name].read_text())
    assert config["model"]["standardize_features"]
    assert [callback["class_path"].rpartition(".")[2] for callback in config["trainer"]["callbacks"]] == ["EarlyStopping"]
    assert config["trainer"]["max_epochs"] <= 100


@pytest.mark.parametrize("name", sorted(npz.NO_DOWNLOAD))
def test_a_file_that_is_missing_is_named_at_once(name, tmp_path, monkeypatch):
    monkeypatch.delenv("HOPTRAIN_DATA", raising=False)
    with refused(name, "no root was given $HOPTRAIN_DATA is not set", "hoptrain cannot download it"):
        load_any(name)


@pytest.mark.parametrize("arguments", [["quickstart"], ["fit", "quickstart"]], ids=" ".join)
def test_a_configuration_without_its_option_is_recognised(arguments, capsys):
    assert main(arguments) == 2
    assert re.fullmatch(r"hoptrain: .*quickstart.* is a configuration.*did you mean .*--config quickstart\?\n", capsys.readouterr().err)


@pytest.mark.parametrize(("name", "epochs", "least"), [("cora_asgcn", 10, 0.35), ("cora_mvs", 30, 0.5)])
def test_settings_of_papers_train(data_root, tmp_path, monkeypatch, capsys, name, epochs, least):
    """The configurations of two papers reach the given accuracy after fewer epochs than they have."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPTRAIN_DATA", str(data_root))
    assert main(["fit", "--config", name, "--trainer.max_epochs", str(epochs), "--trainer.enable_progress_bar", "false"]) == 0
    assert float(re.search(r"test accuracy (.+)", capsys.readouterr().out)[1]) > least
