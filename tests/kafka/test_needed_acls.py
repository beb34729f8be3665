"""The one table of rights is that of the code."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from acktrail.model.acls import needed, purposes

PAGES = Path(__file__).parents[2] / "docs"


def cell(purpose: str) -> str:
    """What a purpose needs, in the words of the page."""
    found: dict[str, list[str]] = defaultdict(list)
    for acl in needed(purpose, ["GROUP"], ["TOPIC"]):
        name = f"topic `{acl.name}`"
        if acl.is_prefix:
            name = f"{acl.kind.replace('-', ' ')}s that begin with `{acl.name}`"
        found[{"GROUP": "the groups", "TOPIC": "the topics"}.get(acl.name, name)].append(acl.operation)
    return "; ".join(f"{', '.join(operations)} on {where}" for where, operations in found.items())


def test_the_page_has_what_each_purpose_needs() -> None:
    """As `doctor --acls` takes and prints them, whichever branch has them."""
    page = (PAGES / "reference/rights.md").read_text("utf-8").partition("## What each needs")[2].partition("\n## ")[0]

    assert dict(re.findall(r"^\| `([a-z][a-z-]+)` \| ([^|]+) \|", page, re.MULTILINE)) == {
        purpose: cell(purpose) for purpose in purposes()
    }


def test_no_other_page_has_a_table_of_rights_by_purpose() -> None:
    """Others lead to it. The page about the client has the rights of each call."""
    for page in PAGES.rglob("*.md"):
        heads = re.findall(r"^\| [^|`\n]+ \| needs \|", page.read_text("utf-8"), re.MULTILINE)
        assert heads == [], page.name
