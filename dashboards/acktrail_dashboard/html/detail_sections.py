"""The report's other tables: archived records, findings, groups, topics, exports."""

from __future__ import annotations

from typing import Final

from acktrail_dashboard.html.html_tables import Column, badge, data_table, section, severity_badge, unknown, value
from acktrail_dashboard.html.markup import Child, Markup, code, element, joined, name
from acktrail_dashboard.html.partition_section import topic_name
from acktrail_dashboard.summary_types import ArchivedRow, ExportRow, FindingRow, GapRow, GroupRow, Summary, TopicRow
from acktrail_dashboard.wording import address, counted, instant, number

__all__ = [
    "ROWS_SHOWN",
    "archived_section",
    "export_section",
    "finding_section",
    "group_section",
    "topic_section",
]

ROWS_SHOWN: Final = 200

_STATUS_TONES: Final = {"present": "ok", "deleted": "warning", "recreated": "warning", "not_authorized": "warning"}


def archived_section(summary: Summary) -> Markup:
    """Poison: what no consumer will see again."""
    columns = (
        Column("Group"), Column("Topic"), Column("Partition", "number"), Column("Offsets", "number"),
        Column("Records", "number"), Column("Deliveries", "number"), Column("Where"),
    )  # fmt: skip
    body = (_archived(row) for row in summary.archived[:ROWS_SHOWN])
    content = data_table(
        "Archived records", columns, body, left_off=_more(summary.archived), nothing=_none_archived(summary)
    )
    return section("archived", "Archived records", content, note=_archived_note(summary))


def _none_archived(summary: Summary) -> str:
    unknown = summary.totals.archived_unknown
    return f"None known; unknown for {counted(unknown, 'share partition')}." if unknown else "None seen."


def _archived_note(summary: Summary) -> str | None:
    now = sum(row.records for row in summary.archived if row.retained)
    earlier = sum(row.records for row in summary.archived) - now
    unlisted = summary.totals.archived_seen - now - earlier
    parts = [f"{counted(now, 'record')} in the current state: no consumer of its group will see them again"]
    parts += [f"{number(earlier)} in the history only"] if earlier else []
    parts += [f"{number(unlisted)} more whose offsets are not in the history"] if unlisted > 0 else []
    return "; ".join(parts) if now or earlier or unlisted > 0 else None


def _archived(row: ArchivedRow) -> tuple[Child, ...]:
    where = "in the current state" if row.retained else "in the history only: passed, or reset since"
    return (
        name(row.group_id), topic_name(row.topic, row.topic_id), number(row.partition),
        offsets(row.first_offset, row.last_offset), number(row.records), number(row.delivery_count), where,
    )  # fmt: skip


def offsets(first: int, last: int) -> str:
    """A range, both ends inclusive."""
    return number(first) if first == last else f"{number(first)} \N{EN DASH} {number(last)}"


def finding_section(summary: Summary) -> Markup:
    columns = (
        Column("Severity"),
        Column("Rule"),
        Column("Subject"),
        Column("Detail"),
        Column("Evidence"),
        Column("Seen"),
    )
    body = (_finding(row) for row in summary.findings[:ROWS_SHOWN])
    content = data_table("Findings", columns, body, left_off=_more(summary.findings), nothing="No rule was broken.")
    return section("findings", "Findings", content)


def _finding(row: FindingRow) -> tuple[Child, ...]:
    evidence = address(row.evidence_state_partition, row.evidence_offset)
    times = "" if row.times_seen is None else f", {counted(row.times_seen, 'time')}"
    return (
        severity_badge(row.severity), code(row.rule), name(row.subject), row.detail,
        evidence or element("span", "no single record", class_="quiet"), f"since {instant(row.first_seen_at)}{times}",
    )  # fmt: skip


