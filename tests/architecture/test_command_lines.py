"""Every command line of acktrail that a person may copy is one that there is: in documents, units, examples, messages,
help and pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from acktrail.cli.main import CommandGroup, app

ROOT: Final = Path(__file__).parents[2]
READ: Final = frozenset({".md", ".service", ".py", ".toml", ".html", ".yml", ".yaml", ".json", ".ipynb", ".sh", ""})
APART: Final = ("tests/", "CONTRIBUTING.md")
"""Tests name commands that are not there on purpose; the page for contributors adds one."""

_LINE: Final = re.compile(
    r"""(?<![\w-])(?<!from\ )acktrail        # not of acktrail-connect, the name of an image
    (?:\ --profile\ \S+)?
    ((?:\ +[a-z][a-z-]*)+)                  # words: commands, or a sentence about acktrail
    ((?:\\\n|[^`\n<"')(|;&])*)              # the rest of the line: arguments and options
    """,
    re.VERBOSE,
)
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])")


@cache
def words() -> frozenset[str]:
    """Of all commands and groups, on any level: a sentence that goes on with another word is no command line."""
    return frozenset(word for path in CommandGroup.targets() for word in path.split("."))


@cache
def root() -> Any:
    return typer.main.get_command(app)


def complaints(text: str) -> Iterator[str]:
    """A command line in `text` that names no command, or an option that its command does not have."""
    for found in _LINE.finditer(text):
        named = found[1].split()
        if named[0] not in words():
            continue
        command, path = root(), ["acktrail"]
        while named and hasattr(command, "get_command"):
            below = command.get_command(None, named[0])
            if below is None:
                break
            command, path = below, [*path, named.pop(0)]
        line = " ".join(found[0].split())
        if named and hasattr(command, "get_command"):
            yield f"{line}: {' '.join(path)} has no command {named[0]}"
            continue
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        yield from (f"{line}: no option {option}" for option in _OPTION.findall(found[2]) if option not in known)


def texts() -> Iterator[tuple[str, str]]:
    """Every file of the repository that may have a command line, and its text; a line of a document goes on in the
    next one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        file = ROOT / name
        if not name.startswith(APART) and file.suffix in READ and file.is_file():
            yield name, file.read_text("utf-8")


def test_every_command_line_names_a_command() -> None:
    """With its groups, and with options that it has."""
    wrong = [f"{name}: {complaint}" for name, text in texts() for complaint in complaints(text)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ExecStart=/opt/acktrail/bin/acktrail spark serve --port 1", "acktrail has no command spark"),
        ("see `acktrail run seve`", "acktrail run has no command seve"),
        ("`acktrail change`, and `acktrail record validate`", "acktrail record has no command validate"),
        ('hint="acktrail run history --sinse 1d"', "no option --sinse"),
        ("$ acktrail run export \\\n  --bootstrap 1", "no option --bootstrap"),
        ("acktrail connects to it; acktrail reads no record of your topics", None),
        ("acktrail run reconcile && acktrail --profile east run validate --all", None),
    ],
)
def test_a_line_that_is_wrong_is_named(text: str, complaint: str | None) -> None:
    found = list(complaints(text))
    assert [each.partition(": ")[2] for each in found] == ([] if complaint is None else [complaint])
