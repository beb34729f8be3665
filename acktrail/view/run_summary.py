"""The summary of one reconciliation run: totals, rows and sentences, ready to render; and its rows as Arrow tables.

Offsets are Kafka's, both ends of a range inclusive. A count that is not known is None and has a reason beside it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import INSTANT, TABLES
from acktrail.model.record_history import ArchivedRange
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.commit_order import exported_before, in_order
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_findings import SAMPLED, newest_reconciliation
from acktrail.text_tables import KnownSum, printable
from acktrail.times import utc_text
from acktrail.view import check_rows, export_rows, finding_rows, partition_rows, wording

SCHEMA: Final = "acktrail-report/1"
"""Names the form of the JSON; ``docs/reference/report-schema.json`` describes it."""
_FIRST_DELIVERIES: Final = (
    "First deliveries are not persisted: a record that a consumer holds right now, or that was delivered and neither "
    "acknowledged nor released yet, looks available here."
)
_LAZY_START: Final = (
    "Kafka writes the start offset lazily: the real one may be past it by records that are already acknowledged or "
    "archived."
)
OF_THE_RUN: Final = ("share_partition_states", "reconciliations", "quality_results", "group_observations")
_FILTERED: Final = (*OF_THE_RUN, "findings", "offset_observations", "queue_statuses")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """Counts over the whole run."""

    groups: int
    share_partitions: int
    lag: KnownSum
    archived: KnownSum
    statuses: Mapping[str, int]
    """Share partitions by status; none where the run left no statuses."""
    group_statuses: Mapping[str, int]
    """Groups by the worst status of their share partitions."""
    verdicts: Mapping[str, int]
    findings: Mapping[str, int]
    expectations: Mapping[str, int]
    """Rules by result."""
    expectations_stopping: int
    """Critical expectations that failed or raised: they stopped the run."""
    records_exported: int
    records_quarantined: int
    gaps: int
    """Without what was pruned before the first export, and what the retention dropped."""
    gap_records: int
    commits: int
    """Commits of the exporter; one commit covers several state partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """Which run: it observed the cluster from `observed_from` to `observed_to`."""

    cluster_id: str | None
    run_id: str
    observed_from: datetime | None
    observed_to: datetime | None
    state_topic_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One reconciliation run, ready to render. `groups` and `partitions` have the worst first, group by group."""

    head: RunHead
    totals: RunTotals
    partitions: tuple[partition_rows.PartitionRow, ...]
    groups: tuple[partition_rows.GroupRow, ...]
    archived: tuple[partition_rows.ArchivedRow, ...]
    findings: tuple[finding_rows.FindingRow, ...]
    findings_seen_later: int
    """Findings that were there before this run ended and that a later run saw again: its rows, not this run's."""
    branches: Mapping[str, Mapping[str, Any]]
    """What branches have of the run, by the names of their sections."""
    expectations: tuple[check_rows.CheckResult, ...]
    exports: tuple[export_rows.ExportRow, ...]
    gaps: tuple[export_rows.GapRow, ...]


