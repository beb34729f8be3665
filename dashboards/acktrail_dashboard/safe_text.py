"""Names as a person may safely read them: group ids and topic names are whatever a client sent."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import Final

__all__ = ["visible", "visible_parts"]

_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (direction overrides, zero width), surrogates, private use, unassigned, line and paragraph ends."""

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """`text` with every character that has no picture of its own written as an escape (``\\n``, ``\\u202e``).

    What comes back is one line, moves no cursor and turns no reading direction; other text is left as it is.
    """
    return "".join(part for part, _ in visible_parts(text))


def visible_parts(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of `text` in order, each with whether it is an escape that stands for hidden characters."""
    for hidden, characters in groupby(text, _is_hidden):
        run = "".join(characters)
        yield ("".join(map(_escape, run)), True) if hidden else (run, False)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN_CATEGORIES


def _escape(character: str) -> str:
    number = ord(character)
    return _SHORT.get(character) or (f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}")
