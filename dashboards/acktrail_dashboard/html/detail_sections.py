"""The report's other tables: findings, archived records, expectations, groups, topics, exports."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from acktrail.model.share_partition import STATE_TOPIC
from acktrail_dashboard.html.html_tables import (
    Cells,
    Column,
    badge,
    data_table,
    section,
    severity_badge,
    text_columns,
    unknown,
    value,
)
from acktrail_dashboard.html.markup import Markup, code, element, joined, name
from acktrail_dashboard.html.partition_section import topic_name
from acktrail_dashboard.summary_types import (
    ArchivedRow,
    ExpectationRow,
    ExportRow,
    FindingRow,
    GapRow,
    GroupRow,
    Summary,
    TopicRow,
)
from acktrail_dashboard.verdicts import result_tone
from acktrail_dashboard.wording import address, counted, instant, number, quality_line, unknowns

_FINDINGS: Final = text_columns("Severity", "Rule", "Subject", "Detail", "Evidence", "Seen")
_ARCHIVED: Final = (
    Column("Group"), Column("Topic"), Column("Partition", "number"), Column("Offsets", "number"),
    Column("Records", "number"), Column("Deliveries", "number"), Column("Where"),
)  # fmt: skip
_EXPECTATIONS: Final = (
    *text_columns("Result", "Suite", "Expectation", "Severity"), Column("Unexpected", "number"), Column("Observed"),
)  # fmt: skip
_GROUPS: Final = (
    Column("Group"), Column("State"), Column("Members", "number"), Column("Group epoch", "number"),
    Column("Assignment epoch", "number"), Column("Assignor"), Column("Coordinator", "number"), Column("Configs"),
)  # fmt: skip
_TOPICS: Final = (
    Column("Topic"), Column("Id"), Column("Partitions", "number"), *text_columns("Status", "First seen", "Last seen"),
)  # fmt: skip
_EXPORTS: Final = (
    Column("State partition", "number"), Column("Offsets", "number"), Column("Read", "number"),
    Column("Decoded", "number"), Column("Quarantined", "number"), Column("Log start", "number"),
    Column("Log end", "number"), Column("Commits", "number"), Column("Last commit"),
)  # fmt: skip
_GAPS: Final = (
    Column("State partition", "number"), Column("Offsets lost", "number"), Column("Records", "number"), Column("Found"),
)  # fmt: skip

_STATUS_TONES: Final = {"present": "ok", "deleted": "warning", "recreated": "warning", "not_authorized": "warning"}


def finding_section(summary: Summary) -> Markup:
    content = data_table("Findings", _FINDINGS, summary.findings, _finding, nothing="No rule was broken.")
    return section("findings", "Findings", content)


def _finding(row: FindingRow) -> Cells:
    evidence = address(row.evidence_state_partition, row.evidence_offset)
    times = "" if row.times_seen is None else f", {counted(row.times_seen, 'time')}"
    return (
        severity_badge(row.severity), code(row.rule), name(row.subject), row.detail,
        evidence or element("span", "no single record", class_="quiet"), f"since {instant(row.first_seen_at)}{times}",
    )  # fmt: skip


def archived_section(summary: Summary) -> Markup:
    """Poison: records that no consumer of the group gets again."""
    unlisted = summary.totals.archived_unknown
    nothing = f"None known; unknown for {counted(unlisted, 'share partition')}." if unlisted else "None seen."
    content = data_table("Archived records", _ARCHIVED, summary.archived, _archived, nothing=nothing)
    return section("archived", "Archived records", content, note=_archived_note(summary))


def _archived_note(summary: Summary) -> str | None:
    now = sum(row.records for row in summary.archived if row.retained)
    earlier = sum(row.records for row in summary.archived) - now
    unlisted = summary.totals.archived_seen - now - earlier
    parts = [f"{counted(now, 'record')} in the current state: no consumer of its group will see them again"]
    parts += [f"{number(earlier)} in the history only"] if earlier else []
    parts += [f"{number(unlisted)} more whose offsets are not in the history"] if unlisted > 0 else []
    return "; ".join(parts) if now or earlier or unlisted > 0 else None


def _archived(row: ArchivedRow) -> Cells:
    where = "in the current state" if row.retained else "in the history only: passed, or reset since"
    return (
        name(row.group_id), topic_name(row.topic, row.topic_id), number(row.partition),
        _offsets(row.first_offset, row.last_offset), number(row.records), number(row.delivery_count), where,
    )  # fmt: skip


def _offsets(first: int, last: int) -> str:
    return number(first) if first == last else f"{number(first)} \N{EN DASH} {number(last)}"


def expectation_section(summary: Summary) -> Markup:
    """What did not pass in full, what passed folded up by suite."""
    anchor, title = "expectations", "Expectations"
    if not summary.expectations:
        return section(anchor, title, element("p", "None was evaluated in this run.", class_="nothing"))
    open_ = tuple(row for row in summary.expectations if row.result != "passed")
    passed = sorted((row for row in summary.expectations if row.result == "passed"), key=_suite)
    did_not_pass = data_table("Expectations that did not pass", _EXPECTATIONS, open_, _expectation) if open_ else None
    suites = (_passed_suite(suite, tuple(own)) for suite, own in groupby(passed, _suite))
    return section(anchor, title, did_not_pass, *suites, note=quality_line(summary.totals))


def _suite(row: ExpectationRow) -> str:
    return row.suite


def _passed_suite(suite: str, passed: tuple[ExpectationRow, ...]) -> Markup:
    head = element("summary", badge(f"{number(len(passed))} passed", "ok"), code(suite))
    content = data_table(f"Expectations of {suite} that passed", _EXPECTATIONS, passed, _expectation)
    return element("details", head, content, class_="suite")


def _expectation(row: ExpectationRow) -> Cells:
    of = joined((value(row.unexpected_count), element("span", f" of {number(row.element_count)}", class_="quiet")))
    observed = row.error or row.observed_value or ""
    return badge(row.result, result_tone(row)), code(row.suite), code(row.expectation), row.severity, of, observed


def group_section(summary: Summary) -> Markup:
    return section("groups", "Groups", data_table("Groups", _GROUPS, summary.groups, _group, nothing="None was seen."))


def _group(row: GroupRow) -> Cells:
    configs = joined(element("p", element("code", f"{key}={text}")) for key, text in row.configs)
    return (
        name(row.group_id), row.group_state.lower() if row.group_state else unknown(row.reason), value(row.members),
        value(row.group_epoch), value(row.assignment_epoch), row.assignor or unknown(), value(row.coordinator_id),
        configs,
    )  # fmt: skip


def topic_section(summary: Summary) -> Markup:
    content = data_table("Topics", _TOPICS, summary.topics, _topic, nothing="None was seen.")
    return section("topics", "Topics", content, note="One row a topic id: a deleted or recreated topic keeps its own.")


def _topic(row: TopicRow) -> Cells:
    status, successor = row.status or "unknown", row.successor_topic_id
    now = joined((element("small", "now "), element("code", successor))) if successor else None
    return (
        unknown("only the id was seen") if row.topic is None else name(row.topic), element("code", row.topic_id),
        value(row.partition_count), joined((badge(status, _STATUS_TONES.get(status, "unknown")), now)),
        instant(row.first_seen_at), instant(row.last_seen_at),
    )  # fmt: skip


def export_section(summary: Summary) -> Markup:
    content = data_table("Export", _EXPORTS, summary.exports, _export, nothing="Nothing was exported.")
    no_gap = "No gap: nothing was pruned before it was exported."
    gaps = data_table("Gaps", _GAPS, summary.gaps, _gap, nothing=no_gap)
    lost = element("div", element("h3", "Gaps") if summary.gaps else None, gaps)
    ids = (joined((", topic id ", element("code", text))) for text in summary.head.state_topic_ids)
    return section("export", "Export", content, lost, note=joined((f"Of {STATE_TOPIC}", *ids)))


def _export(row: ExportRow) -> Cells:
    known = row.first_offset is not None and row.last_offset is not None
    return (
        number(row.state_partition), _offsets(row.first_offset or 0, row.last_offset or 0) if known else "none",
        number(row.records_read), number(row.records_decoded), number(row.records_quarantined),
        value(row.log_start_offset), value(row.log_end_offset), number(row.commits), instant(row.exported_at),
    )  # fmt: skip


def _gap(row: GapRow) -> Cells:
    lost = _offsets(row.first_offset, row.last_offset)
    return number(row.state_partition), lost, number(row.records), instant(row.exported_at)


def unknown_section(summary: Summary) -> Markup:
    lines = (element("li", text) for text in unknowns(summary))
    return section("not-known", "What is not known", element("ul", *lines, class_="plain"))
