"""HTML as a value: text is escaped because it is text, markup is what this module built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Final

from acktrail.plain_tables import printable, printable_parts

_VOID: Final = frozenset({"meta", "br", "hr"})


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML that is safe to put into a page."""

    html: str


Child = str | Markup | None


def joined(children: Iterable[Child]) -> Markup:
    """Children one after the other; a string is text and gets escaped, its hidden characters shown, None is nothing."""
    return Markup("".join(_html(child) for child in children))


def element(tag: str, *children: Child, **attributes: str | int | None) -> Markup:
    """One element. Attribute names: a trailing underscore falls away, others become hyphens; None leaves one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(children).html}</{tag}>")


def name(text: str) -> Markup:
    """A name from a cluster: set apart from the direction of its surroundings, hidden characters shown as escapes."""
    parts = (element("span", part, class_="esc") if is_escape else part for part, is_escape in printable_parts(text))
    return element("bdi", *parts)


def code(text: str) -> Markup:
    """An identifier, which may break after its underscores."""
    first, *rest = printable(text).split("_")
    return element("code", first, *(joined(("_", Markup("<wbr>"), part)) for part in rest))


def _html(child: Child) -> str:
    if child is None:
        return ""
    return child.html if isinstance(child, Markup) else escape(printable(child))
