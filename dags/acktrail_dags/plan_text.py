"""A plan in Markdown, for the person who is asked to approve it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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


def plan_text(plan: ResetPlan, *, approval: str = "") -> str:
    """The plan as Markdown: who may approve it (`approval`), totals, notices, the first 50 share partitions.

    Names and texts are escaped: nothing in them is read as Markdown or HTML.
    """
    return "\n\n".join([*([_cell(approval)] if approval else []), *_sections(plan)])


def notice_text(notice: Notice) -> str:
    """A notice as one line: rule, group and share partition, text."""
    subject = _subject(notice)
    return f"{notice.rule}{f' ({subject})' if subject else ''}: {notice.text}"


def _sections(plan: ResetPlan) -> Iterator[str]:
    yield f"Plan `{plan.plan_id}`, made {instant_text(plan.created_at_ms)}, hash `{plan.plan_hash[:16]}`."
    totals = {label: _number(getattr(plan.totals, name)) for name, label in _TOTALS}
    totals.update(zip(_DELIVERED, delivered(plan), strict=True))
    totals.update(zip(_FORGOTTEN, forgotten(plan), strict=True))
    yield _table(("", "Number"), list(totals.items()))
    notices = [(each.severity.value, each.rule, _subject(each) or "all", each.text) for each in plan.notices]
    if notices:
        yield _table(("Severity", "Rule", "About", "What"), notices[:_NOTICES]) + _more(len(notices), _NOTICES)
    partitions = [_share_partition(row) for row in plan.partitions]
    headers = ("Group", "Topic", "Partition", "Start offset", "New start offset", "Delivered again", "Skipped")
    yield _table(headers, partitions[:_SHARE_PARTITIONS]) + _more(len(partitions), _SHARE_PARTITIONS)
    yield "Delivery states and counts cannot be restored afterwards: an undo restores start offsets only."


def _share_partition(row: PartitionPlan) -> tuple[object, ...]:
    return (
        row.group_id,
        row.topic,
        row.partition,
        _number(row.start_offset),
        "refused" if row.target_offset is None else row.target_offset,
        _number(None if row.impact is None else row.impact.delivered_again),
        _number(None if row.impact is None else row.impact.skipped),
    )


def _subject(notice: Notice) -> str:
    return " ".join(str(part) for part in (notice.group_id, notice.topic, notice.partition) if part is not None)


def _number(value: object) -> object:
    return "unknown" if value is None else value


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headers, ["---"] * len(headers), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return _PUNCTUATION.sub(r"\\\1", printable(str(value)))


def _more(count: int, shown: int) -> str:
    return f"\n\n... and {count - shown} more, all of them in the table reset_plan_partitions." if count > shown else ""
