"""What to do about each alert: docs/runbooks.md, where alerts lead to. No network is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from acktrail_dashboard.web.web_page import Visit, WebPage

_FILE: Final = "runbooks.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """The section of one alert. `anchor`: its name in addresses, the alert's in lower case."""

    alert: str
    anchor: str
    text: Markup


def _runbooks(_: Visit) -> dict[str, Any]:
    return {"runbooks": runbooks()}


@cache
def runbooks() -> tuple[Runbook, ...]:
    """All of them, in the order of the alert rules."""
    _, *sections = re.split(r"^## ", _document(), flags=re.MULTILINE)
    parts = (section.split("\n", 1) for section in sections)
    return tuple(Runbook(alert=alert, anchor=alert.lower(), text=_html(text)) for alert, text in parts)


def _document() -> str:
    """As an installed wheel carries it, or of a checkout."""
    carried = files("acktrail_dashboard").joinpath(_FILE)
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    return Path(__file__).parents[4].joinpath("docs", _FILE).read_text(encoding="utf-8")


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
            token.content = "" if token.type == "link_open" else f" (docs/{targets[-1]})"
            token.type, token.nesting = "text", 0
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704  # of escaped parts


PAGE: Final = WebPage(path="runbooks", title="Runbooks", template="runbooks.html", context=_runbooks)
