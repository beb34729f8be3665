"""A plan in Markdown, for the person who is asked to approve it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acktrail.group_changes.planning.number_text import delivered, forgotten
from acktrail.plain_tables import printable
from acktrail.times import instant_text

__all__ = ["notice_text", "plan_text"]

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
_SUBJECT: Final = ("group_id", "topic", "partition")


def plan_text(plan: Mapping[str, Any], *, approval: str = "") -> str:
    """The plan as Markdown: who may approve it (`approval`), totals, notices, the first 50 share partitions.

    Names and texts are escaped: nothing in them is read as Markdown or HTML.
    """
    return "\n\n".join([*([_cell(approval)] if approval else []), *_sections(plan)])


def notice_text(notice: Mapping[str, Any]) -> str:
    """A notice as one line: rule, group and share partition, text."""
    subject = _subject(notice)
    return f"{notice['rule']}{f' ({subject})' if subject else ''}: {notice['text']}"


def _sections(plan: Mapping[str, Any]) -> Iterator[str]:
    yield f"Plan `{plan['plan_id']}`, made {instant_text(plan['created_at_ms'])}, hash `{plan['plan_hash'][:16]}`."
    totals = {label: _number(plan["totals"].get(name)) for name, label in _TOTALS}
    totals.update(zip(_DELIVERED, delivered(plan), strict=True))
    totals.update(zip(_FORGOTTEN, forgotten(plan), strict=True))
    yield _table(("", "Number"), list(totals.items()))
    notices = [(each["severity"], each["rule"], _subject(each) or "all", each["text"]) for each in plan["notices"]]
    if notices:
        yield _table(("Severity", "Rule", "About", "What"), notices[:_NOTICES]) + _more(len(notices), _NOTICES)
    partitions = [_share_partition(row) for row in plan["partitions"]]
    headers = ("Group", "Topic", "Partition", "Start offset", "New start offset", "Delivered again", "Skipped")
    yield _table(headers, partitions[:_SHARE_PARTITIONS]) + _more(len(partitions), _SHARE_PARTITIONS)
    yield "Delivery states and counts cannot be restored afterwards: an undo restores start offsets only."


def _share_partition(row: Mapping[str, Any]) -> tuple[object, ...]:
    impact = row["impact"] or {}
    return (
        row["group_id"],
        row["topic"],
        row["partition"],
        _number(row["start_offset"]),
        "refused" if row["target_offset"] is None else row["target_offset"],
        _number(impact.get("delivered_again")),
        _number(impact.get("skipped")),
    )


def _subject(notice: Mapping[str, Any]) -> str:
    return " ".join(str(notice[name]) for name in _SUBJECT if notice.get(name) is not None)


def _number(value: object) -> object:
    return "unknown" if value is None else value


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headers, ["---"] * len(headers), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return _PUNCTUATION.sub(r"\\\1", printable(str(value)))


def _more(count: int, shown: int) -> str:
    return f"\n\n... and {count - shown} more, all of them in the table reset_plan_partitions." if count > shown else ""
