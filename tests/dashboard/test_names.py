"""Names from a cluster can be anything: what is shown is one harmless line."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from unicodedata import category

from hypothesis import given
from hypothesis import strategies as st

from acktrail.plain_tables import printable
from acktrail_dashboard.page_templates import page_templates

ANY_TEXT = st.text(alphabet=st.characters())
PAGE = page_templates().get_template("macros.html")
ELEMENT = page_templates().from_string("<p title='{{ text }}'>{{ text }}</p>")
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control, format (direction, zero width), surrogate, line end, paragraph end."""


def test_nothing_hidden_is_left() -> None:
    """Of all characters there are, none that is hidden comes through."""
    shown = printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert not {category(character) for character in set(shown)} & HIDDEN
    assert shown.encode().decode() == shown


@given(ANY_TEXT)
def test_showing_twice_is_showing_once(text: str) -> None:
    """What is shown has nothing left to show."""
    assert printable(printable(text)) == printable(text)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "M"])))
def test_plain_text_is_left_alone(text: str) -> None:
    """Letters, digits, marks and punctuation of every script stay as they are."""
    assert printable(text) == text


class Events(HTMLParser):
    """Start tags with attributes, and all text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Events:
    events = Events()
    events.feed(html)
    events.close()
    return events


@given(ANY_TEXT)
def test_text_never_becomes_markup(text: str) -> None:
    """Any text, as content or attribute, is read back by a parser as that text; no tag comes of it."""
    as_name, inside = read(str(PAGE.module.name(text))), read(ELEMENT.render(text=text))
    assert as_name.text == inside.text == printable(text)
    assert {tag for tag, _ in as_name.tags} <= {"bdi", "span"}
    assert inside.tags == [("p", [("title", printable(text))])]
