"""Who is in trouble, since when and why, and how far that can be relied on: small tables alone, no history and no
broker."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import pyarrow.compute as pc

from acktrail.errors import AcktrailError
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.tables.cluster_overview import ClusterOverview, cluster_overview, newest_reconciliation
from acktrail.tables.delta.store import Tables
from acktrail.tables.health.export_gaps import GapsOfReason, export_gaps
from acktrail.tables.health.open_findings import SEVERITIES, SeenFinding, open_findings

_COLUMNS: Final = (
    *("run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since", "reason"),
    *("evidence_state_partition", "evidence_offset", "group_state", "members", "lag", "max_delivery_count"),
    *("acknowledged", "released", "archived"),
)
_CHANGE_COLUMNS: Final = ("changed_at", "group_id", "topic", "topic_id", "partition", "before", "after", "reason")
_RANK: Final = {status: rank for rank, status in enumerate(STATUS_TABLE)}
_NO_STATUS: Final = "no status was written yet: run `acktrail reconcile`"
_PartT = TypeVar("_PartT")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    """One share partition as of the newest reconciliation. `topic` is the id where the name is not known."""

    group_id: str
    topic: str
    partition: int
    status: QueueStatus
    since: dt.datetime | None
    lag: int | None
    reason: str | None
    evidence: tuple[int, int] | None
    """State partition and offset of the newest state record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHealth:
    """One group: `status` is the worst of its share partitions, `since` when the first of them came to it. `lag` is the
    sum of those that are known, `lag_unknown` the number of others. `outcomes`: deliveries that ended within the
    windows of its share partitions, by outcome."""

    group_id: str
    status: QueueStatus
    since: dt.datetime | None
    statuses: Mapping[QueueStatus, int]
    lag: int
    lag_unknown: int
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
    """None is not known; `unknown` has the reason, by field (those of `overview` too). `groups` and `queues` are worst
    first. `gaps`: of the export, by reason."""

    overview: ClusterOverview
    observed_at: dt.datetime | None = None
    run_id: str | None = None
    groups: tuple[GroupHealth, ...] | None = None
    queues: tuple[QueueHealth, ...] | None = None
    findings: tuple[SeenFinding, ...] | None = None
    gaps: Mapping[str, GapsOfReason] | None = None
    changes: tuple[RecentChange, ...] | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def statuses(self) -> dict[QueueStatus, int]:
        """Share partitions by status, worst first, without those that none has."""
        return _by_status(queue.status for queue in self.queues or ())

    @property
    def group_statuses(self) -> dict[QueueStatus, int]:
        """Groups by status, worst first, without those that none has."""
        return _by_status(group.status for group in self.groups or ())

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

    def to_act_on(self, now: dt.datetime, stale_after: dt.timedelta) -> list[str]:
        """Why a person should act now, most urgent first; none: there is no reason. What is not known, or older than
        `stale_after`, is a reason too."""
        urgent = {status: count for status, count in self.statuses.items() if is_urgent(status)}
        reasons = [f"{count:,} share partition(s) {status.value}" for status, count in urgent.items()]
        critical = sum(finding.severity == SEVERITIES[0] for finding in self.findings or ())
        reasons += [f"{critical:,} critical finding(s)"] if critical else []
        for subject, at in (("the export", self.overview.exported_at), ("the statuses", self.observed_at)):
            if at is not None and now - at > stale_after:
                reasons.append(f"{subject} ended {int((now - at).total_seconds()):,} s ago")
        return [*reasons, *dict.fromkeys(self.unknown.values())]


def is_urgent(status: QueueStatus) -> bool:
    """Whether a person should act on `status` now."""
    return STATUS_TABLE[status].urgency is Urgency.ACT


