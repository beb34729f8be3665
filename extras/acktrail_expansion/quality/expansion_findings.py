"""The findings of an audit. What breaks a rule here is what breaks its expectation; an expansion, or a group in one,
has one finding of a rule at most.

People are sent each once: topics that grew, and what the newest audit found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from acktrail.model.queue_status import Urgency
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.package_data import metric_definitions
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.tables.open_findings import write_branch_findings
from acktrail.text_tables import printable
from acktrail.times import utc_text
from acktrail.view.finding_rows import FindingRow, open_findings
from acktrail.view.notifications import WELL, Known, Notification
from acktrail.view.wording import counted
from acktrail_expansion import EXPANSION
from acktrail_expansion.ordering.order import ExpansionStatus, OrderVerdict
from acktrail_expansion.settings import ordered_groups
from acktrail_expansion.shown_expansions import verdict_sentence, worst_first

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_Row = Mapping[str, Any]
_BAD: Final = (OrderVerdict.BROKEN, OrderVerdict.SKIPPED)


def write_findings(tables: Tables, cluster_id: str, seen_us: int, done: int | None) -> dict[str, int]:
    """Open and close the findings of an audit that has replaced its tables; gives how many of each rule are open.
    Raises as `write_branch_findings`."""
    expansions = {row["event_id"]: row for row in tables.rows("partition_expansions")}
    texts: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for rule, row, text in (*_late(tables), *_bad(tables)):
        texts[rule, row["event_id"], row.get("group_id")].append(text)
    found = [_finding(rule, group, expansions[event], own) for (rule, event, group), own in texts.items()]
    return write_branch_findings(tables, EXPANSION.audit, cluster_id, found, seen_us, done)


def _late(tables: Tables) -> Iterator[tuple[str, _Row, str]]:
    columns = ("event_id", "partition", "late_records")
    for row in tables.read("expansion_fences", columns=columns, where=pc.field("late_records") > 0).to_pylist():
        records = counted(row["late_records"], "record")
        text = f"Partition {row['partition']} got {records} by the old count after the settle time."
        yield "settle_time_long_enough", row, text


def _bad(tables: Tables) -> Iterator[tuple[str, _Row, str]]:
    """Broken order and skipped records, the worst first."""
    ordered = ordered_groups()
    where = one_of("verdict", _BAD) | (pc.field("skipped_records") > 0)
    for row in worst_first(tables.read("expansion_verdicts", where=where)).to_pylist():
        if row["verdict"] == OrderVerdict.BROKEN:
            rule = "ordered_group_kept_order" if row["group_id"] in ordered else "group_kept_order"
            yield rule, row, verdict_sentence(row)
        if row["verdict"] == OrderVerdict.SKIPPED or row["skipped_records"]:
            yield "first_records_delivered", row, verdict_sentence({**row, "verdict": OrderVerdict.SKIPPED})


def _finding(rule: str, group_id: str | None, expansion: _Row, texts: list[str]) -> _Row:
    """The first of `texts`, and how many there are."""
    old, new = expansion["old_count"], expansion["new_count"]
    subject = f"{expansion['topic_id']}:{old}-{new}"
    more = f" It is so in {len(texts)} partitions." if len(texts) > 1 else ""
    return {
        "rule": rule,
        "subject": subject if group_id is None else f"{group_id}:{subject}",
        "group_id": group_id,
        "topic_id": expansion["topic_id"],
        "topic": expansion["topic"],
        "detail": f"expansion from {old} to {new} partitions: {texts[0]}{more}",
    }


def expansion_changes(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:  # noqa: ARG001  # as others
    """The messages that `known` lacks: findings first, the worst first, then expansions, the newest first."""
    found = open_findings(tables)
    expansions = sorted(tables.rows("partition_expansions"), key=lambda row: row["first_seen_new_at"], reverse=True)
    messages = [_message(each) for each in found if rule_catalogue().audits.get(each.rule) == EXPANSION.audit]
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


def _message(found: FindingRow) -> Notification:
    topic = printable(found.topic or found.topic_id or "")
    group = "" if found.group_id is None else f", group {printable(found.group_id)}"
    return Notification(
        kind="key_order",
        subject=f"{found.rule}:{found.subject}",
        state="open",
        urgency=Urgency.LOOK if found.severity == "warning" else Urgency.ACT,
        title=f"{found.severity.capitalize()} finding: {found.rule} in {topic}{group}",
        text=f"{printable(found.detail)} {rule_catalogue().by_id[found.rule].advice}",
        page="finding",
        query=(("rule", found.rule), ("subject", found.subject)),
    )


_COUNTED: Final = (("partition_expansions", "status", ExpansionStatus), ("expansion_verdicts", "verdict", OrderVerdict))


def expansion_metrics(tables: Tables, cluster: str) -> Iterator[Metric]:
    """None before the first audit. Raises ConfigurationError, RetryableError: a table cannot be read."""
    from acktrail.serving.gauge_families import by, one

    if not tables.exists("partition_expansions"):
        return
    metrics = metric_definitions("acktrail_expansion", "tables")
    for table, column, kinds in _COUNTED:
        found = tables.read(table, columns=[column])[column].value_counts().to_pylist()
        counts = {row["values"]: row["counts"] for row in found}
        yield by(metrics, cluster, table, {kind.value: counts.get(kind, 0) for kind in kinds})
    skipped = pc.sum(tables.read("expansion_verdicts", columns=["skipped_records"])["skipped_records"]).as_py()
    yield one(metrics, cluster, "expansion_skipped_records", skipped or 0)
