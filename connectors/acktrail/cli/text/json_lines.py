"""One JSON object a line, harmless to terminals and to programs that split text into lines."""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["json_line"]

_STEERING: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What JSON leaves as it is although it steers a terminal, turns text around, hides in it, or ends a line for some."""


def json_line(form: object) -> str:
    """`form` on one line, readable text as it is, everything that steers escaped. Equal to `form` once parsed."""
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"))
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
