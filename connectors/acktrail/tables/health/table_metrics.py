"""Metrics of the tables for Prometheus: freshness, gaps, verdicts, findings, quality, statuses (docs/metrics.md).

Names are ``acktrail_<subject>_<unit>``; every series has the cluster's id. What is not known has no series, and the
part that could not be read is 0 in ``acktrail_tables_readable``. Totals have everything; series of single groups and
share partitions are bounded, the worst first, and what has none is counted. Labels never hold an error's text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from prometheus_client.core import Metric

from acktrail.branches import branches
from acktrail.connect.metrics.metrics_endpoint import by, gauge, one
from acktrail.connect.source_batches import (
    DROPPED_BY_RETENTION,
    LOG_REPLACED,
    LOST_FROM_TABLES,
    PRUNED,
    PRUNED_BEFORE_FIRST_EXPORT,
    SKIPPED_BY_REQUEST,
)
from acktrail.model.queue_status import STATUS_TABLE
from acktrail.model.reconciliation import Verdict
from acktrail.model.rules.catalogue import BRANCH_RULES, BRANCH_SUITES
from acktrail.tables.health.cluster_health import ClusterHealth, GroupHealth, QueueHealth
from acktrail.tables.health.metrics_input import MetricsInput
from acktrail.tables.health.open_findings import SEVERITIES

PARTS: Final = ("exports", "gaps", "reconciliation", "statuses", "findings", "quality")
_REASONS: Final = (
    *(PRUNED, PRUNED_BEFORE_FIRST_EXPORT, LOST_FROM_TABLES),
    *(LOG_REPLACED, DROPPED_BY_RETENTION, SKIPPED_BY_REQUEST),
)
_STATUSES: Final = tuple(status.value for status in STATUS_TABLE)


class Granularity(StrEnum):
    """Which series there are beside the totals: none, those of groups, those of share partitions too."""

    CLUSTER = "cluster"
    GROUP = "group"
    SHARE_PARTITION = "share-partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLimits:
    """How finely, and at most how many groups and share partitions have series of their own. A group has 17 or more."""

    granularity: Granularity = Granularity.GROUP
    groups: int = 1_000
    share_partitions: int = 5_000


def table_metrics(found: MetricsInput, limits: SeriesLimits) -> Iterator[Metric]:
    """All families of what `found` has, in the same order every time."""
    cluster = found.health.overview.cluster_id or ""
    yield from _reading(found, cluster)
    yield from _export(found, cluster)
    yield from _reconciliation(found, cluster)
    yield from _quality(found, cluster)
    yield from found.of_branches
    if found.health.groups is None or found.health.queues is None:
        return
    yield from _statuses(found.health, cluster, limits)
    if limits.granularity is not Granularity.CLUSTER:
        yield from _groups(found.health.groups[: limits.groups], cluster)
    if limits.granularity is Granularity.SHARE_PARTITION:
        yield from _queues(found.health.queues[: limits.share_partitions], cluster)


def _reading(found: MetricsInput, cluster: str) -> Iterator[Metric]:
    parts = (*PARTS, *(branch.package for branch in branches() if branch.metrics))
    yield one("tables_read_timestamp_seconds", "When the tables were read.", cluster, found.read_at)
    yield by(
        *("tables_readable", "1 where a part of the tables is there and was read, 0 where not.", cluster, "part"),
        {part: float(part not in found.unreadable) for part in parts},
    )


def _export(found: MetricsInput, cluster: str) -> Iterator[Metric]:
    overview = found.health.overview
    newest = overview.newest_record_ms
    yield one(
        *("export_timestamp_seconds", "When an export or an observation last wrote.", cluster),
        _seconds(overview.exported_at),
    )
    yield one(
        *("newest_state_record_timestamp_seconds", "The broker's time of the newest exported state record.", cluster),
        None if newest is None else newest / 1000,
    )
    yield one("stored_records", "Records that all exports read.", cluster, found.records)
    yield one("stored_quarantined_records", "Those of them that cannot be decoded.", cluster, found.quarantined)
    gaps = found.health.gaps
    if gaps is None or "exports" in found.unreadable:
        return
    known = [*_REASONS, *sorted(gaps.keys() - set(_REASONS))]
    counts = {reason: (gaps[reason].gaps, gaps[reason].offsets) if reason in gaps else (0, 0) for reason in known}
    yield by("export_gaps", "Gaps of the export.", cluster, "reason", {key: each[0] for key, each in counts.items()})
    yield by(
        *("export_gap_offsets", "Offsets of the state topic that are in no row.", cluster, "reason"),
        {key: each[1] for key, each in counts.items()},
    )
    yield by(
        *("export_newest_gap_timestamp_seconds", "When the newest gap of a reason was recorded.", cluster, "reason"),
        {reason: _seconds(each.newest_at) for reason, each in gaps.items()},
    )


def _reconciliation(found: MetricsInput, cluster: str) -> Iterator[Metric]:
    overview, findings = found.health.overview, found.health.findings
    yield one(
        *("reconciliation_timestamp_seconds", "When the newest reconciliation ended.", cluster),
        _seconds(overview.reconciled_at),
    )
    if overview.verdicts is not None:
        verdicts = dict.fromkeys((verdict.value for verdict in Verdict), 0) | dict(overview.verdicts)
        yield by("verdicts", "Share partitions of the newest reconciliation.", cluster, "verdict", verdicts)
    yield one(
        "lasting_mismatches",
        "Share partitions whose durable state and whose cluster disagree in both of the newest two reconciliations.",
        *(cluster, found.lasting_mismatches),
    )
    if findings is not None:
        findings = tuple(each for each in findings if each.rule not in BRANCH_RULES)
        severities = dict.fromkeys(SEVERITIES, 0) | Counter(each.severity for each in findings)
        yield by("open_findings", "Findings of the newest reconciliation.", cluster, "severity", severities)
        rules = Counter((each.rule, each.severity) for each in findings)
        samples = (
            ({"cluster": cluster, "rule": rule, "severity": severity}, float(count))
            for (rule, severity), count in sorted(rules.items())
        )
        yield gauge("open_findings_by_rule", "The same by rule; without rules that hold.", samples, "rule", "severity")


def _quality(found: MetricsInput, cluster: str) -> Iterator[Metric]:
    if found.suites is None:
        return
    states = (
        ({"cluster": cluster, "suite": suite.suite, "state": state}, float(getattr(suite, state)))
        for suite in found.suites
        for state in ("holds", "fails", "noted", "not_evaluated")
    )
    yield gauge("expectations", "Expectations in the newest validation.", states, "suite", "state")
    for name, about, column in (
        ("critical_expectations_failed", "Critical expectations that fail.", "critical_fails"),
        ("validation_rows_compared", "Rows that the expectations of a suite looked at, summed.", "rows_compared"),
    ):
        yield by(name, about, cluster, "suite", {suite.suite: getattr(suite, column) for suite in found.suites})
    of_runs = (suite for suite in found.suites if suite.suite not in BRANCH_SUITES)
    newest = max((suite.evaluated_at.timestamp() for suite in of_runs), default=None)
    yield one("validation_timestamp_seconds", "When the newest validation ended.", cluster, newest)


def _statuses(health: ClusterHealth, cluster: str, limits: SeriesLimits) -> Iterator[Metric]:
    groups = health.groups or ()
    yield one(
        *("statuses_timestamp_seconds", "The observation that the statuses are of.", cluster),
        _seconds(health.observed_at),
    )
    for name, about, counts in (
        ("groups", "Groups by the worst status of their share partitions.", health.group_statuses),
        ("share_partitions", "Share partitions by status.", health.statuses),
    ):
        all_of_them = {status.value: counts.get(status, 0) for status in STATUS_TABLE}
        yield by(name, about, cluster, "status", all_of_them)
    yield one(
        *("known_unfinished_records", "Unfinished records, of those share partitions that are known.", cluster),
        sum(group.unfinished_records for group in groups),
    )
    unknown = sum(group.unfinished_unknown for group in groups)
    yield one(
        "unfinished_unknown_share_partitions",
        "Share partitions whose unfinished records are not known.",
        cluster,
        unknown,
    )
    shown = 0 if limits.granularity is Granularity.CLUSTER else limits.groups
    yield one(
        *("groups_without_series", "Groups beyond the limit of series, the least urgent ones.", cluster),
        max(0, len(groups) - shown),
    )


def _groups(groups: Sequence[GroupHealth], cluster: str) -> Iterator[Metric]:
    named = [({"cluster": cluster, "group": group.group_id}, group) for group in groups]
    one_hot = (
        ({**labels, "status": status}, float(status == group.status.value))
        for labels, group in named
        for status in _STATUSES
    )
    yield gauge("group_status", "1 for the worst status of a group's share partitions.", one_hot, "group", "status")
    counts = (
        ({**labels, "status": status.value}, float(count))
        for labels, group in named
        for status, count in group.statuses.items()
    )
    yield gauge(
        *("group_share_partitions", "Share partitions of a group by status; without those that none has.", counts),
        *("group", "status"),
    )
    outcomes = (
        ({**labels, "outcome": outcome}, float(count))
        for labels, group in named
        for outcome, count in group.outcomes.items()
    )
    yield gauge(
        *("group_recent_deliveries", "Deliveries that ended in the newest observations, by outcome.", outcomes),
        *("group", "outcome"),
    )
    for name, about, value in (
        ("group_status_since_timestamp_seconds", "Since when a group has its status.", lambda g: _seconds(g.since)),
        (
            "group_known_unfinished_records",
            "Unfinished records of a group, of those share partitions that are known.",
            lambda g: g.unfinished_records,
        ),
        (
            "group_unfinished_unknown_share_partitions",
            "Share partitions whose unfinished records are not known.",
            lambda g: g.unfinished_unknown,
        ),
    ):
        yield gauge(name, about, ((labels, value(group)) for labels, group in named), "group")


def _queues(queues: Sequence[QueueHealth], cluster: str) -> Iterator[Metric]:
    """A topic that was created again has the name of the one before: the worse share partition of the two is shown."""
    place = ("group", "topic", "partition")
    named: dict[tuple[str, str, int], QueueHealth] = {}
    for queue in queues:
        named.setdefault((queue.group_id, queue.topic, queue.partition), queue)
    labelled = [
        ({"cluster": cluster, "group": key[0], "topic": key[1], "partition": str(key[2])}, queue)
        for key, queue in named.items()
    ]
    yield gauge(
        *("share_partition_status", "1 for the status that a share partition has; others have no series."),
        (({**labels, "status": queue.status.value}, 1.0) for labels, queue in labelled),
        *(*place, "status"),
    )
    yield gauge(
        *(
            "share_partition_unfinished_records",
            "Unfinished records of a share partition; absent where they are not known.",
        ),
        (
            (labels, None if queue.unfinished_records is None else float(queue.unfinished_records))
            for labels, queue in labelled
        ),
        *place,
    )


def _seconds(at: Any) -> float | None:
    return None if at is None else float(at.timestamp())
