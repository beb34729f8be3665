"""A plan in Markdown, for the person who is asked to approve it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from acktrail.group_changes.planning.notices import Notice
from acktrail.group_changes.planning.number_text import delivered, forgotten
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.plain_tables import printable
from acktrail.times import instant_text

_SHARE_PARTITIONS: Final = 50
_NOTICES: Final = 30
_PUNCTUATION: Final = re.compile(r"([!-/:-@\[-`{-~])")
_TOTALS: Final = (
    ("partitions", "Share partitions"),
    ("refused_partitions", "Refused"),
    ("to_deliver", "Records to deliver"),
    ("delivered_again", "Records delivered again"),
    ("skipped", "Records skipped for good"),
    ("in_flight_discarded", "In-flight records discarded"),
)
_DELIVERED: Final = ("Records to deliver", "Records delivered again")
_FORGOTTEN: Final = ("Acknowledgements forgotten", "Archived records forgotten")
_COLUMNS: Final = ("Group", "Topic", "Partition", "Start offset", "New start offset", "Delivered again", "Skipped")


def plan_text(plan: ResetPlan, *, approval: str = "") -> str:
    """The plan as Markdown: who may approve it (`approval`), totals, notices, the first 50 share partitions. Names and
    texts are escaped: nothing in them is read as Markdown or HTML."""
    totals = {label: _number(getattr(plan.totals, name)) for name, label in _TOTALS}
    totals.update(zip(_DELIVERED, delivered(plan), strict=True))
    totals.update(zip(_FORGOTTEN, forgotten(plan), strict=True))
    notices = [(each.severity.value, each.rule, _subject(each) or "all", each.text) for each in plan.notices]
    parts = (
        cell(approval),
        f"Plan `{plan.plan_id}`, made {instant_text(plan.created_at_ms)}, hash `{plan.plan_hash[:16]}`.",
        markdown_table(("", "Number"), list(totals.items())),
        markdown_table(("Severity", "Rule", "About", "What"), notices, _NOTICES) if notices else "",
        markdown_table(_COLUMNS, [_share_partition(row) for row in plan.partitions], _SHARE_PARTITIONS),
        "Delivery states and counts cannot be restored afterwards: an undo restores start offsets only.",
    )
    return "\n\n".join(filter(None, parts))


def notice_text(notice: Notice) -> str:
    """A notice as one line: rule, group and share partition, text."""
    subject = _subject(notice)
    return f"{notice.rule}{f' ({subject})' if subject else ''}: {notice.text}"


def _share_partition(row: PartitionPlan) -> tuple[object, ...]:
    impact = row.impact
    counts = (None, None) if impact is None else (impact.delivered_again, impact.skipped)
    target = "refused" if row.target_offset is None else row.target_offset
    return (row.group_id, row.topic, row.partition, _number(row.start_offset), target, *map(_number, counts))


def _subject(notice: Notice) -> str:
    return " ".join(str(part) for part in (notice.group_id, notice.topic, notice.partition) if part is not None)


def _number(value: object) -> object:
    return "unknown" if value is None else value


def markdown_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    most: int | None = None,
    *,
    rest: str = "all of them in the table reset_plan_partitions",
) -> str:
    """A table of the first `most` rows, whose values are escaped; the others are counted, and `rest` says where they
    are."""
    lines = [headers, ["---"] * len(headers), *([cell(value) for value in row] for row in rows[:most])]
    more = 0 if most is None else len(rows) - most
    left_off = f"\n\n... and {more} more, {rest}." if more > 0 else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + left_off


def cell(value: object) -> str:
    """A value as text in which nothing is read as Markdown or HTML."""
    return _PUNCTUATION.sub(r"\\\1", printable(str(value)))
