"""The one table of rights is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"


def test_no_other_page_has_a_table_of_rights_by_purpose() -> None:
    """Others lead to it. The page about the client has the rights of each call."""
    for page in PAGES.rglob("*.md"):
        heads = re.findall(r"^\| [^|`\n]+ \| needs \|", page.read_text("utf-8"), re.MULTILINE)
        assert heads == [], page.name
