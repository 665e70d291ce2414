"""Builds the sdist and the wheel of this checkout into build/dist, and looks at them as a user who installs them would (`make release`).

The version is `hoptrain.__version__`; the top heading of CHANGELOG.md and CITATION.cff have to name it. The wheel is built from the sdist. Then an
empty environment gets the wheel with what it asks for and no extra: every module is imported, and the quickstart trains. Nothing is published.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "build" / "dist"
LEAST_ACCURACY = 0.97  # of the quickstart, whose mean is 0.993

IMPORTS = """
import importlib, pkgutil, hoptrain
lacking, count = set(), 0
for module in pkgutil.walk_packages(hoptrain.__path__, "hoptrain.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
        count += 1
    except Exception as error:
        said = " ".join(str(error).split())
        assert "hoptrain[" in said, f"{module.name} cannot be imported, and does not say which extra it needs: {type(error).__name__}: {said}"
        lacking.add(module.name)
print(count, "modules can be imported without extras;", ", ".join(sorted(lacking)), "each name the extra they need")
"""


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """What a command wrote; if it fails, all of that and the end."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def stated_version(root: Path = ROOT) -> str:
    """The version, as all places name it.

    Raises:
        SystemExit: one names another.
    """
    found = {
        "hoptrain/__init__.py": r'^__version__ = "(.+)"$',
        "CHANGELOG.md": r"^## (\S+?),? ",  # the first heading
        "CITATION.cff": r"^version: (\S+)$",
    }
    versions = {name: re.search(rule, (root / name).read_text(), re.MULTILINE) for name, rule in found.items()}
    named = {name: match[1] if match else "none" for name, match in versions.items()}
    if len(set(named.values())) != 1:
        raise SystemExit(f"the versions differ: {', '.join(f'{name} has {version}' for name, version in named.items())}")
    return named["CHANGELOG.md"]


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, of the files that git tracks."""
    source = folder / "source"
    source.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--null", "--files-from=-", "-cf", folder / "tree.tar"], cwd=ROOT, input=tracked, check=True)
    run("tar", "-xf", folder / "tree.tar", cwd=source)
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, source)
    return next(DIST.glob("*.tar.gz")), next(DIST.glob("*.whl"))


def try_out(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment, import all of it, and train the quickstart."""
    run(sys.executable, "-m", "venv", folder / "env")
    python = folder / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt"]
    run(*install, "torch")  # first and exactly: a range asked for by another package would fetch the newest build
    run(*install, wheel)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOPTRAIN"))}
    environment["HOPTRAIN_CACHE"] = str(folder / "cache")
    print(run(python, "-c", IMPORTS, cwd=folder, env=environment), end="")
    said = run(folder / "env" / "bin" / "hoptrain", "fit", "--config", "quickstart", cwd=folder, env=environment).splitlines()[-1]
    accuracy = re.fullmatch(r"test accuracy ([\d.]+)", said)
    if accuracy is None or float(accuracy[1]) < LEAST_ACCURACY:
        raise SystemExit(f"the quickstart ended with {said!r}: at least {LEAST_ACCURACY} was expected")
    print(f"the quickstart: {said}")


def main() -> None:
    """All of it; the first thing that is wrong ends it."""
    version = stated_version()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        if not wheel.name.startswith(f"hoptrain-{version}-") or sdist.name != f"hoptrain-{version}.tar.gz":
            raise SystemExit(f"{sdist.name} and {wheel.name} were built: the version is {version}")
        print(run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel), end="")
        try_out(wheel, folder)
    print(f"{sdist.relative_to(ROOT)} and {wheel.relative_to(ROOT)} are ready")
    if "unreleased" in (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2].partition("\n")[0]:
        print("the top heading of CHANGELOG.md says 'unreleased': it gets the day before they are published")


if __name__ == "__main__":
    main()
