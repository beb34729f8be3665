"""What pages list, as rows made from tables.

Findings, the worst first: filtered, counted, one page at a time; only the rows of a page become Python values. Results
of rules: one by one, and as a grid with a row for each rule and a column for each run, the newest first. What was
exported: how far each state partition was read, gaps with their reasons, and one state record as evidence: what it
says, its bytes in hex, and why it is in quarantine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect import source_batches
from acktrail.errors import AcktrailError
from acktrail.model.batches import DeliveryState
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import OpenRuns, open_runs
from acktrail.view import wording
from acktrail.view.queue_rows import ROWS_A_PAGE, ListPart, part_of

SHOWN: Final = ("open", "gone", "all")
"""Findings that are open (see ``acktrail.tables.open_runs``), those that are not any more, and both."""
EXPORT_COLUMNS: Final = (
    *("cluster_id", "run_id", "state_topic_id", "state_partition", "first_offset", "last_offset", "records_read"),
    *("records_decoded", "records_quarantined", "log_start_offset", "log_end_offset", "gap_first", "gap_last"),
    *("gap_reason", "offset_shift", "exported_at"),
)
"""Columns of ``export_ranges`` that are shown."""
_REASONS: Final = {
    source_batches.PRUNED: ("critical", "Kafka pruned them between two exports"),
    source_batches.PRUNED_BEFORE_FIRST_EXPORT: ("info", "Kafka pruned them before the first export"),
    source_batches.LOST_FROM_TABLES: (
        "critical",
        "they were exported, the tables lost them, and Kafka has them no more",
    ),
    source_batches.LOG_REPLACED: ("warning", "the log was replaced here; how many records lie between is not known"),
    source_batches.DROPPED_BY_RETENTION: ("info", "they were exported and are not kept"),
    source_batches.SKIPPED_BY_REQUEST: ("warning", "a person moved the position past them"),
}
"""Tone and meaning of the reasons of a gap."""
GAP_REASONS: Final = tuple(_REASONS)
_FOLDS: Final = {
    "commits": ("exported_at", "count_distinct"),
    "first_offset": ("first_offset", "min"),
    "last_offset": ("last_offset", "max"),
    "gap_last": ("gap_last", "max"),
    "records_read": ("records_read", "sum"),
    "records_decoded": ("records_decoded", "sum"),
    "records_quarantined": ("records_quarantined", "sum"),
    "log_start_offset": ("log_start_offset", "last"),
    "log_end_offset": ("log_end_offset", "last"),
    "offset_shift": ("offset_shift", "last"),
    "exported_at": ("exported_at", "max"),
}
"""Column and aggregation of what is known of a state partition over all its commits."""
BYTES_SHOWN: Final = 1_024
BATCHES_SHOWN: Final = 100
_WIDTH: Final = 16
_NUMBERS: Final = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
_TIMES: Final = (("created", "create_timestamp_ms"), ("written", "write_timestamp_ms"))
_STATES: Final = {each.value: each.name.lower() for each in DeliveryState}


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
    where = None if gone_too else pc.field("run_id").isin(list(runs.run_ids))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One stored result. `state` is one of ``RESULTS``; `stops`: it stopped the run. `observed_value`: examples of rows
    that break the rule; `why`: an error, or why nothing was compared."""

    suite: str
    expectation: str
    severity: str
    state: str
    stops: bool
    run_id: str | None
    evaluated_at: datetime | None
    element_count: int | None
    unexpected_count: int | None
    observed_value: str | None
    why: str

    @property
    def tone(self) -> str:
        return wording.result_tone(self.state, self.severity)

    @property
    def urgency(self) -> tuple[int, int, str, str]:
        """Sort key: what fails first, then the worst severity."""
        return wording.RESULTS.index(self.state), wording.severity_rank(self.severity), self.suite, self.expectation

    @property
    def mark(self) -> str:
        """What stands in a cell, so that the grid is read without its colours: ✓, the number of rows that break the
        rule, ✗ where that is not known, a dash."""
        if self.state in {"fails", "noted"}:
            return "✗" if self.unexpected_count is None else f"{self.unexpected_count:,}"
        return "✓" if self.state == "holds" else "\N{EN DASH}"

    @property
    def label(self) -> str:
        """The same in words."""
        if self.state in {"fails", "noted"} and self.unexpected_count is not None:
            return f"{self.state}, {self.unexpected_count:,} unexpected"
        return self.state.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """One rule of a suite with a cell for each run (None: the run has no result of it)."""

    suite: str
    expectation: str
    severity: str
    cells: tuple[CheckResult | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckGrid:
    """`runs`: the runs validated last and when, the newest first; `suites`: their rules by suite; `counts`: how many
    rules have each of ``RESULTS``, by run."""

    runs: tuple[tuple[str, datetime], ...]
    suites: Mapping[str, tuple[CheckRule, ...]]
    counts: tuple[Mapping[str, int], ...]


def newest_runs(results: pa.Table, most: int) -> list[tuple[str, datetime]]:
    """The runs validated last and when, the newest first, from rows of ``quality_results``."""
    known = results.select(["run_id", "evaluated_at"]).drop_null()
    newest = known.group_by("run_id").aggregate([("evaluated_at", "max")])
    ordered = newest.sort_by([("evaluated_at_max", "descending"), ("run_id", "descending")]).slice(0, most)
    return list(zip(ordered["run_id"].to_pylist(), ordered["evaluated_at_max"].to_pylist(), strict=True))


def check_grid(results: pa.Table, runs: Sequence[tuple[str, datetime]], *, suite: str = "") -> CheckGrid:
    """The grid of `runs` from rows of ``quality_results``; of several validations of a run the newest counts."""
    own = set(runs)
    by_rule: dict[tuple[str, str], dict[str, CheckResult]] = {}
    for row in results.to_pylist():
        if (row["run_id"], row["evaluated_at"]) in own and suite in {"", row["suite"]}:
            result = check_result(row)
            by_rule.setdefault((result.suite, result.expectation), {})[row["run_id"]] = result
    rules = sorted((_rule(name, found, runs) for name, found in by_rule.items()), key=_urgency)
    return CheckGrid(
        runs=tuple(runs),
        suites={name: tuple(rule for rule in rules if rule.suite == name) for name in sorted({r.suite for r in rules})},
        counts=tuple(Counter(cell.state for rule in rules if (cell := rule.cells[at])) for at in range(len(runs))),
    )


def newest_results(results: pa.Table) -> tuple[CheckResult, ...]:
    """The results of the newest validation: what fails first, then what was not evaluated, the worst first."""
    rows = results.to_pylist()
    newest = max((row["evaluated_at"] for row in rows if row["evaluated_at"] is not None), default=None)
    return tuple(sorted(map(check_result, (r for r in rows if r["evaluated_at"] == newest)), key=lambda r: r.urgency))


def check_result(row: Mapping[str, Any]) -> CheckResult:
    """One row of ``quality_results``, which may lack columns; a state that this release does not know is not
    evaluated."""
    state = row["state"] if row["state"] in wording.RESULTS else "not_evaluated"
    return CheckResult(
        **{name: row.get(name) for name in ("run_id", "evaluated_at", "element_count", "observed_value")},
        suite=row["suite"] or "",
        expectation=row["expectation"] or "",
        severity=wording.canonical(row["severity"]),
        state=state,
        stops=row["success"] is False and row["severity"] == "critical",
        unexpected_count=None if state == "not_evaluated" else row["unexpected_count"],
        why=row.get("error") or row.get("reason") or "",
    )


def _urgency(rule: CheckRule) -> tuple[int, int, str]:
    """Sort key: what fails in the newest run first, then the worst severity."""
    newest = rule.cells[0]
    rank = len(wording.RESULTS) if newest is None else wording.RESULTS.index(newest.state)
    return rank, wording.severity_rank(rule.severity), rule.expectation


def _rule(name: tuple[str, str], by_run: Mapping[str, CheckResult], runs: Sequence[tuple[str, datetime]]) -> CheckRule:
    cells = tuple(by_run.get(run_id) for run_id, _ in runs)
    newest = next(cell for cell in cells if cell is not None)
    return CheckRule(suite=name[0], expectation=name[1], severity=newest.severity, cells=cells)


def stopping_rules(results: pa.Table) -> int:
    """How many critical rules the newest validation found broken: they stopped the run. `results`: those of one run."""
    return sum(each.stops for each in newest_results(results))


def stopping_run(tables: Tables, run_id: str | None) -> int:
    """The same of a stored run; 0 where that cannot be read."""
    try:
        return stopping_rules(tables.read("quality_results", where=pc.field("run_id") == run_id))
    except AcktrailError:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRow:
    """Everything exported of one state partition. `first_offset` None: nothing. `next_offset`: where reading continues,
    in offsets of the tables. Log offsets are of the last commit; `behind`: records of the log that were there then and
    are not in the tables. None: not known."""

    state_partition: int
    commits: int
    first_offset: int | None
    last_offset: int | None
    next_offset: int | None
    behind: int | None
    records_read: int
    records_decoded: int
    records_quarantined: int
    log_start_offset: int | None
    log_end_offset: int | None
    exported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """Offsets of a state partition that no row has. `records` None: how many they are is not known."""

    state_partition: int
    first_offset: int
    last_offset: int
    records: int | None
    reason: str
    meaning: str
    tone: str
    exported_at: datetime | None


def export_rows(ranges: pa.Table) -> tuple[ExportRow, ...]:
    """One row a state partition, from ``EXPORT_COLUMNS`` of ``export_ranges``."""
    in_order = ranges.sort_by([("exported_at", "ascending")])
    folded = in_order.group_by("state_partition", use_threads=False).aggregate(list(_FOLDS.values()))
    rows = folded.sort_by("state_partition").to_pylist() if folded.num_rows else []
    return tuple(_export_row(row) for row in rows if row["state_partition"] is not None)


def _export_row(row: Mapping[str, Any]) -> ExportRow:
    values = {name: row[f"{column}_{fold}"] for name, (column, fold) in _FOLDS.items()}
    sums = {name: values[name] or 0 for name, (_, fold) in _FOLDS.items() if fold == "sum"}
    ends = [end for end in (values["last_offset"], values.pop("gap_last")) if end is not None]
    following, log_end, shift = max(ends) + 1 if ends else None, values["log_end_offset"], values.pop("offset_shift")
    # Kafka's own offsets lie below those of the tables once a log was replaced.
    behind = None if following is None or log_end is None else max(0, log_end + (shift or 0) - following)
    own = {**values, **sums, "next_offset": following, "behind": behind}
    return ExportRow(state_partition=row["state_partition"], **own)


def gap_rows(ranges: pa.Table) -> tuple[GapRow, ...]:
    """Every gap: those that lost something first, then by state partition and offset."""
    gaps = ranges.filter(pc.and_(pc.is_valid(ranges["gap_first"]), pc.is_valid(ranges["gap_last"])))
    return tuple(
        sorted(
            map(_gap, gaps.to_pylist()),
            key=lambda gap: (wording.TONES.index(gap.tone), gap.state_partition, gap.first_offset),
        )
    )


def _gap(row: Mapping[str, Any]) -> GapRow:
    reason = row["gap_reason"]
    tone, meaning = _REASONS.get(reason, ("unknown", "no imported file has them"))
    if reason not in {None, *_REASONS}:
        meaning = "a reason that this release does not know"
    first, last = row["gap_first"], row["gap_last"]
    return GapRow(
        state_partition=row["state_partition"],
        first_offset=first,
        last_offset=last,
        records=None if reason == source_batches.LOG_REPLACED else last - first + 1,
        reason=(reason or "in no file").replace("_", " "),
        meaning=meaning,
        tone=tone,
        exported_at=row["exported_at"],
    )


def record_evidence(row: Mapping[str, Any], topics: Mapping[str, str]) -> dict[str, Any]:
    """A row of ``state_records`` with the name of its topic by its id, and: `appended_at`; `facts`, what it says beside
    its batches, by the names of the columns in words; `batches`, the first of them with `state` in words, and how many
    are left off; `quarantined_because`, None where it was decoded."""
    batches = row["batches"] or ()
    return {
        **row,
        "appended_at": instant_of(row["timestamp_ms"]),
        "topic": topics.get(row["topic_id"] or ""),
        "facts": [
            *((name.replace("_", " "), row[name]) for name in _NUMBERS),
            *((name, instant_of(row[column])) for name, column in _TIMES),
        ],
        "batches": [{**each, "state": _state(each["delivery_state"])} for each in batches[:BATCHES_SHOWN]],
        "batches_left_off": max(0, len(batches) - BATCHES_SHOWN),
        "quarantined_because": _quarantine(row),
    }


def hex_lines(data: bytes) -> Iterator[str]:
    """The first bytes of `data`, sixteen a line: where they are, two digits each, and their printable ASCII."""
    shown = data[:BYTES_SHOWN]
    for at in range(0, len(shown), _WIDTH):
        line = shown[at : at + _WIDTH]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield f"{at:04x}  {line.hex(' '):<47}  {characters}"


def _state(state: int) -> str:
    return _STATES.get(state, f"state {state}")


def _quarantine(row: Mapping[str, Any]) -> str | None:
    status = row["decode_status"]
    if status in (None, "decoded"):
        return None
    words = str(status).replace("_", " ")
    return f"{words}: {row['decode_error']}" if row["decode_error"] else words


def instant_of(timestamp_ms: int | None) -> datetime | None:
    """ms since the epoch as an instant; None also beyond the calendar."""
    if timestamp_ms is None:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None
