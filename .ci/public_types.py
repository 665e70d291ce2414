"""Whether each public name has a type that every type checker reads alike: pyright on what a user installs (`make types`).

Public are the names of the packages that users import from, the attributes and methods of these classes, and their base classes. Rooms below
are for those who work on hoptrain: mypy checks them. It asks `pyright --verifytypes`, from a folder that holds the package as a wheel would.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOORS = ("hoptrain", "hoptrain.engine", "hoptrain.samplers", "hoptrain.trainers")
"""Packages whose names are meant for users. `hoptrain.pyg` and `hoptrain.dgl` have classes of PyG and DGL as bases, which have no types themselves."""


def report_of(folder: Path) -> list[dict]:
    """Pyright's symbols of the package, which `folder` gets as a copy, without links."""
    shutil.copytree(ROOT / "hoptrain", folder / "site" / "hoptrain", ignore=shutil.ignore_patterns("__pycache__", "*.yaml"))
    away = folder / "away"  # pyright takes no package from the folder where it runs
    away.mkdir()
    found = {  # it asks the first `python` of PATH where packages lie
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "pyright", "--verifytypes", "hoptrain", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, cwd=away, env=os.environ | found, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"pyright gave no report: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)["typeCompleteness"]["symbols"]


def main() -> int:
    """Print what lacks a type, by file and line, and how much has one."""
    with tempfile.TemporaryDirectory() as folder:
        symbols = report_of(Path(folder))
        names = [each for each in symbols if each["name"].rpartition(".")[0] in DOORS and each["isExported"]]
        lacking = [each for each in names if not each["isTypeKnown"] or each["isTypeAmbiguous"]]
        for each in symbols if lacking else ():
            for found in each["diagnostics"]:
                if found["severity"] == "error" and "partially unknown" not in found["message"]:
                    line = found.get("range", {}).get("start", {}).get("line", -1) + 1
                    print(f"{found['file'].removeprefix(f'{folder}/site/')}:{line}: {each['name']}: {found['message'].splitlines()[0]}")
        print(f"{len(names) - len(lacking)} of {len(names)} public names have a type that is known: {len(lacking)} have not")
        for each in lacking:
            print(f"  {each['name']}")
    return bool(lacking)


if __name__ == "__main__":
    sys.exit(main())
