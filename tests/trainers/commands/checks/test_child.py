from hoptrain.trainers.commands.checks import child


def test_child_answers():
    assert child.ask_child("import json, os; print('loading'); print(json.dumps({'a': os.environ['MARK']}))", MARK="b") == {"a": "b"}


def test_child_fails():
    assert child.ask_child("import no_such_module_at_all") == {"error": "ModuleNotFoundError: No module named 'no_such_module_at_all'"}
    assert child.ask_child("import sys; sys.exit(3)") == {"error": "exit code 3"}


def test_child_crashes():
    assert child.ask_child("import os, signal; os.kill(os.getpid(), signal.SIGABRT)") == {"error": "crashed with SIGABRT"}


def test_child_hangs(monkeypatch):
    monkeypatch.setattr(child, "LOAD_SECONDS", 0.2)
    assert child.ask_child("import signal; signal.pause()") == {"error": "no answer within 0.2 s"}
