"""A plan in Markdown, for the person who is asked to approve it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acktrail.group_changes.planning.number_text import delivered, forgotten
from acktrail.plain_tables import printable

__all__ = ["plan_text"]

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


def plan_text(plan: Mapping[str, Any], *, approval: str = "") -> str:
    """What would happen, in Markdown: who may approve it (`approval`), totals, notices, the first share partitions.
    Names and texts are escaped: nothing in them is taken for Markdown or HTML."""
    return "\n\n".join([*([_cell(approval)] if approval else []), *_parts(plan)])


def _parts(plan: Mapping[str, Any]) -> Iterator[str]:
    yield f"Plan `{plan['plan_id']}`, made {_made(plan)}, hash `{plan['plan_hash'][:16]}`."
    totals = {label: _number(plan["totals"].get(name)) for name, label in _TOTALS}
    totals.update(zip(_DELIVERED, delivered(plan), strict=True))
    totals.update(zip(_FORGOTTEN, forgotten(plan), strict=True))
    yield _table(("", "Number"), list(totals.items()))
    notices = plan["notices"]
    if notices:
        rows = [(notice["severity"], notice["rule"], _subject(notice), notice["text"]) for notice in notices]
        yield _table(("Severity", "Rule", "About", "What"), rows[:_NOTICES]) + _more(len(rows), _NOTICES)
    partitions = [_share_partition(row) for row in plan["partitions"]]
    headers = ("Group", "Topic", "Partition", "Start offset", "New start offset", "Delivered again", "Skipped")
    yield _table(headers, partitions[:_SHARE_PARTITIONS]) + _more(len(partitions), _SHARE_PARTITIONS)
    yield "Delivery states and counts cannot be brought back once this is carried out: an undo restores start offsets."


def _made(plan: Mapping[str, Any]) -> str:
    from acktrail.times import instant_text

    return instant_text(int(plan["created_at_ms"]))


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
    parts = [notice.get("group_id"), notice.get("topic"), notice.get("partition")]
    return " ".join(str(part) for part in parts if part is not None) or "all"


def _number(value: object) -> object:
    return "unknown" if value is None else value


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headers, ["---"] * len(headers), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return _PUNCTUATION.sub(r"\\\1", printable(str(value)))


def _more(count: int, shown: int) -> str:
    return f"\n\n... and {count - shown} more, all of them in the table reset_plan_partitions." if count > shown else ""
