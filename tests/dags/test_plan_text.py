"""What a person is shown before they approve."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from change.scenes import TOPIC, a_plan, a_request, a_snapshot, partition_facts

from acktrail.change.planning.change_plan import Notice, Severity
from acktrail.change.planning.reset_plan import ResetPlan


def plan_text(*arguments: Any, **more: Any) -> str:
    """Airflow is imported by the test that needs it."""
    from acktrail_dags import plan_text as text

    return text.plan_text(*arguments, **more)


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
    shown = plan_text(plan(HOSTILE, 2), where=HOSTILE)
    lines = [line for line in shown.splitlines() if "img" in line]
    assert len(lines) == 4
    for line in lines:
        assert "\\<img src\\=x\\>" in line
        assert line.replace("\\|", "").count("|") in {0, 5, 8}
    assert "`" not in shown.replace("\\`", "").replace("`p-1`", "").replace("`sha256:012345678`", "")


def test_what_is_not_known_says_so_and_what_is_cut_off_is_counted() -> None:
    """A number that is not known is no zero; share partitions beyond the first are in the table that is named."""
    shown = plan_text(plan("g", 60), where="k:9092")
    assert "| g | t | 9 | unknown | 3 | unknown | unknown |" in shown
    assert "| g | t | 10 |" not in shown
    assert "and 50 more" in shown


def test_a_plan_of_fifty_share_partitions_is_read_in_half_a_minute() -> None:
    """First who asks for what, why, where; then what it costs; then one line for each sentence, with the least and the
    greatest of its numbers, a few share partitions named and all counted. Fewer than 140 words stand above
    the list of share partitions."""
    rows = [
        partition_facts(10 + number, (0, 100), partition=number, topic="orders", partition_count=50)
        for number in range(50)
    ]
    topic = replace(TOPIC, partition_count=50)
    request = a_request(requested_by="ann", reason="bad release")
    shown = plan_text(a_plan(request, a_snapshot(*rows, topics=(topic,))), where="prod k:9092").replace("\\", "")
    lines = shown.splitlines()
    assert lines[0].startswith("ann asks for a reset of g **to-earliest on cluster prod k:9092, id ")
    assert lines[0].endswith(". Reason: bad release")
    assert lines[2] == "**It loses 0, repeats 1725 offsets, revives unknown poison.**"
    assert "By the state at 2023-11-14T22:13:20" in lines[4]
    (again,) = [line for line in lines if "delivered_again" in line]
    assert (
        "| 50: g orders:0, g orders:1, g orders:2 and 47 more | 10 to 59 offsets that the group was done with" in again
    )
    assert not [line for line in lines if line.startswith("| info")]
    above, _, _ = shown.partition("| Group |")
    assert len(re.sub(r"[|*-]", " ", above).split()) < 140
