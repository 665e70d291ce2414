"""The notebooks run from the first cell to the last and print their stored outputs, in Jupyter's kernel if it is installed."""

import ast
import io
import json
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells_of(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(cell):
    """Return the stored output of a cell as text."""
    parts = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in cell["outputs"]]
    return "".join("".join(part) for part in parts).strip()


def text_of(source, names):
    """Return what a cell prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return f"{printed.getvalue()}{'' if value is None else repr(value)}".strip()


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # Lightning's warnings about a small run
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_prints_what_it_shows(path, tmp_path, monkeypatch):
    """A notebook runs and prints its stored outputs.

    Cells that plot are skipped without matplotlib; outputs of cells tagged ``varies`` depend on the machine.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": "__main__"}
    for cell in cells_of(path):
        source = "".join(cell["source"])
        if "plt." in source and not find_spec("matplotlib"):
            continue
        text = text_of(source, names)
        if "varies" not in cell["metadata"].get("tags", ()) and "plt." not in source:
            assert text == shown(cell), source


def test_they_were_run_from_top_to_bottom_and_have_pictures():
    for path in NOTEBOOKS:
        cells = cells_of(path)
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
        assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])
        assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for cell in cells for output in cell["outputs"])
    assert len(NOTEBOOKS) == 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_in_jupyter(path, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()  # raises the exception of a cell
    assert any("wait: " in shown(cell) for cell in notebook.cells if cell.cell_type == "code") or "ProgressBar()" not in path.read_text()
