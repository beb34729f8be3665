"""The page of rules is the catalogue's; a section of a branch may stay where the branch is not there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import write_rules  # a program of the folder `tools`

from acktrail.model.rules.catalogue import RULE_BY_ID


def test_the_committed_page_has_what_the_tool_writes() -> None:
    """docs/rules.md has every section that `tools/write_rules.py` makes of the catalogue, in the same order: run it
    after a change."""
    written, committed = (
        text.strip().split("\n\n## ") for text in (write_rules.page(), write_rules.PAGE.read_text("utf-8"))
    )

    assert [section for section in committed if section in written] == written


def test_every_id_is_an_anchor() -> None:
    """A link to any id of a rule leads to its section."""
    lines = set(write_rules.page().splitlines())

    assert {id_ for id_ in RULE_BY_ID if f"### {id_}" not in lines and f'<a id="{id_}"></a>' not in lines} == set()
