"""Who is in trouble, since when and why, and how far that can be relied on: small tables alone, no history and no
broker."""

from __future__ import annotations

import datetime as dt
import fnmatch
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import PRUNED_BEFORE_FIRST_EXPORT
from acktrail.errors import AcktrailError
from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import open_runs
from acktrail.times import ago_text
from acktrail.view.health import status_reader
from acktrail.view.health.open_findings import SEVERITIES, SeenFinding, open_findings
from acktrail.view.health.table_facts import (
    GapsOfReason,
    NotKnown,
    cluster,
    export_gaps,
    greatest,
    newest_export,
    newest_verdicts,
    no_share_group,
)

_OUTCOMES: Final = ("acknowledged", "released", "archived")
_COLUMNS: Final = (
    *("run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since", "reason"),
    *("evidence_state_partition", "evidence_offset", "group_state", "members", "unfinished_records"),
    *_OUTCOMES,
)
_AGGREGATES: Final = (
    ("group_id", "count"),
    *((name, "sum") for name in ("unfinished_records", "unfinished_unknown", *_OUTCOMES)),
    ("status_since", "min"),
    *((name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in ("group_state", "members")),
)
_CHANGE_COLUMNS: Final = ("changed_at", "group_id", "topic", "topic_id", "partition", "before", "after", "reason")
_RANK: Final = {status: rank for rank, status in enumerate(STATUS_TABLE)}
_QUIET: Final = pa.array([status.value for status, row in STATUS_TABLE.items() if row.urgency is Urgency.NOTHING])
_STALE: Final = dt.timedelta(hours=1)
"""Without an export for that long, records are being lost wherever a group works: Kafka prunes every five minutes."""
_PartT = TypeVar("_PartT")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """One share partition as of the newest reconciliation. `topic` is the id where the name is not known."""

    group_id: str
    topic: str
    partition: int
    status: QueueStatus
    since: dt.datetime | None
    unfinished_records: int | None
    reason: str | None
    evidence: tuple[int, int] | None
    """State partition and offset of the newest state record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHealth:
    """One group: `status` is the worst of its share partitions, `since` when the first of them came to it.
    `unfinished_records` is the sum of those that are known, `unfinished_unknown` the number of others.
    `outcomes`: deliveries that ended within the windows of its share partitions, by outcome."""

    group_id: str
    status: QueueStatus
    since: dt.datetime | None
    statuses: Mapping[QueueStatus, int]
    unfinished_records: int
    unfinished_unknown: int
    group_state: str | None
    members: int | None
    outcomes: Mapping[str, int]

    @property
    def share_partitions(self) -> int:
        return sum(self.statuses.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentChange:
    """One change of status."""

    changed_at: dt.datetime
    group_id: str
    topic: str
    partition: int
    before: str | None
    after: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """None is not known; `unknown` has the reason, by field.

    `newest_record_ms`: the broker's time of the newest state record. `exported_at`: when an export or an observation
    last wrote. `gaps`: of the export, by reason. `reconciled_at`: of the newest reconciliation, as `verdicts` (share
    partitions by verdict). `groups` and `queues` are worst first; `queues` are those in trouble. `findings`: open ones,
    those of the branches' newest audits among them.
    """

    cluster_id: str | None = None
    newest_record_ms: int | None = None
    exported_at: dt.datetime | None = None
    reconciled_at: dt.datetime | None = None
    verdicts: Mapping[str, int] | None = None
    observed_at: dt.datetime | None = None
    run_id: str | None = None
    groups: tuple[GroupHealth, ...] | None = None
    queues: tuple[QueueHealth, ...] | None = None
    findings: tuple[SeenFinding, ...] | None = None
    gaps: Mapping[str, GapsOfReason] | None = None
    no_share_group: str | None = None
    """The sentence that there is none; None: there is one, or that is not known."""
    changes: tuple[RecentChange, ...] | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def statuses(self) -> dict[QueueStatus, int]:
        """Share partitions by status, worst first, without those that none has."""
        groups = self.groups or ()
        counts = {status: sum(group.statuses.get(status, 0) for group in groups) for status in STATUS_TABLE}
        return {status: count for status, count in counts.items() if count}

    @property
    def group_statuses(self) -> dict[QueueStatus, int]:
        """Groups by status, worst first, without those that none has."""
        counts = Counter(group.status for group in self.groups or ())
        return {status: counts[status] for status in STATUS_TABLE if counts[status]}

    @property
    def severities(self) -> dict[str, int] | None:
        """Open findings by severity, worst first, without those that none has."""
        if self.findings is None:
            return None
        counts = Counter(finding.severity for finding in self.findings)
        return {severity: counts[severity] for severity in SEVERITIES if counts[severity]}

    @property
    def lasting_gaps(self) -> tuple[int, int] | None:
        """Gaps since the first export, and their offsets: what Kafka had pruned before is no fault of the export's."""
        if self.gaps is None or self.exported_at is None:
            return None
        own = [each for reason, each in self.gaps.items() if reason != PRUNED_BEFORE_FIRST_EXPORT]
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
        all of them where there is none."""
        if not patterns:
            return self

        def chosen(parts: tuple[_PartT, ...] | None, group_id: Callable[[_PartT], str | None]) -> Any:
            return None if parts is None else tuple(part for part in parts if _matches(group_id(part), patterns))

        return replace(
            self,
            groups=chosen(self.groups, lambda group: group.group_id),
            queues=chosen(self.queues, lambda queue: queue.group_id),
            findings=chosen(self.findings, lambda finding: finding.group_id),
            changes=chosen(self.changes, lambda change: change.group_id),
        )

    def to_look_at(self) -> list[str]:
        """What a person should look at, if not now, the worst first."""
        looks = {
            status: count for status, count in self.statuses.items() if STATUS_TABLE[status].urgency is Urgency.LOOK
        }
        return [f"{count:,} share partition(s) {status.value}" for status, count in looks.items()]

    def _first_with(self, status: QueueStatus) -> str:
        """The first group with `status`, as a shell takes it."""
        return shlex.quote(next(group.group_id for group in self.groups or () if status in group.statuses))

    def to_act_on(self, now: dt.datetime, stale_after: dt.timedelta) -> list[str]:
        """Why a person should act now, most urgent first, each with the command that shows or does more; none:
        there is no reason. What is not known, or older than `stale_after`, is a reason too."""
        urgent = {status: count for status, count in self.statuses.items() if is_urgent(status)}
        reasons = [
            f"{count:,} share partition(s) {status.value}: `acktrail groups describe {self._first_with(status)}`"
            for status, count in urgent.items()
        ]
        critical = (self.severities or {}).get("critical", 0)
        reasons += [f"{critical:,} critical finding(s): `acktrail findings --severity critical`"] if critical else []
        ends = (("export", "run export", self.exported_at), ("statuses", "run reconcile", self.observed_at))
        for subject, command, at in ends:
            if at is not None and now - at > stale_after:
                reasons.append(f"the {subject} ended {ago_text((now - at).total_seconds())}: `acktrail {command}`")
        return [*reasons, *dict.fromkeys(self.unknown.values())]


def is_urgent(status: QueueStatus) -> bool:
    """Whether a person should act on `status` now."""
    return STATUS_TABLE[status].urgency is Urgency.ACT


def cluster_health(tables: Tables, now: dt.datetime) -> ClusterHealth:
    """What `tables` say, with the changes of status of the 24 hours before `now`; what one damaged table hides is not
    known, and nothing else."""
    found: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    parts: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
        ("cluster_id", lambda: {"cluster_id": cluster(tables)}),
        ("newest_record_ms", lambda: {"newest_record_ms": greatest(tables, "state_records", "timestamp_ms")}),
        ("exported_at", lambda: {"exported_at": newest_export(tables)}),
        ("verdicts", lambda: newest_verdicts(tables)),
        ("queues", lambda: _statuses(tables)),
        ("findings", lambda: _findings(tables)),
        ("gaps", lambda: {"gaps": export_gaps(tables)}),
        ("changes", lambda: {"changes": _changes(tables, now - dt.timedelta(days=1))}),
    )
    for name, read in parts:
        try:
            found |= read()
        except NotKnown as why:
            unknown[name] = str(why)
        except AcktrailError as error:
            unknown[name] = error.message
    return ClusterHealth(**found, unknown=unknown)


def _findings(tables: Tables) -> dict[str, Any]:
    runs = open_runs(tables)
    return {"findings": open_findings(tables, runs) if runs.run_ids else None}


def _statuses(tables: Tables) -> dict[str, Any]:
    rows = status_reader.statuses(tables, _COLUMNS)
    if not rows.num_rows:
        return _no_queues(tables)
    added = rows.append_column("unfinished_unknown", pc.cast(pc.is_null(rows["unfinished_records"]), pa.int64()))
    counted = added.group_by(["group_id", "status"], use_threads=False).aggregate(_AGGREGATES).to_pylist()
    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in counted:
        by_group.setdefault(row["group_id"], []).append(row)
    in_trouble = rows.filter(pc.invert(pc.is_in(rows["status"], value_set=_QUIET)))
    newest = pc.max(rows["observed_at"]).as_py()
    return {
        "queues": tuple(map(_queue, in_trouble.to_pylist())),
        "groups": tuple(sorted(map(_group, by_group.values()), key=_group_order)),
        "observed_at": newest,
        "run_id": rows.filter(pc.equal(rows["observed_at"], pa.scalar(newest, INSTANT)))["run_id"][0].as_py(),
    }


def _no_queues(tables: Tables) -> dict[str, Any]:
    """A run that saw no share partition has totals; without them nothing is known."""
    runs = status_reader.run_totals(tables).select(["observed_at", "run_id"]).to_pylist()
    if not runs:
        raise NotKnown("no status was written yet: run `acktrail run reconcile`")
    return {"queues": (), "groups": (), **runs[-1], "no_share_group": no_share_group(tables, runs[-1]["run_id"])}


def _rank(row: Mapping[str, Any]) -> int:
    return _RANK[QueueStatus(row["status"])]


def _group_order(group: GroupHealth) -> tuple[int, int, str]:
    return _RANK[group.status], -group.unfinished_records, group.group_id


def _queue(row: Mapping[str, Any]) -> QueueHealth:
    evidence = row["evidence_state_partition"], row["evidence_offset"]
    return QueueHealth(
        group_id=row["group_id"],
        topic=_topic(row),
        partition=row["partition"],
        status=QueueStatus(row["status"]),
        since=row["status_since"],
        unfinished_records=row["unfinished_records"],
        reason=row["reason"],
        evidence=None if None in evidence else evidence,
    )


def _group(rows: Sequence[Mapping[str, Any]]) -> GroupHealth:
    """Of the sums of one group, one row a status."""
    first = min(rows, key=_rank)
    counts: Counter[QueueStatus] = Counter()
    for row in rows:
        counts[QueueStatus(row["status"])] += row["group_id_count"]
    return GroupHealth(
        group_id=first["group_id"],
        status=QueueStatus(first["status"]),
        since=first["status_since_min"],
        statuses={status: counts[status] for status in STATUS_TABLE if counts[status]},
        unfinished_records=sum(row["unfinished_records_sum"] or 0 for row in rows),
        unfinished_unknown=sum(row["unfinished_unknown_sum"] for row in rows),
        group_state=first["group_state_first"],
        members=first["members_first"],
        outcomes={name: sum(row[f"{name}_sum"] or 0 for row in rows) for name in _OUTCOMES},
    )


def _changes(tables: Tables, since: dt.datetime) -> tuple[RecentChange, ...]:
    """Newest first; without the share partitions that were seen for the first time."""
    rows = status_reader.changes(tables, since).select(list(_CHANGE_COLUMNS)).to_pylist()
    return tuple(
        RecentChange(
            **{name: row[name] for name in _CHANGE_COLUMNS if name not in {"topic", "topic_id"}}, topic=_topic(row)
        )
        for row in rows
        if row["before"] is not None
    )


def _topic(row: Mapping[str, Any]) -> str:
    return str(row["topic"] or row["topic_id"] or "")


def _matches(group_id: str | None, patterns: Sequence[str]) -> bool:
    return group_id is not None and any(fnmatch.fnmatchcase(group_id, pattern) for pattern in patterns)