def summarize(tables: RunTables, run_id: str) -> Summary:
    """The summary of `run_id`; other runs' rows in `tables` are ignored.

    A run without any row gives a summary without rows: whether the run exists is the caller's question.
    """
    own = rows_of_run(tables, run_id)
    partitions = partition_rows.partition_rows(own.share_partition_states, own.reconciliations, own.queue_statuses)
    names = finding_rows.topic_names(own.topics)
    findings = sorted(
        (finding_rows.finding_row(row, names) for row in own.findings.to_pylist()),
        key=lambda row: (wording.severity_rank(row.severity), row.rule, row.subject),
    )
    groups = partition_rows.group_rows(own.group_observations, partitions)
    gaps = tuple(gap for gap in export_rows.gap_rows(own.export_ranges) if gap.tone != "info")
    expectations, exports = check_rows.newest_results(own.quality_results), export_rows.export_rows(own.export_ranges)
    # A commit has one instant, and a row for each state partition in it.
    commits = own.export_ranges.group_by(["run_id", "exported_at"], use_threads=False).aggregate([]).num_rows
    totals = RunTotals(
        groups=len(groups),
        share_partitions=len(partitions),
        lag=KnownSum.of(row.lag.value for row in partitions),
        archived=KnownSum.of(row.archived.value for row in partitions),
        statuses=wording.tally((row.status for row in partitions if row.status), wording.STATUSES),
        group_statuses=wording.tally((group.status for group in groups if group.status is not None), wording.STATUSES),
        verdicts=wording.tally((row.verdict for row in partitions), wording.VERDICT_MEANINGS),
        findings=wording.tally((row.severity for row in findings), wording.SEVERITIES),
        expectations=wording.tally((row.state for row in expectations), reversed(wording.RESULTS)),
        expectations_stopping=sum(row.stops for row in expectations),
        records_exported=sum(row.records_read for row in exports),
        records_quarantined=sum(row.records_quarantined for row in exports),
        gaps=len(gaps),
        gap_records=sum(gap.records or 0 for gap in gaps),
        commits=commits,
    )
    return Summary(
        head=_head(own, run_id),
        totals=totals,
        partitions=partitions,
        groups=groups,
        archived=partition_rows.archived_rows(own.share_partition_states, own.archived, own.archived_offsets),
        findings=tuple(findings),
        findings_seen_later=_seen_later(tables, own, run_id),
        branches=own.branches,
        expectations=expectations,
        exports=exports,
        gaps=gaps,
    )


def _head(tables: RunTables, run_id: str) -> RunHead:
    looks = _distinct(tables, ("reconciliations", *SAMPLED, "share_partition_states"), "observed_at")
    clusters = _distinct(tables, ("reconciliations", *SAMPLED, "export_ranges"), "cluster_id")
    return RunHead(
        cluster_id=", ".join(sorted(clusters)) or None,
        run_id=run_id,
        observed_from=min(looks, default=None),
        observed_to=max(looks, default=None),
        state_topic_ids=tuple(sorted(_distinct(tables, ("export_ranges",), "state_topic_id"))),
    )


def _distinct(tables: RunTables, names: Iterable[str], column: str) -> set[Any]:
    values = (value for name in names for value in getattr(tables, name)[column].unique().to_pylist())
    return {value for value in values if value is not None}


def _seen_later(tables: RunTables, own: RunTables, run_id: str) -> int:
    """The findings table keeps one row a finding, with the run that saw it last."""
    end = run_end(own)
    rows = tables.findings.select(["run_id", "rule", "first_seen_at", "last_seen_at"]).to_pylist()
    others = (row for row in rows if row["run_id"] != run_id and row["rule"] not in rule_catalogue().audits)
    spans = ((row["first_seen_at"], row["last_seen_at"]) for row in others)
    return sum(None not in (first, end, last) and first <= end < last for first, last in spans)


def summary_json(summary: Summary) -> str:
    """One JSON object in ASCII: `SCHEMA`, then the fields of `Summary`. Unknown is null, with a reason beside it;
    instants are ISO 8601 in UTC; counts by name are objects."""
    return as_json({"schema": SCHEMA, **asdict(summary)})


def as_json(form: Mapping[str, Any]) -> str:
    """Plain values as JSON in ASCII, instants in UTC to the microsecond, bytes in hex."""
    return json.dumps(form, default=lambda v: v.hex() if isinstance(v, bytes) else utc_text(v, "auto"))


def trouble(summary: Summary) -> tuple[str, str]:
    """Return a sentence and its tone: what stopped the run, how many findings are critical, and which groups are in
    trouble. If the run left no statuses, the sentence is about its verdicts; if no share group was found, about that.
    """
    totals = summary.totals
    critical, stopping = totals.findings.get("critical", 0), totals.expectations_stopping
    if not summary.groups and not summary.partitions and summary.head.observed_to is not None:
        nothing = f"No share group on this cluster at {wording.instant(summary.head.observed_to)}."
        return wording.critical_first((nothing, "ok"), stopping=stopping, critical_findings=critical)
    if not totals.group_statuses:
        return wording.critical_first(trail(summary), stopping=stopping, critical_findings=0)
    known = [(each.group_id, each.status, each.status_since) for each in summary.groups if each.status]
    worst = sorted(known, key=lambda each: wording.status_rank(each[1]))
    return wording.headline(worst, totals.group_statuses, stopping=stopping, critical_findings=critical)


