"""Configuration files, selected by name."""

import pytest
from cases.mistakes import refused

from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.configs import FOLDER, known, with_paths

QUICKSTART = str(FOLDER / "quickstart.yaml")


def test_a_name_becomes_a_path_behind_config_only(tmp_path, monkeypatch):
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


def test_the_list_has_a_line_for_each(capsys):
    assert main(["configs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(known())]] == list(known())
    assert "trains in seconds" in next(line for line in lines if line.startswith("quickstart"))


@pytest.mark.parametrize(("name", "epochs", "least"), [("cora_asgcn", 10, 0.35), ("cora_mvs", 30, 0.5)])
def test_settings_of_papers_train(data_root, tmp_path, monkeypatch, capsys, name, epochs, least):
    """Trains for fewer epochs than the configuration has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPTRAIN_DATA", str(data_root))
    assert main(["fit", "--config", name, "--trainer.max_epochs", str(epochs), "--trainer.enable_progress_bar", "false"]) == 0
    assert float(capsys.readouterr().out.splitlines()[-1].removeprefix("test accuracy ")) > least
