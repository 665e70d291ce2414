"""Whether each public name has a type that every type checker reads alike: pyright on what a user installs (`make types`).

Public are the names of the packages that users import from, the attributes and methods of these classes, and their base classes. Other
subpackages are for those who work on hoptrain: mypy checks them. It asks `pyright --verifytypes`, from a folder that holds the package as a wheel would.
"""

import json
import os
import re
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


def causes(symbols: list[dict], names: list[str]) -> list[dict]:
    """What is said about these names, and about the classes that it names in turn, where a type is missing."""
    unknown: dict[str, list[dict]] = {}
    for each in symbols:
        if not each["isTypeKnown"] or each["isTypeAmbiguous"]:
            for part in each["name"].split(".")[-2:]:  # a class and its members
                unknown.setdefault(part, []).extend(each["diagnostics"])
    found, asked = [], [name.rpartition(".")[2] for name in names]
    for name in asked:
        for said in unknown.get(name, ()):
            if said not in found:
                found.append(said)
                asked += [word for word in dict.fromkeys(re.findall(r"\w+", said["message"])) if word in unknown and word not in asked]
    return found


def main() -> int:
    """Print what lacks a type, by file and line, and how much has one."""
    with tempfile.TemporaryDirectory() as folder:
        symbols = report_of(Path(folder))
        names = [each for each in symbols if each["name"].rpartition(".")[0] in DOORS and each["isExported"]]
        lacking = [each for each in names if not each["isTypeKnown"] or each["isTypeAmbiguous"]]
        for found in causes(symbols, [each["name"] for each in lacking]):
            line = found.get("range", {}).get("start", {}).get("line", -1) + 1
            print(f"{found['file'].removeprefix(f'{folder}/site/')}:{line}: {' '.join(found['message'].split())}")
        print(f"{len(names) - len(lacking)} of {len(names)} public names have a type that is known: {len(lacking)} have not")
        for each in lacking:
            print(f"  {each['name']}")
    return bool(lacking)


if __name__ == "__main__":
    sys.exit(main())
