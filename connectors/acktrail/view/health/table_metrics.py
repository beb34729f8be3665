"""Metrics of the tables for Prometheus: freshness, gaps, verdicts, findings, quality, statuses (docs/metrics.md).

Names are ``acktrail_<subject>_<unit>``; every series has the cluster's id. What is not known has no series, and the
part that could not be read is 0 in ``acktrail_tables_readable``. Totals have everything; the worst ``MOST_GROUPS`` have
series of their own, and the others are counted. Labels never hold an error's text.

Tables are read from time to time on a thread of their own: a slow storage does not hold up a scrape.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Event, Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from acktrail.branches import branches
from acktrail.config import TablesConfig
from acktrail.connect.metrics.metrics_endpoint import build_info, by, gauge, one
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
from acktrail.tables.delta.store import Tables
from acktrail.view.health.cluster_health import GroupHealth
from acktrail.view.health.metrics_input import MetricsInput, metrics_input
from acktrail.view.health.open_findings import SEVERITIES

EVERY_S: Final = 30.0
MOST_GROUPS: Final = 1_000
"""Groups with series of their own; each has 17 or a few more."""
PARTS: Final = ("exports", "gaps", "reconciliation", "statuses", "findings", "quality")
_REASONS: Final = (
    *(PRUNED, PRUNED_BEFORE_FIRST_EXPORT, LOST_FROM_TABLES),
    *(LOG_REPLACED, DROPPED_BY_RETENTION, SKIPPED_BY_REQUEST),
)
_STATUSES: Final = tuple(status.value for status in STATUS_TABLE)
_OF_GROUPS: Final = (
    (
        *("group_status_since_timestamp_seconds", "Since when a group has its status."),
        lambda group: _seconds(group.since),
    ),
    (
        *("group_known_unfinished_records", "Unfinished records of a group's share partitions that are known."),
        lambda group: group.unfinished_records,
    ),
    (
        *("group_unfinished_unknown_share_partitions", "Share partitions whose unfinished records are not known."),
        lambda group: group.unfinished_unknown,
    ),
)
"""What a group has one series of: name, help and value."""


class TableMetrics(Collector):
    """Shows what was read last; nothing before the first reading. ``read`` reads now; ``start`` begins to do so every
    `every_s` seconds."""

    def __init__(self, config: TablesConfig, *, every_s: float = EVERY_S) -> None:
        self._config, self._every_s = config, every_s
        self._stop = Event()
        self._thread = Thread(target=self._watch, name="acktrail-table-metrics", daemon=True)
        self._newest: MetricsInput | None = None

    def read(self) -> None:
        """Read the tables now; what cannot be read is shown so."""
        self._newest = metrics_input(Tables(self._config), dt.datetime.now(dt.UTC))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end; a reading that waits for its storage is not waited for."""
        self._stop.set()

    def collect(self) -> Iterator[Metric]:
        newest = self._newest
        if newest is not None:
            yield from _Families(newest).all()
            yield from newest.of_branches

    def _watch(self) -> None:
        while True:
            self.read()
            if self._stop.wait(self._every_s):
                return


class BuildInfo(Collector):
    """The version alone, for a registry without a worker."""

    def collect(self) -> Iterator[Metric]:
        yield build_info()


def metrics_text(config: TablesConfig) -> bytes:
    """The metrics of the tables now, in Prometheus's text format."""
    registry = CollectorRegistry()
    found = TableMetrics(config)
    found.read()
    for collector in (BuildInfo(), found):
        registry.register(collector)
    return generate_latest(registry)


