"""What acktrail tells people to install."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from drivers.own_process import printed

from acktrail.package_data import install_hint

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"pip install(?: -\S+)* ['\"]?acktrail(?!(?:\[[^]]*\])? @ |[\w.-])")
"""Installing a name from an index."""


def hint(folder: Path, came_from: dict[str, Any] | str | None) -> str:
    """What is said where acktrail was installed from there, as pip notes it."""
    own = folder / f"acktrail-{version('acktrail')}.dist-info"
    own.mkdir()
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acktrail\nVersion: {version('acktrail')}\n")
    if came_from is not None:
        text = came_from if isinstance(came_from, str) else json.dumps(came_from)
        (own / "direct_url.json").write_text(text)
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from acktrail.package_data import install_hint as hint; "
    return printed(sys.executable, "-c", f"{code}print(hint('kafka,tables'))", cwd=ROOT).strip()


def test_the_hint_names_the_wheel_that_is_installed(tmp_path: Path) -> None:
    """Who registers the name on an index waits for people who follow a hint: it names the wheel, or the checkout, that
    the installed acktrail came from, quoted for a shell."""
    wheel = tmp_path / "it's a folder" / "acktrail-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()

    found = hint(tmp_path, {"url": wheel.as_uri(), "archive_info": {}})

    assert shlex.split(found) == ["pip", "install", f"{wheel}[kafka,tables]"]


@pytest.mark.parametrize(
    ("came_from", "words"),
    [
        ({"url": "https://files.example/a.whl"}, ["acktrail[kafka,tables] @ https://files.example/a.whl"]),
        ({"url": "https://user:secret@files.example/a.whl"}, None),
        ({"url": "file:///gone/acktrail-0.1.0-py3-none-any.whl"}, None),
        ({"url": "http://files.example/a.whl"}, None),
        ({"url": 7}, None),
        (["url"], None),
        ("[" * 10_000, None),
        ("{", None),
        (None, None),
    ],
)
def test_no_hint_names_an_index(came_from: Any, words: list[str] | None, tmp_path: Path) -> None:
    """Where it is not known any more, the file's name is said, and no secret of an address."""
    found = hint(tmp_path, came_from)

    assert NAMED.search(found) is None
    assert "secret" not in found
    name = f"./acktrail-{version('acktrail')}-py3-none-any.whl[kafka,tables]"
    expected = ["pip", "install", *(words or [f"{name},", "where", "the", "wheel", "lies", "that", "was", "installed"])]
    assert shlex.split(found) == expected


def test_a_checkout_names_itself() -> None:
    """As here."""
    assert shlex.split(install_hint("spark"))[-1] == f"{ROOT}[spark]"


def test_no_page_and_no_unit_installs_the_name_from_an_index() -> None:
    """Neither documentation nor deployment, examples or sources tell anybody to."""
    folders = ("docs", "deploy", "examples", "acktrail", "connectors", "dags", "dashboards", "expectations", "extras")
    files = [ROOT / "README.md", *(file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file())]
    texts = {file: file.read_text("utf-8", "ignore") for file in files if "__pycache__" not in file.parts}

    assert [str(file.relative_to(ROOT)) for file, text in texts.items() if NAMED.search(text)] == []
