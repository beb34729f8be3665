"""What a person reads before an expansion: Markdown in which no name is read as Markdown or HTML."""

from __future__ import annotations

import pytest
from expansion.change.expansion_scenes import a_group, a_plan

pytestmark = pytest.mark.airflow

HOSTILE = "g|`<b>[x](javascript:1)</b>\x1b[31m\n# head"


def test_the_preview_has_keys_groups_and_notices_with_names_escaped() -> None:
    """The share of keys, what is open, each notice with its rule; a hostile id stays text in one cell."""
    from acktrail_expansion.dags.expansion_steps import expansion_preview

    preview = expansion_preview(a_plan(3, a_group(HOSTILE, is_ordered=True, open_records=7)))

    assert "2/3 of all keys move" in preview.replace("\\", "")
    assert "open\\_before\\_expansion" in preview
    for raw in ("<b>", "](", "\x1b", "|`", "\n# head"):
        assert raw not in preview
    rows = [line for line in preview.splitlines() if line.startswith("| g")]
    assert len(rows) == 1
    assert " 7 |" in rows[0]


def test_long_lists_are_cut_and_counted() -> None:
    """Of sixty groups fifty are shown, and the others counted."""
    from acktrail_expansion.dags.expansion_steps import expansion_preview

    many = [a_group(f"g{number}") for number in range(60)]
    assert "and 10 more" in expansion_preview(a_plan(3, *many))
