"""What to do about each alert, docs/reference/runbooks.md, where alerts lead to."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from posixpath import normpath
from typing import Any, Final

from markupsafe import Markup

from acktrail_dashboard.web.web_page import Visit, WebPage

_FILE: Final = "runbooks.md"
_FOLDER: Final = "docs/reference"


def _runbooks(_: Visit) -> dict[str, Any]:
    return {"runbooks": _sections()}


@cache
def _sections() -> tuple[tuple[str, Markup], ...]:
    """The alert and the text of each section, in the order of the alert rules, without comments."""
    _, *sections = re.split(r"^## ", re.sub(r"<!--.*?-->\n", "", _document()), flags=re.MULTILINE)
    return tuple((alert, _html(text)) for alert, text in (section.split("\n", 1) for section in sections))


def _document() -> str:
    """As an installed wheel carries it, or of a checkout."""
    carried = files("acktrail_dashboard").joinpath(_FILE)
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    return Path(__file__).parents[4].joinpath(_FOLDER, _FILE).read_text(encoding="utf-8")


def _html(text: str) -> Markup:
    """Markdown as HTML; HTML within it is text. Documents that the dashboard does not have are named, no links."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False})
    tokens = markdown.parse(text)
    targets: list[str] = []
    for token in (child for each in tokens for child in each.children or ()):
        if token.type == "link_open":
            targets.append(str(token.attrGet("href")))
        if token.type in {"link_open", "link_close"} and not targets[-1].startswith("#"):
            token.content = "" if token.type == "link_open" else f" ({normpath(f'{_FOLDER}/{targets[-1]}')})"
            token.type, token.nesting = "text", 0
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704  # of escaped parts


PAGES: Final = (WebPage(path="runbooks", title="Runbooks", template="runbooks.html", context=_runbooks),)
