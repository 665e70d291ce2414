"""``make gpu`` runs valid commands, each with a time limit and a log, and continues after a part that fails."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from cases.mistakes import exits

from hoptrain.benchmarks.device import first_run
from hoptrain.benchmarks.device.first_run import PARTS, Part
from hoptrain.kernels.cuda import KERNELS
from hoptrain.trainers.commands import bench

ROOT = Path(__file__).parents[3]
HOPTRAIN = [sys.executable, "-m", "hoptrain.trainers.cli"]


SLOW = """
import signal
print('waiting', flush=True)
try:
    signal.pause()
except KeyboardInterrupt:
    print('tidied up')
"""


def script(code, **options):
    return Part(question=f"what does {code[:10]} do?", command=(sys.executable, "-c", code), **options)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Return a function that runs parts of ``make gpu`` as if there were a GPU.

    The function returns the exit code and the lines of the summary.
    """
    monkeypatch.setattr(first_run, "reason_against", lambda: None)

    def run(parts, *arguments):
        code = first_run.main([*arguments, "--out", str(tmp_path)], parts)
        return code, capsys.readouterr().out.rpartition("\n\n")[2].splitlines()

    return run


def test_each_part_runs_whatever_became_of_those_before(run, tmp_path):
    parts = {
        "bad": script("print('before'); raise SystemExit(3)"),
        "slow": script(SLOW, seconds=3),
        "lost": Part(question="is there such a program?", command=("/no/such/program",)),
        "lacking": script("print('never')", tool="no-such-tool"),
        "good": script("import os; print('marked', os.environ['MARK'])", environment={"MARK": "x"}),
    }
    code, lines = run(parts)
    assert code == 1
    assert [line.split(None, 1)[0] for line in lines] == list(parts)
    ends = [
        "exit code 3",
        "too slow: ended after 3 s",
        "did not start: No such file or directory",
        "not run: no no-such-tool here",
        "exit code 0",
    ]
    for line, name, end in zip(lines, parts, ends, strict=True):
        assert line.split(None, 1)[1].split("  ")[0] == end
        assert line.endswith(str(tmp_path / f"{name}.log"))
    logs = {name: (tmp_path / f"{name}.log").read_text() for name in parts}
    for name, words in {"bad": "before", "slow": "tidied up", "lacking": "no-such-tool is not on the PATH", "good": "marked x"}.items():
        assert words in logs[name].splitlines()
    assert "never" not in logs["lacking"].splitlines()


def test_all_is_well_if_each_part_that_was_run_ended_well(run):
    parts = {"good": script("print(1)"), "lacking": script("print(2)", tool="no-such-tool"), "bad": script("raise SystemExit(1)")}
    assert run(parts, "good", "lacking")[0] == 0
    assert run(parts, "good", "bad")[0] == 1


def test_parts_are_chosen_by_name(run, tmp_path, capsys):
    parts = {name: script(f"print('{name}')") for name in "abc"}
    code, lines = run(parts, "c", "a")
    assert (code, [line[0] for line in lines]) == (0, ["c", "a"])
    assert not (tmp_path / "b.log").exists()
    with exits(2):
        run(parts, "d")
    assert "unknown part 'd': choose among a, b, c" in capsys.readouterr().err


MEETING = """
import pathlib, sys, time
own, others = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
own.touch()
deadline = time.monotonic() + 20
while not all(other.exists() for other in others):
    if time.monotonic() > deadline:
        sys.exit('alone')
    time.sleep(0.01)
"""


def test_neighbours_run_beside_one_another_and_others_alone(run, tmp_path):
    def waiting(name, *others, **options):
        files = [str(tmp_path / other) for other in (name, *others)]
        return Part(question="?", command=(sys.executable, "-c", MEETING, *files), **options)

    parts = {
        "a": waiting("a", "b", beside=True),
        "b": waiting("b", "a", beside=True),
        "c": script(f"import os, sys; sys.exit(os.path.exists({str(tmp_path / 'd')!r}))"),
        "d": waiting("d", "a", "b"),
    }
    code, lines = run(parts)
    assert (code, [line[0] for line in lines]) == (0, ["a", "b", "c", "d"])


def test_the_sanitizers_run_beside_one_another_and_timings_alone():
    names = list(PARTS)
    beside = [name for name in names if PARTS[name].beside]
    assert beside == ["memcheck", "racecheck", "synccheck", "initcheck"]
    assert names[names.index("memcheck") :][:4] == beside


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (16, 13)])
def test_tests_take_most_of_the_cores(cores, processes):
    assert first_run.num_processes(cores) == processes


def test_what_a_gpu_gave_is_kept_by_its_name(run, tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(first_run, "RESULTS", kept)
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps({"machine": {"gpus": ["NVIDIA H200"]}, "records": [name]}))
    run({"good": script("print(1)", record="of-good"), "bad": script("raise SystemExit(1)", record="of-bad")})
    assert [path.name for path in kept.iterdir()] == ["nvidia-h200_of-good.json"]
    assert json.loads((kept / "nvidia-h200_of-good.json").read_text())["records"] == ["good"]


def test_a_dry_run_prints_each_command_with_its_limit_and_runs_none(tmp_path, capsys):
    assert first_run.main(["--dry-run", "--out", str(tmp_path / "out")]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line and not line.startswith("#")]
    assert len(commands) == len(PARTS)
    for command, part in zip(commands, PARTS.values(), strict=True):
        assert command[:7] == ["timeout", "-s", "INT", "-k", str(first_run._GRACE), f"{part.seconds:g}", "env"]
        assert command[-len(part.command) :] == first_run.command_of(part, tmp_path / "out")
    assert not any("{out}" in word for command in commands for word in command)
    assert not (tmp_path / "out").exists()


def test_no_part_takes_ten_minutes():
    assert all(part.seconds + first_run._GRACE < 600 for part in PARTS.values())


def test_the_parts_come_in_the_order_in_which_they_matter():
    assert list(PARTS)[:2] == ["doctor", "equality"]


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if "bench" in part.command])
def test_benchmarks_take_these_options(name):
    words = list(PARTS[name].command)
    benchmark, *options = words[words.index("bench") + 1 :]
    module = getattr(__import__(f"hoptrain.benchmarks.{benchmark}").benchmarks, benchmark)
    assert bench.option_parser(benchmark, "?", module).parse_args(options).out.name == name


def test_fit_takes_these_options(tmp_path):
    command = [*first_run.command_of(PARTS["fit"], tmp_path), "--print_config"]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert child.returncode == 0, child.stderr
    assert "sampler_device: cuda" in child.stdout


def test_what_the_parts_name_is_there():
    assert set(first_run._COUNTED) <= KERNELS.keys()
    named = [word for part in PARTS.values() for word in part.command if word.startswith("tests/")]
    assert len(named) == 11
    assert all((ROOT / word).exists() for word in named)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}, "make gpu: no CUDA device can be used: "),
        ({"NUMBA_ENABLE_CUDASIM": "1"}, "make gpu: CUDA is simulated here: unset NUMBA_ENABLE_CUDASIM\n"),
    ],
)
def test_without_a_device_one_line_says_why(tmp_path, environment, reason):
    command = [sys.executable, "-m", "hoptrain.benchmarks.device.first_run", "--out", str(tmp_path / "out")]
    child = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=100)
    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr.startswith(reason)
    assert child.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_make_passes_parts_and_folder():
    command = ["make", "--no-print-directory", "-n", "gpu", "PARTS=doctor fit", "OUT=here"]  # in case make runs this test
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert child.stdout.rstrip().endswith(" -m hoptrain.benchmarks.device.first_run --out here doctor fit")
