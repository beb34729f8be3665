"""A tag publishes what it names: tag, version and changelog agree, and the workflow runs what is there."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from release_notes import NotReady, notes  # a program of the folder `tools`

ROOT = Path(__file__).parents[2]
PAGE = "# Changelog\n\nWhat users notice.\n\n## {}\n\nExport\n\n* One.\n\n## 0.1.0 (2026-12-01)\n\n* Older.\n"


def test_notes_are_the_newest_section() -> None:
    assert notes("v0.2.0", "0.2.0", PAGE.format("0.2.0 (2027-01-31)")) == "Export\n\n* One."


@pytest.mark.parametrize(
    ("tag", "heading", "reason"),
    [
        ("v0.3.0", "0.2.0 (2027-01-31)", "the tag must be v0.2.0"),
        ("0.2.0", "0.2.0 (2027-01-31)", "the tag must be v0.2.0"),
        ("v0.2.0", "Unreleased", "heading must be '## 0.2.0 (YEAR-MONTH-DAY)'"),
        ("v0.2.0", "0.2.0", "heading must be '## 0.2.0 (YEAR-MONTH-DAY)'"),
        ("v0.2.0", "0.2.0 (2027-02-31)", "no date for 0.2.0"),
    ],
)
def test_release_that_does_not_agree_is_refused(tag: str, heading: str, reason: str) -> None:
    with pytest.raises(NotReady) as refused:
        notes(tag, "0.2.0", PAGE.format(heading))
    assert reason in str(refused.value)


def test_release_without_a_word_is_refused() -> None:
    for page in ("", "# Changelog\n\n## 0.2.0 (2027-01-31)\n\n## 0.1.0 (2026-12-01)\n\n* Older.\n"):
        with pytest.raises(NotReady):
            notes("v0.2.0", "0.2.0", page)


def test_workflow_runs_what_the_checkout_has() -> None:
    """Its files exist, its extras have names, its Pythons are those of the classifiers, and only its last job, after an
    approval, may publish."""
    workflow: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    jobs = workflow["jobs"]
    lines = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])

    for file in re.findall(r"(?:tools/\w+\.py|\.ci/\w+)", lines):
        assert (ROOT / file).is_file()
    assert set(re.findall(r"\.whl\)\[(\w+)\]", lines)) <= set(project["optional-dependencies"])
    own = {
        of.removeprefix("Programming Language :: Python :: ") for of in project["classifiers"] if ":: Python ::" in of
    }
    assert set(jobs["install"]["strategy"]["matrix"]["python"]) == own
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert jobs["publish"]["environment"] == "release"
    assert (jobs["publish"]["needs"], jobs["install"]["needs"]) == ("install", "build")


def test_wheel_may_be_published() -> None:
    """No classifier keeps it from a package index."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [each for each in project["classifiers"] if each.startswith("Private ::")]