def trail(summary: Summary) -> tuple[str, str]:
    """Whether the exported trail agrees with the cluster, in one sentence, and its tone."""
    tones = [wording.verdict_tone(row.verdict) for row in summary.partitions]
    if not tones:
        return "No share partition was seen in this run.", "unknown"
    urgent, unknown = tones.count("critical") + tones.count("warning"), tones.count("unknown")
    broken = _serious(row.severity for row in summary.findings)
    failed = _serious(row.severity for row in summary.expectations if row.state == "fails")
    parts = [
        f"{wording.number(tones.count('ok'))} of {wording.counted(len(tones), 'share partition')} match the cluster"
    ]
    parts += [f"{wording.number(urgent)} need{'s' if urgent == 1 else ''} attention"] if urgent else []
    parts += [f"{wording.number(unknown)} cannot be judged"] if unknown else []
    parts += [wording.counted(broken, "serious finding")] if broken else []
    parts += [wording.counted(failed, "serious expectation") + " failed"] if failed else []
    sure = "unknown" if unknown else "ok"
    return "; ".join(parts) + ".", "critical" if "critical" in tones or broken or failed else (
        "warning" if urgent else sure
    )


def _serious(severities: Iterable[str]) -> int:
    return sum(wording.severity_tone(severity) == "critical" for severity in severities)


def lines(summary: Summary) -> dict[str, str]:
    """What the run adds up to, a line for each subject."""
    totals = summary.totals
    lost = f" ({wording.counted(totals.gap_records, 'record')} lost)" if totals.gaps else ""
    partitions, read = totals.share_partitions, wording.counted(totals.records_exported, "record")
    return {
        "Total": f"{wording.counted(totals.groups, 'group')}, {wording.counted(partitions, 'share partition')}",
        "Lag": _over(totals.lag, "records"),
        "Archived": _over(totals.archived, "records seen"),
        "Trouble": trouble(summary)[0],
        "Groups": wording.counts_text(totals.group_statuses, "not known"),
        "Statuses": wording.counts_text(totals.statuses, "not known"),
        "Verdicts": wording.counts_text(totals.verdicts),
        "Rules": wording.counts_text(totals.expectations),
        "Export": f"{read} read, {wording.number(totals.records_quarantined)} quarantined, "
        f"{wording.counted(totals.gaps, 'gap')}{lost}",
        "Findings": wording.counts_text(totals.findings),
    }


def _over(records: KnownSum, noun: str) -> str:
    """What is known, and of how many share partitions nothing is."""
    if records.unknown and records.known:
        return f"{records} {noun}, unknown for {wording.counted(records.unknown, 'share partition')}"
    return "unknown" if records.unknown else f"{records} {noun}"


def archived_note(summary: Summary) -> str | None:
    """How many records are archived: in the current state, only in the history, and without known offsets."""
    now = sum(row.records for row in summary.archived if row.retained)
    earlier = sum(row.records for row in summary.archived) - now
    unlisted = summary.totals.archived.known - now - earlier
    parts = [f"{wording.counted(now, 'record')} in the current state: no consumer of its group will see them again"]
    parts += [f"{wording.number(earlier)} in the history only"] if earlier else []
    parts += [f"{wording.number(unlisted)} more whose offsets are not in the history"] if unlisted > 0 else []
    return "; ".join(parts) if now or earlier or unlisted > 0 else None


def unknowns(summary: Summary) -> tuple[str, ...]:
    """One sentence for each thing that is not known in this run, then what Kafka never reports."""
    totals, rows = summary.totals, summary.partitions
    incomplete = Counter(row.completeness for row in rows if row.completeness != "complete")
    found = [
        *_by_reason("start offset", (row.start_offset for row in rows)),
        *_by_reason("lag", (row.lag for row in rows)),
        *_by_reason("number of archived records", (row.archived for row in rows)),
        *(
            f"The whole state of {wording.counted(count, 'share partition')}: {word.replace('_', ' ')}."
            for word, count in sorted(incomplete.items())
        ),
    ]
    if totals.gaps:
        lost = wording.counted(totals.gap_records, "record")
        why = "Kafka pruned them, or replaced their log, before the export read them"
        found.append(f"The content of {lost} of the state topic: {why}.")
    if totals.records_quarantined:
        kept = wording.counted(totals.records_quarantined, "record")
        found.append(f"The content of {kept} of the state topic: they could not be decoded; their bytes are kept.")
    if count := totals.expectations.get("not_evaluated", 0):
        found.append(f"Whether {wording.number(count)} of the expectations hold: they were not evaluated.")
    if summary.findings_seen_later:
        which = wording.counted(summary.findings_seen_later, "finding")
        found.append(f"Whether {which} that a later run saw again broke a rule in this run too.")
    return (*map(printable, found), _FIRST_DELIVERIES, _LAZY_START)


