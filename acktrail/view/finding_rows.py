"""Findings as rows, the worst first: filtered, counted, one page at a time. Only the rows of a page become Python
values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.tables.open_findings import OpenRuns, open_runs
from acktrail.view import wording
from acktrail.view.queue_rows import ROWS_A_PAGE, ListPart, part_of

SHOWN: Final = ("open", "gone", "all")
"""Findings that are open (see ``acktrail.tables.open_findings``), those that are not any more, and both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFilter:
    """What is asked for; an empty text and None ask for everything. `first_seen`: not before this instant."""

    rule: str = ""
    severity: str = ""
    group_id: str = ""
    first_seen: datetime | None = None
    shown: str = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One rule broken by one subject; the evidence is a record's address in the state topic. `topic` None: the finding
    is about none, or only its id is known. `is_open` None: which run is the newest is not known, or was not asked."""

    rule: str
    severity: str
    subject: str
    detail: str
    group_id: str | None
    topic_id: str | None
    topic: str | None
    partition: int | None
    evidence_state_partition: int | None
    evidence_offset: int | None
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    times_seen: int | None
    run_id: str | None
    is_open: bool | None = None

    @property
    def urgency(self) -> tuple[Any, ...]:
        """Sort key: open ones first, the worst first, of one severity the newest first."""
        begun = 0.0 if self.first_seen_at is None else -self.first_seen_at.timestamp()
        return not self.is_open, wording.severity_rank(self.severity), begun, self.rule, self.subject


FINDING_COLUMNS: Final = tuple(name for name in FindingRow.__slots__ if name != "is_open")
"""Columns of ``findings`` that a row has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingPage:
    """A part of the findings that the filter lets through. `severities` and `rules` count those that it would let
    through with any severity, or any rule."""

    rows: tuple[FindingRow, ...]
    part: ListPart
    severities: dict[str, int]
    rules: dict[str, int]


def finding_page(
    findings: pa.Table, wanted: FindingFilter, *, runs: OpenRuns, topics: Mapping[str, str], at: int = 1
) -> FindingPage:
    """Part `at` of rows of ``findings``, or the nearest that there is. `runs`: the newest ones; `topics`: names by
    topic id, for findings that have none."""
    ranked = _ranked(_chosen(findings, wanted, runs))
    by_severity = _equal(ranked, "rule", wanted.rule)
    by_rule = _equal(ranked, "severity", wanted.severity)
    found = _equal(by_severity, "severity", wanted.severity)
    order = [("rank", "ascending"), ("first_seen_at", "descending"), ("rule", "ascending"), ("subject", "ascending")]
    part = part_of(found.num_rows, at)
    page = found.sort_by(order).slice(part.first, ROWS_A_PAGE)
    return FindingPage(
        rows=tuple(finding_row(row, topics, runs) for row in page.drop_columns(["rank"]).to_pylist()),
        part=part,
        severities=wording.tally(map(wording.canonical, by_severity["severity"].to_pylist()), wording.SEVERITIES),
        rules=wording.tally(rule or "" for rule in by_rule["rule"].to_pylist()),
    )


def finding_row(row: Mapping[str, Any], topics: Mapping[str, str], runs: OpenRuns | None = None) -> FindingRow:
    """One row of ``findings``, open where the newest `runs` saw it."""
    own = {name: row[name] for name in FINDING_COLUMNS}
    texts = {name: row[name] or "" for name in ("rule", "subject", "detail")}
    topic = row["topic"] if row["topic"] is not None else topics.get(row["topic_id"] or "")
    is_open = None if runs is None else runs.is_open(row["rule"], row["run_id"])
    return FindingRow(
        **{**own, **texts, "severity": wording.canonical(row["severity"]), "topic": topic, "is_open": is_open}
    )


def open_findings(tables: Tables, runs: OpenRuns | None = None, *, gone_too: bool = False) -> tuple[FindingRow, ...]:
    """The findings that the newest `runs` saw, by `FindingRow.urgency`; with `gone_too` also those of earlier ones
    alone. Where no run is known there are none. Raises ConfigurationError, RetryableError: a table cannot be read."""
    runs = runs or open_runs(tables)
    where = None if gone_too else one_of("run_id", runs.run_ids)
    rows = tables.read("findings", columns=FINDING_COLUMNS, where=where).to_pylist() if runs.run_ids else []
    is_named = all(row["topic"] is not None or row["topic_id"] is None for row in rows)
    names = {} if is_named else topic_names(tables.read("topics", columns=["topic_id", "topic"]))
    return tuple(sorted((finding_row(row, names, runs) for row in rows), key=lambda row: row.urgency))


def seen_text(row: FindingRow) -> str:
    """Since when a finding is there and how often it was seen; of one that is gone, when it was seen last."""
    times = "" if row.times_seen is None else f", {wording.counted(row.times_seen, 'time')}"
    if row.is_open is False:
        return f"last {wording.instant(row.last_seen_at)}{times}; not open any more"
    return f"since {wording.instant(row.first_seen_at)}{times}"


def topic_names(topics: pa.Table) -> dict[str, str]:
    """Names by topic id, from rows of ``topics``."""
    pairs = zip(topics["topic_id"].to_pylist(), topics["topic"].to_pylist(), strict=True)
    return {topic_id: name for topic_id, name in pairs if topic_id is not None and name is not None}


def open_and_gone(findings: pa.Table, runs: OpenRuns) -> tuple[Any, Any]:
    """Which of the rows may be open, and which may be closed, as masks."""
    rules = pc.dictionary_encode(findings["rule"], null_encoding="encode").combine_chunks()
    of_rules = pa.array([runs.newest(rule) for rule in rules.dictionary.to_pylist()], pa.string())
    newest = of_rules.take(rules.indices)
    is_unknown = pc.is_null(newest)
    is_open = pc.fill_null(pc.equal(findings["run_id"], newest), fill_value=False)
    return pc.or_(is_unknown, is_open), pc.invert(is_open)


def _chosen(findings: pa.Table, wanted: FindingFilter, runs: OpenRuns) -> pa.Table:
    """Without the filters by rule and severity. Those that may be open or not are in both parts."""
    found = _equal(findings, "group_id", wanted.group_id)
    if wanted.shown != "all":
        of_open, of_gone = open_and_gone(found, runs)
        found = found.filter(of_open if wanted.shown == "open" else of_gone)
    if wanted.first_seen is not None:
        since = pa.scalar(wanted.first_seen, type=found["first_seen_at"].type)
        found = found.filter(pc.greater_equal(found["first_seen_at"], since))
    return found


def _equal(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value)) if value else table


def _ranked(findings: pa.Table) -> pa.Table:
    """With the rank of the severity; one that this release does not know is the last."""
    ranks = pc.index_in(findings["severity"], value_set=pa.array(wording.SEVERITIES, pa.string()))
    return findings.append_column("rank", pc.fill_null(ranks, fill_value=len(wording.SEVERITIES)))
