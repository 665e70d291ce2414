"""A newcomer's environment: hoptrain installed from its wheel, without the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]


def build_wheel(folder):
    """Build the wheel from a copy, since setuptools leaves temporary files next to the sources."""
    source, out = folder / "source", folder / "wheel"
    source.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--null", "--files-from=-", "-cf", source / "tree.tar"], cwd=ROOT, input=tracked, check=True)
    subprocess.run(["tar", "-xf", "tree.tar"], cwd=source, check=True)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", out, source], check=True)
    return next(out.glob("*.whl"))


def new_environment(wheel, folder):
    """Install the wheel next to this environment's dependencies; return site-packages and the environment variables."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    site = folder / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    (site / "needed.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    command = folder / "env" / "bin" / "hoptrain"
    command.write_text(f"#!{folder}/env/bin/python\nimport sys\n\nfrom hoptrain.trainers.cli import main\n\nsys.exit(main())\n")
    command.chmod(0o755)
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "NUMBA_ENABLE_CUDASIM"))}
    return site, variables | {"HOPTRAIN_CACHE": str(folder / "cache"), "PATH": f"{command.parent}:{os.environ['PATH']}"}