def _by_reason(what: str, figures: Iterable[partition_rows.Figure]) -> list[str]:
    reasons = Counter(figure.reason or "not reported" for figure in figures if figure.value is None)
    return [
        f"The {what} of {wording.counted(n, 'share partition')}: {reason}." for reason, n in sorted(reasons.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """Tables in the columns of `acktrail.format.columns.schemas.table_schemas`.

    `offset_observations` has rows where the run has no share partition: when it looked, and at which cluster.
    `queue_statuses` has rows of only the newest run, and may lack columns. `archived` is what ``delivery_history`` has
    of groups that archived more than their states show. `branches`: what branches have of the run, by the names of
    their sections of a report.
    """

    share_partition_states: pa.Table
    reconciliations: pa.Table
    findings: pa.Table
    quality_results: pa.Table
    export_ranges: pa.Table
    group_observations: pa.Table
    topics: pa.Table
    offset_observations: pa.Table = field(default_factory=TABLES["offset_observations"].empty_table)
    queue_statuses: pa.Table = field(default_factory=TABLES["queue_statuses"].empty_table)
    archived_offsets: pa.Table = field(default_factory=TABLES["archived_offsets"].empty_table)
    archived: tuple[ArchivedRange, ...] = ()
    branches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> RunTables:
        return cls(**{own.name: TABLES[own.name].empty_table() for own in fields(cls) if own.name in TABLES})


def shown_run(tables: Tables, run_id: str | None) -> str:
    """`run_id`, or the run observed last. Raises as `chosen_run`."""
    runs = tables.read("reconciliations", columns=("run_id", "run_number"))
    return chosen_run(runs, newest_reconciliation(tables)[0], run_id, root=tables.root)


def chosen_run(reconciliations: pa.Table, newest: str | None, wanted: str | None, *, root: str) -> str:
    """The run to show: `wanted`, else the one observed last. `newest` is the newest reconciliation, which may have no
    share partition. `root` is where the tables are, for the message.

    Raises:
        InputError: when nothing was reconciled yet.
        UnknownName: when `wanted` is no run in the table (with the runs observed last).
    """
    ordered = in_order(reconciliations, newest_first=True)
    known = [str(run_id) for run_id in pc.unique(ordered["run_id"]).to_pylist() if run_id is not None]
    if newest is not None and newest not in known:
        known.insert(0, newest)
    if wanted is not None and wanted not in known:
        raise UnknownName("run", wanted, nearest=known[:3])
    if not known:
        raise InputError(f"no reconcile run in {root}", hint="run `acktrail run reconcile` first")
    return wanted if wanted is not None else known[0]


def rows_of_run(tables: RunTables, run_id: str) -> RunTables:
    """What belongs to `run_id`: its own rows, and of topics and exports all that was known at its end."""
    own = {name: getattr(tables, name).filter(pc.field("run_id") == run_id) for name in _FILTERED}
    ended = run_end(replace(tables, **own))
    if ended is None:
        return replace(tables, **own)
    version = max((pc.max(own[name]["records_version"]).as_py() or 0 for name in SAMPLED), default=0) or None
    first_seen = pc.field("first_seen_at")
    return replace(
        tables,
        **own,
        export_ranges=tables.export_ranges.filter(exported_before(run_id, version, ended)),
        topics=tables.topics.filter(first_seen.is_null() | (first_seen <= pa.scalar(ended, INSTANT))),
    )


def run_end(own: RunTables) -> datetime | None:
    """The last time at which the run of these tables observed the cluster."""
    looks = (own.reconciliations, own.group_observations, own.offset_observations)
    ends = [pc.max(table["observed_at"]).as_py() for table in looks]
    return max((end for end in ends if end is not None), default=None)