class _Families:
    """The families of what was `found`, in the same order every time."""

    def __init__(self, found: MetricsInput) -> None:
        self._found, self._health = found, found.health
        self._cluster = self._health.cluster_id or ""

    def all(self) -> Iterator[Metric]:
        yield from self._reading()
        yield from self._export()
        yield from self._reconciliation()
        yield from self._quality()
        if self._health.groups is not None:
            yield from self._statuses(self._health.groups)
            yield from self._groups(self._health.groups[:MOST_GROUPS])

    def _one(self, name: str, about: str, value: float | None) -> Metric:
        return one(name, about, self._cluster, value)

    def _by(self, name: str, about: str, label: str, counts: Mapping[str, Any]) -> Metric:
        return by(name, about, self._cluster, label, counts)

    def _each(self, name: str, about: str, samples: Iterable[tuple[Any, ...]], *labels: str) -> Metric:
        """A series for each of `samples`: the values of `labels`, then the number."""
        rows = (({"cluster": self._cluster, **dict(zip(labels, row, strict=False))}, row[-1]) for row in samples)
        return gauge(name, about, rows, *labels)

    def _reading(self) -> Iterator[Metric]:
        parts = (*PARTS, *(branch.package for branch in branches() if branch.metrics))
        readable = {part: float(part not in self._found.unreadable) for part in parts}
        yield self._one("tables_read_timestamp_seconds", "When the tables were read.", self._found.read_at)
        about = "1 where a part of the tables is there and was read, 0 where not."
        yield self._by("tables_readable", about, "part", readable)

    def _export(self) -> Iterator[Metric]:
        newest, gaps = self._health.newest_record_ms, self._health.gaps
        about = "When an export or an observation last wrote."
        yield self._one("export_timestamp_seconds", about, _seconds(self._health.exported_at))
        about = "The broker's time of the newest exported state record."
        yield self._one("newest_state_record_timestamp_seconds", about, None if newest is None else newest / 1000)
        yield self._one("stored_records", "Records that all exports read.", self._found.records)
        about = "Those of them that cannot be decoded."
        yield self._one("stored_quarantined_records", about, self._found.quarantined)
        if gaps is None or "exports" in self._found.unreadable:
            return
        known = dict.fromkeys(_REASONS, 0)
        counts, offsets = ({key: getattr(each, name) for key, each in gaps.items()} for name in ("gaps", "offsets"))
        times = {reason: _seconds(each.newest_at) for reason, each in gaps.items()}
        yield self._by("export_gaps", "Gaps of the export.", "reason", known | counts)
        about = "Offsets of the state topic that are in no row."
        yield self._by("export_gap_offsets", about, "reason", known | offsets)
        about = "When the newest gap of a reason was recorded."
        yield self._by("export_newest_gap_timestamp_seconds", about, "reason", times)

    def _reconciliation(self) -> Iterator[Metric]:
        verdicts, findings = self._health.verdicts, self._health.findings
        about = "When the newest reconciliation ended."
        yield self._one("reconciliation_timestamp_seconds", about, _seconds(self._health.reconciled_at))
        if verdicts is not None:
            counts = dict.fromkeys((verdict.value for verdict in Verdict), 0) | dict(verdicts)
            yield self._by("verdicts", "Share partitions of the newest reconciliation.", "verdict", counts)
        about = "Share partitions whose durable state and cluster disagree in both of the newest two reconciliations."
        yield self._one("lasting_mismatches", about, self._found.lasting_mismatches)
        if findings is None:
            return
        own = [each for each in findings if each.rule not in BRANCH_RULES]
        severities = dict.fromkeys(SEVERITIES, 0) | Counter(each.severity for each in own)
        yield self._by("open_findings", "Findings of the newest reconciliation.", "severity", severities)
        rules = Counter((each.rule, each.severity) for each in own)
        about = "The same by rule; without rules that hold."
        samples = ((*key, float(count)) for key, count in sorted(rules.items()))
        yield self._each("open_findings_by_rule", about, samples, "rule", "severity")

    def _quality(self) -> Iterator[Metric]:
        suites = self._found.suites
        if suites is None:
            return
        states = ("holds", "fails", "noted", "not_evaluated")
        samples = ((own.suite, state, float(getattr(own, state))) for own in suites for state in states)
        yield self._each("expectations", "Expectations in the newest validation.", samples, "suite", "state")
        about, fails = "Critical expectations that fail.", {own.suite: own.critical_fails for own in suites}
        yield self._by("critical_expectations_failed", about, "suite", fails)
        about = "Rows that the expectations of a suite looked at, summed."
        yield self._by("validation_rows_compared", about, "suite", {own.suite: own.rows_compared for own in suites})
        of_runs = (own.evaluated_at for own in suites if own.suite not in BRANCH_SUITES)
        newest = max(of_runs, default=None)
        yield self._one("validation_timestamp_seconds", "When the newest validation ended.", _seconds(newest))

    def _statuses(self, groups: Sequence[GroupHealth]) -> Iterator[Metric]:
        about = "The observation that the statuses are of."
        yield self._one("statuses_timestamp_seconds", about, _seconds(self._health.observed_at))
        for name, about, counts in (
            ("groups", "Groups by the worst status of their share partitions.", self._health.group_statuses),
            ("share_partitions", "Share partitions by status.", self._health.statuses),
        ):
            yield self._by(name, about, "status", {status.value: counts.get(status, 0) for status in STATUS_TABLE})
        about = "Unfinished records, of those share partitions that are known."
        yield self._one("known_unfinished_records", about, sum(group.unfinished_records for group in groups))
        about, unknown = _OF_GROUPS[-1][1], sum(group.unfinished_unknown for group in groups)
        yield self._one("unfinished_unknown_share_partitions", about, unknown)
        about = "Groups beyond the limit of series, the least urgent ones."
        yield self._one("groups_without_series", about, max(0, len(groups) - MOST_GROUPS))

    def _groups(self, groups: Sequence[GroupHealth]) -> Iterator[Metric]:
        about = "1 for the worst status of a group's share partitions."
        hot = ((own.group_id, each, float(each == own.status.value)) for own in groups for each in _STATUSES)
        yield self._each("group_status", about, hot, "group", "status")
        about = "Share partitions of a group by status; without those that none has."
        counts = ((own.group_id, key.value, float(count)) for own in groups for key, count in own.statuses.items())
        yield self._each("group_share_partitions", about, counts, "group", "status")
        about = "Deliveries that ended in the newest observations, by outcome."
        outcomes = ((own.group_id, key, float(count)) for own in groups for key, count in own.outcomes.items())
        yield self._each("group_recent_deliveries", about, outcomes, "group", "outcome")
        for name, about, value in _OF_GROUPS:
            yield self._each(name, about, ((own.group_id, value(own)) for own in groups), "group")


def _seconds(at: dt.datetime | None) -> float | None:
    return None if at is None else at.timestamp()
