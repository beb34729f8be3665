"""What a person is shown before they approve."""

from __future__ import annotations

from dataclasses import replace

from reset.scenes import a_plan, a_request

from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail_dags.plan_text import plan_text

HOSTILE = "g|`<img src=x>`[a](javascript:x)**\n| --- |"


def plan(group_id: str, partitions: int) -> ResetPlan:
    """A plan of `partitions` share partitions whose present state is not known."""
    made = a_plan(a_request())
    row = replace(made.partitions[0], group_id=group_id, topic="t", start_offset=None, target_offset=3, impact=None)
    notice = Notice(severity=Severity.WARNING, rule="r", text=group_id, group_id=group_id)
    rows = tuple(replace(row, partition=index) for index in range(partitions))
    return replace(made, plan_id="p-1", plan_hash="sha256:0123456789", notices=(notice,), partitions=rows)


def test_names_stay_inside_their_cells() -> None:
    """Markdown's and HTML's own characters are escaped, and no name makes a line or a column of its own."""
    shown = plan_text(plan(HOSTILE, 2))
    lines = [line for line in shown.splitlines() if "img" in line]
    assert len(lines) == 3
    for line in lines:
        assert "\\<img src\\=x\\>" in line
        assert line.replace("\\|", "").count("|") in {5, 8}
    assert "`" not in shown.replace("\\`", "").replace("`p-1`", "").replace("`sha256:012345678`", "")


def test_what_is_not_known_says_so_and_what_is_cut_off_is_counted() -> None:
    """A number that is not known is no zero; share partitions beyond the first are in the table that is named."""
    shown = plan_text(plan("g", 60))
    assert "| g | t | 49 | unknown | 3 | unknown | unknown |" in shown
    assert "| g | t | 50 |" not in shown
    assert "and 10 more" in shown
