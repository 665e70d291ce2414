"""The help of a command shows examples and common options; --help-all has every option; without a command the commands are listed."""

import pytest
from cases.mistakes import exits

from hoptrain.trainers.cli import main
from hoptrain.trainers.commands.short_help import COMMON


@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_longer_than_the_terminal_is_wide(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    long = [line for line in help_of(capsys, "fit", "--help").splitlines() if len(line) > width]
    assert all(line.startswith("  --") for line in long), long  # the names of an option stay on one line


def help_of(capsys, *arguments):
    with exits(0):
        main(list(arguments))
    return capsys.readouterr().out


def test_examples_come_first_and_what_is_rare_is_left_out(capsys):
    text = help_of(capsys, "fit", "--help")
    lines = text.splitlines()
    assert lines[0] == "usage: hoptrain fit --config NAME [--OPTION VALUE ...]"
    assert sum(line.startswith("  hoptrain fit --config") for line in lines[:12]) == 3
    shown = {line.split()[0].rstrip(",") for line in lines if line.startswith("  --")}
    assert {f"--{group}.{option}" for group, options in COMMON.items() for option in options.split()} <= shown
    assert shown >= {"--data.dataset", "--data.worker_options.prefetch_factor", "--model.arch", "--task", "--timeline", "--ckpt_path"}
    assert not {"--trainer.barebones", "--trainer.callbacks.help", "--weights_only", "--print_config"} & shown
    assert "known subclasses" not in text
    assert len(lines) < 260


def test_help_all_has_every_option(capsys):
    text = help_of(capsys, "fit", "--help-all")
    assert text.splitlines()[0] == "usage: hoptrain fit --config NAME [--OPTION VALUE ...]"
    for option in (
        "--trainer.barebones",
        "--weights_only",
        "--print_config",
        "--checkpoint.filename",
        "--data.worker_options.prefetch_factor",
    ):
        assert f"\n  {option} " in text


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_other_commands(command, capsys):
    text = help_of(capsys, command, "--help")
    assert f"  hoptrain {command} --config" in text
    assert "--untrained" in text


@pytest.mark.parametrize(("command", "names"), [("bench", ("accuracy", "loader")), ("data", ("list", "import"))])
def test_a_command_that_needs_a_name_lists_them(command, names, capsys):
    assert main([command]) == 2
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in names)


def test_no_command(capsys):
    assert main([]) == 2
    out = capsys.readouterr().out
    assert all(f"\n    {name} " in out for name in ("fit", "validate", "test", "predict", "configs", "data", "doctor", "bench"))