def group_section(summary: Summary) -> Markup:
    columns = (
        Column("Group"), Column("State"), Column("Members", "number"), Column("Group epoch", "number"),
        Column("Assignment epoch", "number"), Column("Assignor"), Column("Coordinator", "number"), Column("Configs"),
    )  # fmt: skip
    body = (_group(row) for row in summary.groups[:ROWS_SHOWN])
    content = data_table("Groups", columns, body, left_off=_more(summary.groups), nothing="None was seen.")
    return section("groups", "Groups", content)


def _group(row: GroupRow) -> tuple[Child, ...]:
    configs = joined(element("p", element("code", f"{key}={text}")) for key, text in row.configs)
    return (
        name(row.group_id), row.group_state.lower() if row.group_state else unknown(row.reason), value(row.members, ""),
        value(row.group_epoch, ""), value(row.assignment_epoch, ""), row.assignor or unknown(""),
        value(row.coordinator_id, ""), configs,
    )  # fmt: skip


def topic_section(summary: Summary) -> Markup:
    columns = (
        Column("Topic"), Column("Id"), Column("Partitions", "number"), Column("Status"),
        Column("First seen"), Column("Last seen"),
    )  # fmt: skip
    body = (_topic(row) for row in summary.topics[:ROWS_SHOWN])
    content = data_table("Topics", columns, body, left_off=_more(summary.topics), nothing="None was seen.")
    return section("topics", "Topics", content, note="One row a topic id: a deleted or recreated topic keeps its own.")


def _topic(row: TopicRow) -> tuple[Child, ...]:
    status = row.status or "unknown"
    now = (
        joined((element("small", "now "), element("code", row.successor_topic_id))) if row.successor_topic_id else None
    )
    return (
        name(row.topic) if row.topic is not None else unknown("only the id was seen"), element("code", row.topic_id),
        value(row.partition_count, ""), joined((badge(status, _STATUS_TONES.get(status, "unknown")), now)),
        instant(row.first_seen_at), instant(row.last_seen_at),
    )  # fmt: skip


def export_section(summary: Summary) -> Markup:
    columns = (
        Column("State partition", "number"), Column("Offsets", "number"), Column("Read", "number"),
        Column("Decoded", "number"), Column("Quarantined", "number"), Column("Log start", "number"),
        Column("Log end", "number"), Column("Commits", "number"), Column("Last commit"),
    )  # fmt: skip
    body = (_export(row) for row in summary.exports[:ROWS_SHOWN])
    content = data_table("Export", columns, body, left_off=_more(summary.exports), nothing="Nothing was exported.")
    return section("export", "Export", content, _gaps(summary), note=_state_topics(summary))


def _state_topics(summary: Summary) -> Markup:
    ids = summary.head.state_topic_ids
    return joined(("Of __share_group_state", *(joined((", topic id ", element("code", text))) for text in ids)))


def _export(row: ExportRow) -> tuple[Child, ...]:
    known = row.first_offset is not None and row.last_offset is not None
    return (
        number(row.state_partition), offsets(row.first_offset or 0, row.last_offset or 0) if known else "none",
        number(row.records_read), number(row.records_decoded), number(row.records_quarantined),
        value(row.log_start_offset, ""), value(row.log_end_offset, ""), number(row.commits), instant(row.exported_at),
    )  # fmt: skip


def _gaps(summary: Summary) -> Markup:
    columns = (
        Column("State partition", "number"),
        Column("Offsets lost", "number"),
        Column("Records", "number"),
        Column("Found"),
    )
    body = (_gap(row) for row in summary.gaps[:ROWS_SHOWN])
    content = data_table(
        "Gaps",
        columns,
        body,
        left_off=_more(summary.gaps),
        nothing="No gap: nothing was pruned before it was exported.",
    )
    return element("div", element("h3", "Gaps") if summary.gaps else None, content)


def _gap(row: GapRow) -> tuple[Child, ...]:
    lost = offsets(row.first_offset, row.last_offset)
    return number(row.state_partition), lost, number(row.records), instant(row.exported_at)


def _more(found: tuple[object, ...]) -> int:
    return max(0, len(found) - ROWS_SHOWN)
