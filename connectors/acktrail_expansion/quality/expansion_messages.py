"""What people are sent: topics that grew, and groups that got records of one key out of order or never."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from acktrail.model.queue_status import Urgency
from acktrail.notifications.notification import WELL, Known, Notification
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail.times import utc_text
from acktrail_expansion.quality.expansion_findings import growth, trouble_text, troubles
from acktrail_expansion.words import advice, label

_GROUP: Final = "key_order"
"""The kind of a message about a group and an expansion of a topic that it reads."""
_EXPANSION: Final = "expansion"
_PAGE: Final = "expansions"
_Row = Mapping[str, Any]


def expansion_changes(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:  # noqa: ARG001  # as others
    """The messages that `known` lacks: groups first, then expansions, the newest first. That a newer audit does not
    find a group any more is a message, too. The tables have the newest audit alone, of any run."""
    expansions = tables.rows("partition_expansions")
    newest_first = sorted(expansions, key=lambda row: row["first_seen_new_at"], reverse=True)
    messages = (*_groups(known, tables, {row["event_id"]: row for row in expansions}), *map(_grown, newest_first))
    return tuple(message for message in messages if message.state != known.get(message.key, WELL))


def _groups(known: Known, tables: Tables, expansions: Mapping[str, _Row]) -> Iterator[Notification]:
    """Those in which something is wrong, the worst first, then those that are well again."""
    found = {json.dumps(key): kinds for key, kinds in troubles(tables).items() if key[0] in expansions}
    for subject, kinds in found.items():
        event_id, group_id = json.loads(subject)
        yield Notification(
            kind=_GROUP,
            subject=subject,
            state=", ".join(kinds),
            urgency=Urgency.ACT,
            title=f"Group {printable(group_id)}: {', '.join(map(label, kinds))}: {_growth(expansions[event_id])}",
            text=" ".join(f"{trouble_text(rows)} {advice(rows[0])}" for rows in kinds.values()),
            page=_PAGE,
            query=(("event", event_id), ("group", group_id)),
        )
    for kind, subject in sorted(known):
        if kind == _GROUP and subject not in found:
            yield _well_again(subject)


def _well_again(subject: str) -> Notification:
    _, group_id = json.loads(subject)
    return Notification(
        kind=_GROUP,
        subject=subject,
        state=WELL,
        urgency=Urgency.NOTHING,
        title=f"Group {printable(group_id)}: no longer in trouble after an expansion",
        text="The newest audit finds neither broken order nor skipped records of it.",
        page=_PAGE,
    )


def _grown(expansion: _Row) -> Notification:
    between = " and ".join(utc_text(expansion[name]) for name in ("last_seen_old_at", "first_seen_new_at"))
    return Notification(
        kind=_EXPANSION,
        subject=expansion["event_id"],
        state="seen",
        urgency=Urgency.LOOK,
        title=f"A topic has more partitions: {_growth(expansion)}",
        text=f"It grew between {between}. Keys move: groups that rely on their order may get records out of it.",
        page=_PAGE,
        query=(("event", expansion["event_id"]),),
    )


def _growth(expansion: _Row) -> str:
    topic = printable(expansion["topic"] or expansion["topic_id"])
    return f"{topic}, {growth(expansion)}"
