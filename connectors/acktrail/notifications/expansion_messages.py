"""What an audit of expansions found that differs from what people know: topics that grew, and groups that got records
of one key out of order or never."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.model.expansion.expansion_texts import broken_order_text, counted, skipped_text
from acktrail.model.expansion.ordering import OrderingVerdict
from acktrail.model.expansion.start_audit import StartVerdict
from acktrail.model.queue_status import Urgency
from acktrail.notifications.notification import WELL, Known, Notification, NotificationKind
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail.times import utc_text

_EVENT_COLUMNS: Final = (
    *("event_id", "topic", "topic_id", "old_count", "new_count"),
    *("last_seen_old_at", "first_seen_new_at"),
)
_ORDER_COLUMNS: Final = (
    *("event_id", "group_id", "partition", "source_partition"),
    *("source_at", "fence_low", "sources_violated"),
)
_START_COLUMNS: Final = ("event_id", "group_id", "partition", "skipped_records")

_Row = Mapping[str, Any]


def expansion_changes(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:  # noqa: ARG001  # as `changed`
    """The messages that `known` lacks: groups first, the worst first, then expansions, the newest first. What an audit
    does not find any more, because a key mapping was configured or looks are gone, is a message, too. The tables have
    the newest audit alone, of any run."""
    events = {row["event_id"]: row for row in tables.rows("partition_expansions", columns=_EVENT_COLUMNS)}
    broken, skipped = _violations(tables), _skips(tables)
    subjects = sorted(broken.keys() | skipped.keys())
    groups = [
        _group(events[event_id], group_id, broken[event_id, group_id], skipped[event_id, group_id])
        for event_id, group_id in subjects
        if event_id in events
    ]
    groups.sort(key=lambda message: message.state != _BOTH)
    found = {message.subject for message in groups}
    gone = [
        _gone(subject)
        for (kind, subject), state in sorted(known.items())
        if kind == NotificationKind.KEY_ORDER and state != WELL and subject not in found
    ]
    grown = sorted(events.values(), key=lambda row: row["first_seen_new_at"], reverse=True)
    messages = (*groups, *gone, *map(_expansion, grown))
    return tuple(message for message in messages if message.state != known.get(message.key, WELL))


_BROKEN: Final = "order_broken"
_SKIPPED: Final = "records_skipped"
_BOTH: Final = f"{_BROKEN}, {_SKIPPED}"


def _violations(tables: Tables) -> defaultdict[tuple[str, str], list[_Row]]:
    where = pc.field("verdict") == OrderingVerdict.VIOLATION.value
    return _by_group(tables.read("ordering_audits", columns=_ORDER_COLUMNS, where=where).to_pylist())


def _skips(tables: Tables) -> defaultdict[tuple[str, str], list[_Row]]:
    where = pc.field("verdict") == StartVerdict.SKIPPED_RECORDS.value
    return _by_group(tables.read("start_audits", columns=_START_COLUMNS, where=where).to_pylist())


def _by_group(rows: Sequence[_Row]) -> defaultdict[tuple[str, str], list[_Row]]:
    found: defaultdict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in rows:
        found[row["event_id"], row["group_id"]].append(row)
    return found


def _group(event: _Row, group_id: str, broken: Sequence[_Row], skipped: Sequence[_Row]) -> Notification:
    state = _BOTH if broken and skipped else _BROKEN if broken else _SKIPPED
    what = {
        _BROKEN: "got records out of the order of their keys",
        _SKIPPED: "never got the first records of new partitions",
        _BOTH: "got records out of the order of their keys, and never got the first records of new partitions",
    }[state]
    return Notification(
        kind=NotificationKind.KEY_ORDER,
        subject=json.dumps([event["event_id"], group_id]),
        state=state,
        urgency=Urgency.ACT,
        title=f"Group {printable(group_id)} {what}: {_growth(event)}",
        text=" ".join(_sentences(broken, skipped)),
        page="expansion",
        query=(("event", event["event_id"]), ("group", group_id)),
    )


def _sentences(broken: Sequence[_Row], skipped: Sequence[_Row]) -> Iterator[str]:
    if broken:
        worst = max(broken, key=lambda row: (_unfinished(row), -row["partition"]))
        places = worst["partition"], worst["source_partition"]
        yield f"It {broken_order_text(*places, _unfinished(worst), len(broken))}."
    if skipped:
        total = sum(row["skipped_records"] for row in skipped)
        worst = max(skipped, key=lambda row: (row["skipped_records"], -row["partition"]))
        yield f"It {skipped_text(worst['partition'], total, len(skipped))}."


def _unfinished(row: _Row) -> int:
    """Offsets of the source from before the expansion that were left; some can be of no record."""
    return int(row["fence_low"] - row["source_at"])


def _gone(subject: str) -> Notification:
    _, group_id = json.loads(subject)
    return Notification(
        kind=NotificationKind.KEY_ORDER,
        subject=subject,
        state=WELL,
        urgency=Urgency.NOTHING,
        title=f"Group {printable(group_id)}: no longer found to have got records out of order",
        text="The newest audit of expansions does not find it.",
        page="expansions",
    )


def _expansion(event: _Row) -> Notification:
    between = " and ".join(utc_text(event[name]) for name in ("last_seen_old_at", "first_seen_new_at"))
    return Notification(
        kind=NotificationKind.EXPANSION,
        subject=event["event_id"],
        state="seen",
        urgency=Urgency.LOOK,
        title=f"A topic has more partitions: {_growth(event)}",
        text=f"It grew between {between}. Keys move: groups that rely on their order may get records out of it.",
        page="expansion",
        query=(("event", event["event_id"]),),
    )


def _growth(event: _Row) -> str:
    topic = printable(event["topic"] or event["topic_id"])
    return f"{topic}, from {event['old_count']:,} to {counted(event['new_count'], 'partition')}"
