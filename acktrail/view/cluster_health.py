"""Who is in trouble, since when and why, and how far that can be relied on: small tables alone, no history and no
broker."""

from __future__ import annotations

import datetime as dt
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import AcktrailError
from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.model.log_positions import LOG_REPLACED, LOST_FROM_TABLES, PRUNED
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.tables.cluster_check import EXPORTED_TABLES, cluster_of
from acktrail.tables.commit_order import SKEW, WRITTEN, greatest, newest_rows, runs_ahead
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_findings import newest_reconciliation, open_runs
from acktrail.times import utc_text
from acktrail.view import queue_rows
from acktrail.view.finding_rows import FindingRow, open_findings
from acktrail.view.record_evidence import instant_of
from acktrail.view.wording import SEVERITIES, ago, tally

_STALE: Final = dt.timedelta(hours=1)
"""Without an export for that long, records are being lost wherever a group works: Kafka prunes every five minutes."""
_UNKNOWN_TOPIC: Final = 3
LOSSES: Final = (PRUNED, LOST_FROM_TABLES, LOG_REPLACED)
"""Gaps that are losses. The others are what a person asked for, or what was pruned before there was an export."""


class NotKnown(Exception):
    """Why something is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapsOfReason:
    """All gaps of one reason; `offsets` are in no row. `newest_at`: when the newest was recorded."""

    gaps: int
    offsets: int
    newest_at: dt.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """None is not known; `unknown` has the reason, by field.

    `newest_record_ms`: the broker's time of the newest state record. `exported_at`: when an export or an observation
    last wrote, in the order of commits. `ahead`: runs that wrote at a time in the future, and when. `gaps`: of the
    export, by reason. `reconciled_at`: of the newest reconciliation, as `verdicts` (share partitions by verdict).
    `queues` are the share partitions, `groups` their groups (`acktrail.view.queue_rows`), worst
    first. `findings`: open ones, those of the branches' newest audits among them. `changes`: of status, newest first,
    as the pages count them.
    """

    cluster_id: str | None = None
    newest_record_ms: int | None = None
    exported_at: dt.datetime | None = None
    ahead: Mapping[str, dt.datetime] | None = None
    reconciled_at: dt.datetime | None = None
    verdicts: Mapping[str, int] | None = None
    observed_at: dt.datetime | None = None
    run_id: str | None = None
    queues: pa.Table | None = None
    groups: pa.Table | None = None
    findings: tuple[FindingRow, ...] | None = None
    gaps: Mapping[str, GapsOfReason] | None = None
    no_share_group: str | None = None
    """The sentence that there is none; None: there is one, or that is not known."""
    changes: pa.Table | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    unread: AcktrailError | None = None
    """Why the first table that cannot be read cannot; None: all could be read, however empty they are."""

    @property
    def newest_record_at(self) -> dt.datetime | None:
        """`newest_record_ms` as an instant."""
        return instant_of(self.newest_record_ms)

    @property
    def statuses(self) -> dict[str, int]:
        """Numbers of share partitions by status, worst first. A status that no share partition has is left out."""
        return queue_rows.status_counts(self.queues)

    @property
    def group_statuses(self) -> dict[str, int]:
        """Numbers of groups by status, worst first. A status that no group has is left out."""
        return queue_rows.status_counts(self.groups)

    @property
    def severities(self) -> dict[str, int] | None:
        """Open findings by severity, worst first, without those that none has."""
        return None if self.findings is None else tally((each.severity for each in self.findings), SEVERITIES)

    @property
    def lasting_gaps(self) -> tuple[int, int] | None:
        """Gaps that are losses, and their offsets."""
        if self.gaps is None or self.exported_at is None:
            return None
        own = [each for reason, each in self.gaps.items() if reason in LOSSES]
        return sum(each.gaps for each in own), sum(each.offsets for each in own)

    def urgency(self, now: dt.datetime) -> tuple[tuple[bool, ...], float]:
        """Sort key of clusters, least urgent first: what a person has to look at, the gravest sign before the others,
        then how old the export is, in seconds."""
        age = dt.timedelta.max if self.exported_at is None else now - self.exported_at
        severities = self.severities or {}
        signs = (
            self.exported_at is None,
            "critical" in severities,
            age > _STALE,
            "error" in severities,
            self.lasting_gaps not in (None, (0, 0)),
            "warning" in severities,
            bool(self.unknown.keys() & {"verdicts", "findings"}),
        )
        return signs, age.total_seconds()

    def of_groups(self, patterns: Sequence[str]) -> ClusterHealth:
        """Groups, share partitions, findings and changes of groups whose id matches one of `patterns` (shell style);
        all of them where there is none. Raises NothingMatches: the groups are known, and none does."""
        if not patterns:
            return self
        known = () if self.groups is None else self.groups["group_id"].to_pylist()
        matches = queue_rows.like("group", patterns, known)

        def chosen(rows: pa.Table | None) -> pa.Table | None:
            if rows is None:
                return None
            return rows.filter(pa.array(map(matches, rows["group_id"].to_pylist()), pa.bool_()))

        findings = None if self.findings is None else tuple(each for each in self.findings if matches(each.group_id))
        queues, groups, changes = map(chosen, (self.queues, self.groups, self.changes))
        return replace(self, queues=queues, groups=groups, changes=changes, findings=findings)

    def to_look_at(self) -> list[str]:
        """What a person should look at, if not now, the worst first."""
        return [f"{count:,} share partition(s) {status}" for status, count in self._by_urgency(Urgency.LOOK).items()]

    def to_act_on(self, now: dt.datetime, stale_after: dt.timedelta) -> list[str]:
        """Why a person should act now, most urgent first, each with the command that shows or does more; none:
        there is no reason. What is not known, or older than `stale_after`, is a reason too."""
        reasons = [
            f"{count:,} share partition(s) {status}: `acktrail groups describe {self._first_with(status)}`"
            for status, count in self._by_urgency(Urgency.ACT).items()
        ]
        critical = (self.severities or {}).get("critical", 0)
        reasons += [f"{critical:,} critical finding(s): `acktrail findings --severity critical`"] if critical else []
        ends = (("export", "run export", self.exported_at), ("statuses", "run reconcile", self.observed_at))
        for subject, command, at in ends:
            if at is not None and now - at > stale_after:
                reasons.append(f"the {subject} ended {ago(at, now)}: `acktrail {command}`")
        for run_id, at in (self.ahead or {}).items():
            reasons.append(f"run {run_id} wrote at {utc_text(at)}, in the future: correct the clock of its machine")
        return [*reasons, *dict.fromkeys(self.unknown.values())]

    def _by_urgency(self, urgency: Urgency) -> dict[str, int]:
        known = self.statuses.items()
        return {status: count for status, count in known if STATUS_TABLE[QueueStatus(status)].urgency is urgency}

    def _first_with(self, status: str) -> str:
        """The group of the first share partition with `status`, as a shell takes it."""
        rows = pa.table({}) if self.queues is None else self.queues
        return shlex.quote(rows.filter(pc.field("status") == status)["group_id"][0].as_py())


def cluster_health(tables: Tables, now: dt.datetime) -> ClusterHealth:
    """What `tables` say, with the changes of status of the 24 hours before `now`; what one damaged table hides is not
    known, and nothing else."""
    found: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    unread: list[AcktrailError] = []
    parts: dict[str, Callable[[], Any]] = {
        "cluster_id": lambda: cluster(tables),
        "newest_record_ms": lambda: greatest(tables, "state_records", "timestamp_ms"),
        "exported_at": lambda: newest_export(tables, now),
        "ahead": lambda: runs_ahead(tables, now),
        "verdicts": lambda: newest_verdicts(tables),
        "queues": lambda: _queues(tables),
        "findings": lambda: open_findings(tables, runs) if (runs := open_runs(tables)).run_ids else None,
        "gaps": lambda: export_gaps(tables),
        "changes": lambda: _changes(tables, now - dt.timedelta(days=1)),
    }
    for name, answer in parts.items():
        try:
            value = answer()
            found |= value if name in {"verdicts", "queues"} else {name: value}
        except NotKnown as why:
            unknown[name] = str(why)
        except AcktrailError as error:
            unknown[name] = error.message
            unread.append(error)
    return ClusterHealth(**found, unknown=unknown, unread=next(iter(unread), None))


def _queues(tables: Tables) -> dict[str, Any]:
    """A run that saw no share partition has totals; without them nothing is known."""
    rows = queue_rows.worst_first(tables.read("queue_statuses", columns=queue_rows.COLUMNS))
    columns = ["observed_at", "run_id"]
    runs = rows.select(columns) if rows.num_rows else newest_rows(tables, "run_totals", columns)
    if not runs.num_rows:
        raise NotKnown("no status was written yet: run `acktrail run reconcile`")
    newest = runs.slice(0, 1).to_pylist()[0]
    nothing = None if rows.num_rows else no_share_group(tables, newest["run_id"])
    return {"queues": rows, "groups": queue_rows.groups_of(rows), **newest, "no_share_group": nothing}


def _changes(tables: Tables, since: dt.datetime) -> pa.Table:
    where = pc.field("changed_at") >= pa.scalar(since, INSTANT)
    return queue_rows.newest_first(queue_rows.worth_telling(tables.read("status_changes", where=where)))


def cluster(tables: Tables) -> str | None:
    """The cluster of the tables; None: nothing was exported yet."""
    snapshots = filter(None, map(tables.snapshot, EXPORTED_TABLES))
    return next(filter(None, map(cluster_of, snapshots)), None)


def newest_export(tables: Tables, now: dt.datetime) -> dt.datetime:
    """When an export or an observation last wrote, in the order of commits. Raises NotKnown."""
    rows = (newest_rows(tables, name, [column])[column] for name, column in WRITTEN.items())
    instants: list[dt.datetime] = [at for at in (pc.max(own).as_py() for own in rows) if at is not None]
    if not instants:
        raise NotKnown("nothing was exported yet")
    known = [at for at in instants if at <= now + SKEW]
    if not known:
        raise NotKnown("the age of the newest export is not known: its time is in the future")
    return max(known)


def newest_verdicts(tables: Tables) -> dict[str, Any]:
    """When the newest reconciliation was (`reconciled_at`), and its share partitions by verdict (`verdicts`). Raises
    NotKnown."""
    run, instant = newest_reconciliation(tables)
    if run is None:
        raise NotKnown("nothing was reconciled yet: run `acktrail run reconcile`")
    rows = tables.rows("reconciliations", {"run_id": run}, columns=["verdict"])
    return {"reconciled_at": instant, "verdicts": dict(sorted(Counter(row["verdict"] for row in rows).items()))}


def no_share_group(tables: Tables, run_id: str) -> str | None:
    """The sentence that the observation `run_id` saw no share group, and when; None: it saw one, or may not have seen
    one. A look that found nothing has a row about the state topic."""
    own, columns = {"run_id": run_id}, ["observed_at", "error_code"]
    if tables.rows("group_observations", own, columns=["group_id"]):
        return None
    looks = tables.rows("offset_observations", own, columns=columns)
    if not looks or {row["error_code"] for row in looks} - {0, _UNKNOWN_TOPIC}:
        return None
    return f"no share group on this cluster at {utc_text(max(row['observed_at'] for row in looks))}"


def export_gaps(tables: Tables) -> dict[str, GapsOfReason]:
    """By reason; a reason without a gap is left out. A break of a log is one offset of the tables that no record of
    Kafka's ever had. Raises ConfigurationError, RetryableError: the table cannot be read."""
    columns = ["gap_first", "gap_last", "gap_reason", "exported_at"]
    is_gap = pc.field("gap_first").is_valid() & pc.field("gap_last").is_valid()
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in tables.read("export_ranges", columns=columns, where=is_gap).to_pylist():
        found[str(row["gap_reason"])].append(row)
    return {
        reason: GapsOfReason(
            gaps=len(rows),
            offsets=0 if reason == LOG_REPLACED else sum(row["gap_last"] - row["gap_first"] + 1 for row in rows),
            newest_at=max((row["exported_at"] for row in rows if row["exported_at"] is not None), default=None),
        )
        for reason, rows in sorted(found.items())
    }
