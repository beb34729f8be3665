"""Print what the changelog says about a release, for the page of the release.

    $ .venv/bin/python tools/release_notes.py v0.1.0

The tag, the version in pyproject.toml and the newest heading of CHANGELOG.md (`## 0.1.0 (2026-12-01)`) must agree, so
that no tag publishes another version than it names.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HEADING = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_RELEASE = re.compile(r"(?P<version>\S+) \((?P<date>\d{4}-\d{2}-\d{2})\)")


class NotReady(Exception):
    """The release cannot be made; the text says what to change."""


def notes(tag: str, version: str, changelog: str) -> str:
    """The newest section of `changelog`, without its heading. Raises NotReady where `tag`, `version` and heading do not
    agree, the heading has no date, or the section says nothing."""
    if tag != f"v{version}":
        raise NotReady(f"the tag is {tag}, the version in pyproject.toml is {version}: the tag must be v{version}")
    headings = list(_HEADING.finditer(changelog))
    title = headings[0]["title"] if headings else "nothing"
    release = _RELEASE.fullmatch(title)
    if release is None or release["version"] != version:
        raise NotReady(
            f"CHANGELOG.md begins with '{title}': its newest heading must be '## {version} (YEAR-MONTH-DAY)'"
        )
    try:
        dt.date.fromisoformat(release["date"])
    except ValueError as error:
        raise NotReady(f"CHANGELOG.md has no date for {version}: {error}") from error
    end = headings[1].start() if len(headings) > 1 else len(changelog)
    text = changelog[headings[0].end() : end].strip()
    if not text:
        raise NotReady(f"CHANGELOG.md says nothing about {version}")
    return text


def main(tag: str) -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    try:
        print(notes(tag, version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
