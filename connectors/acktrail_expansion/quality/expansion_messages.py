"""What people are sent, each once: topics that grew, and what the newest audit found."""

from __future__ import annotations

from acktrail.model.queue_status import Urgency
from acktrail.model.rules.catalogue import BRANCH_RULES, RULE_BY_ID
from acktrail.plain_tables import printable
from acktrail.tables.delta.store import Tables
from acktrail.times import utc_text
from acktrail.view.finding_rows import FindingRow, open_findings
from acktrail.view.run_messages import WELL, Known, Notification
from acktrail_expansion.branch import EXPANSION


def expansion_changes(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:  # noqa: ARG001  # as others
    """The messages that `known` lacks: findings first, the worst first, then expansions, the newest first."""
    found = open_findings(tables)
    expansions = sorted(tables.rows("partition_expansions"), key=lambda row: row["first_seen_new_at"], reverse=True)
    messages = [_finding(each) for each in found if BRANCH_RULES.get(each.rule) == EXPANSION.audit]
    messages += [
        Notification(
            kind="expansion",
            subject=row["event_id"],
            state="seen",
            urgency=Urgency.LOOK,
            title=f"{printable(row['topic'])} has {row['new_count']} partitions, up from {row['old_count']}",
            text=f"Seen at {utc_text(row['first_seen_new_at'])}. Keys move: a group may get its records out of order.",
            page="expansions",
            query=(("event", row["event_id"]),),
        )
        for row in expansions
    ]
    return tuple(message for message in messages if message.state != known.get(message.key, WELL))


def _finding(found: FindingRow) -> Notification:
    group = "" if found.group_id is None else f", group {printable(found.group_id)}"
    topic = printable(found.topic or found.topic_id or "")
    return Notification(
        kind="key_order",
        subject=f"{found.rule}:{found.subject}",
        state="open",
        urgency=Urgency.LOOK if found.severity == "warning" else Urgency.ACT,
        title=f"{found.severity.capitalize()} finding: {found.rule} in {topic}{group}",
        text=f"{printable(found.detail)} {RULE_BY_ID[found.rule].advice}",
        page="finding",
        query=(("rule", found.rule), ("subject", found.subject)),
    )
