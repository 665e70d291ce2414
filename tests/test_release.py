"""The version is the same in all three files that state it."""

import importlib.util
from pathlib import Path

from cases.mistakes import refused

import hoptrain

SCRIPT = Path(__file__).parents[1] / ".ci" / "release.py"
SPEC = importlib.util.spec_from_file_location("release", SCRIPT)
RELEASE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(RELEASE)


def test_changelog_citation_and_package_state_one_version():
    assert RELEASE.stated_version() == hoptrain.__version__


def test_another_version_in_the_changelog_is_refused(tmp_path):
    (tmp_path / "hoptrain").mkdir()
    (tmp_path / "hoptrain" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.1.0, 2026-01-01\n")
    with refused("1.1.0", "versions differ CHANGELOG.md", error=SystemExit):
        RELEASE.stated_version(tmp_path)
