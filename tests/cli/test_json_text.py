"""JSON lines for terminals and programs."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from acktrail.cli.text.json_text import json_line


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_one_harmless_line(text: str) -> None:
    """Any name of a group: one line, no control character, and the same once parsed."""
    line = json_line({"group": text})

    assert json.loads(line) == {"group": text}
    assert len(line.splitlines()) == 1
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F or char in "\u202e\u2066\u200b" for char in line)


def test_text_stays_readable() -> None:
    """Letters of any language are printed as they are."""
    assert json_line(["böse gruppe 群"]) == '["böse gruppe 群"]'