def cluster_health(tables: Tables, now: dt.datetime) -> ClusterHealth:
    """What `tables` say, with the changes of status of the 24 hours before `now`; what one damaged table hides is not
    known, and nothing else."""
    overview = cluster_overview(tables)
    found: dict[str, Any] = {}
    unknown = {name: why for name, why in overview.unknown.items() if name in {"exported_at", "verdicts"}}
    parts: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
        ("queues", lambda: _queues(tables)),
        ("findings", lambda: _findings(tables)),
        ("gaps", lambda: {"gaps": export_gaps(tables)}),
        ("changes", lambda: {"changes": _changes(tables, now - dt.timedelta(days=1))}),
    )
    for name, read in parts:
        try:
            found |= read()
        except AcktrailError as error:
            unknown[name] = error.message
    if "queues" not in unknown and found["queues"] is None:
        unknown["queues"] = _NO_STATUS
    return ClusterHealth(overview=overview, **found, unknown=unknown)


def queue_status(text: str | None) -> QueueStatus:
    """The status of this name; one that this release does not have is unknown."""
    return QueueStatus(text) if text in _RANK else QueueStatus.STATE_UNKNOWN


def _findings(tables: Tables) -> dict[str, Any]:
    run_id, _ = newest_reconciliation(tables)
    return {"findings": None if run_id is None else open_findings(tables, run_id)}


def _queues(tables: Tables) -> dict[str, Any]:
    snapshot = tables.snapshot("queue_statuses")
    rows = [] if snapshot is None else snapshot.read(columns=_COLUMNS).to_pylist()
    if not rows:
        return {"queues": None, "groups": None}
    rows.sort(key=_worst_first)
    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_group.setdefault(row["group_id"], []).append(row)
    newest = max(rows, key=lambda row: row["observed_at"])
    return {
        "queues": tuple(map(_queue, rows)),
        "groups": tuple(sorted(map(_group, by_group.values()), key=_group_order)),
        "observed_at": newest["observed_at"],
        "run_id": newest["run_id"],
    }


def _worst_first(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return _RANK[queue_status(row["status"])], -(row["lag"] or 0), row["group_id"], _topic(row), row["partition"]


def _group_order(group: GroupHealth) -> tuple[int, int, str]:
    return _RANK[group.status], -group.lag, group.group_id


def _queue(row: Mapping[str, Any]) -> QueueHealth:
    evidence = row["evidence_state_partition"], row["evidence_offset"]
    return QueueHealth(
        group_id=row["group_id"],
        topic=_topic(row),
        partition=row["partition"],
        status=queue_status(row["status"]),
        since=row["status_since"],
        lag=row["lag"],
        reason=row["reason"],
        evidence=None if None in evidence else evidence,
    )


def _group(rows: Sequence[Mapping[str, Any]]) -> GroupHealth:
    """Of the rows of one group, worst first."""
    first = rows[0]
    status = queue_status(first["status"])
    sinces = [row["status_since"] for row in rows if queue_status(row["status"]) is status and row["status_since"]]
    lags = [row["lag"] for row in rows]
    return GroupHealth(
        group_id=first["group_id"],
        status=status,
        since=min(sinces, default=None),
        statuses=_by_status(queue_status(row["status"]) for row in rows),
        lag=sum(lag for lag in lags if lag is not None),
        lag_unknown=lags.count(None),
        group_state=first["group_state"],
        members=first["members"],
        outcomes={name: sum(row[name] or 0 for row in rows) for name in ("acknowledged", "released", "archived")},
    )


def _changes(tables: Tables, since: dt.datetime) -> tuple[RecentChange, ...]:
    """Newest first; without the share partitions that were seen for the first time."""
    rows = tables.read("status_changes", columns=_CHANGE_COLUMNS, where=pc.field("changed_at") >= since).to_pylist()
    changed = [
        RecentChange(
            **{name: row[name] for name in _CHANGE_COLUMNS if name not in {"topic", "topic_id"}}, topic=_topic(row)
        )
        for row in rows
        if row["before"] is not None
    ]
    return tuple(sorted(changed, key=lambda change: (change.changed_at, change.group_id, change.topic), reverse=True))


def _by_status(statuses: Any) -> dict[QueueStatus, int]:
    counted = Counter(statuses)
    return {status: counted[status] for status in STATUS_TABLE if counted[status]}


def _topic(row: Mapping[str, Any]) -> str:
    return str(row["topic"] or row["topic_id"] or "")


def _matches(group_id: str | None, patterns: Sequence[str]) -> bool:
    return group_id is not None and any(fnmatch.fnmatchcase(group_id, pattern) for pattern in patterns)
