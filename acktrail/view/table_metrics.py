"""Metrics of the tables for Prometheus: freshness, gaps, verdicts, findings, quality, statuses
(docs/reference/metrics.md).

Names are ``acktrail_<subject>_<unit>``; every series has the cluster's id. What is not known has no series, and the
part that could not be read is 0 in ``acktrail_tables_readable``. Totals have everything; the worst ``MOST_GROUPS`` have
series of their own, and the others are counted. Labels never hold an error's text.

Tables are read from time to time on a thread of their own: a slow storage does not hold up a scrape.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from pkgutil import resolve_name
from typing import Any, Final

import pyarrow.compute as pc
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from acktrail.branches import branches
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.model.reconciliation import Verdict
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.package_data import metric_definitions
from acktrail.serving.gauge_families import build_info, by, each, one
from acktrail.tables.commit_order import greatest, in_order
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view.cluster_health import cluster_health
from acktrail.view.export_rows import GAP_REASONS
from acktrail.view.queue_rows import OUTCOMES, statuses_of
from acktrail.view.wording import RESULTS, SEVERITIES, STATUSES

MOST_GROUPS: Final = 1_000
"""Groups with series of their own; each has 17 or a few more."""
MISMATCHES: Final = (Verdict.MISSING_STATE, Verdict.LIVE_AHEAD, Verdict.DURABLE_AHEAD, Verdict.PAST_LOG_END)
"""Verdicts that no normal life of a group explains, once they last."""
_PARTS: Final = {
    "exported_at": "exports",
    "gaps": "gaps",
    "verdicts": "reconciliation",
    "queues": "statuses",
    "findings": "findings",
}
"""The parts of the tables that metrics say to be readable, by what they hold of a cluster's health; beside ``quality``
and those of branches."""
_KEY: Final = ("group_id", "topic_id", "partition")
_RESULTS: Final = "quality_results"
_RESULT_COLUMNS: Final = ("run_id", "evaluated_at", "suite", "severity", "state", "element_count")
_VALIDATION: Final = itemgetter("suite", "evaluated_at")
_RECENT: Final = dt.timedelta(days=2)
"""How far back validations are read first; older ones are read only if there is none in this time."""
_METRICS: Final = metric_definitions("acktrail.serving", "tables")


class TableMetrics(Collector):
    """Shows the version, and what was read last; nothing of tables before the first reading."""

    def __init__(self, config: TablesConfig) -> None:
        self._config = config
        self._newest: tuple[Metric, ...] = ()

    def read(self) -> AcktrailError | None:
        """Read the tables now; what cannot be read is shown so. Gives why the first such table cannot."""
        families = _Families(Tables(self._config), dt.datetime.now(dt.UTC))
        self._newest = tuple(families.all())
        return families.unread

    def collect(self) -> Iterator[Metric]:
        yield from (build_info(), *self._newest)


def metrics_text(config: TablesConfig) -> tuple[bytes, AcktrailError | None]:
    """The metrics of the tables now, in Prometheus's text format, and why the first table that cannot be read cannot;
    None: all can."""
    registry, found = CollectorRegistry(), TableMetrics(config)
    unread = found.read()
    registry.register(found)
    return generate_latest(registry), unread


class _Families:
    """The families of what `tables` have now, in the same order every time."""

    def __init__(self, tables: Tables, now: dt.datetime) -> None:
        self._tables, self._health, self._read_at = tables, cluster_health(tables, now), now.timestamp()
        self._cluster = self._health.cluster_id or ""
        self._one, self._by, self._each = (partial(family, _METRICS, self._cluster) for family in (one, by, each))
        self.unread = self._health.unread
        self._unreadable = {_PARTS[name] for name in self._health.unknown if name in _PARTS}

    def all(self) -> Iterator[Metric]:
        of_branches = {each.package: partial(self._of_branch, each.metrics) for each in branches() if each.metrics}
        parts: dict[str, Callable[[], Iterable[Metric]]] = {
            "exports": self._export, "gaps": self._gaps, "reconciliation": self._reconciliation,
            "findings": self._findings, "quality": self._quality, "statuses": self._statuses, **of_branches,
        }  # fmt: skip
        for name, families in parts.items():
            try:
                yield from families()  # those that were read before an error stay
            except AcktrailError as error:
                self._unreadable.add(name)
                self.unread = self.unread or error
        readable = {name: float(name not in self._unreadable) for name in parts}
        yield self._one("tables_read_timestamp_seconds", self._read_at)
        yield self._by("tables_readable", readable)

    def _of_branch(self, target: str) -> Iterable[Metric]:
        read: Callable[[Tables, str], Iterable[Metric]] = resolve_name(target)
        return read(self._tables, self._cluster)

    def _export(self) -> Iterator[Metric]:
        newest = self._health.newest_record_ms
        yield self._one("export_timestamp_seconds", _seconds(self._health.exported_at))
        is_known = self._health.exported_at is not None or bool(self._health.ahead)
        yield self._one("runs_in_future", len(self._health.ahead or ()) if is_known else None)
        yield self._one("newest_state_record_timestamp_seconds", None if newest is None else newest / 1000)
        if self._tables.exists("export_ranges"):
            rows = self._tables.read("export_ranges", columns=["records_read", "records_quarantined"])
            read, quarantined = (pc.sum(column).as_py() or 0 for column in rows.columns)
            yield self._one("stored_records", read)
            yield self._one("stored_quarantined_records", quarantined)

    def _gaps(self) -> Iterator[Metric]:
        gaps = self._health.gaps
        if gaps is None or self._health.exported_at is None:
            return
        known = dict.fromkeys(GAP_REASONS, 0)
        counts, offsets = ({key: getattr(each, name) for key, each in gaps.items()} for name in ("gaps", "offsets"))
        times = {reason: _seconds(each.newest_at) for reason, each in gaps.items()}
        yield self._by("export_gaps", known | counts)
        yield self._by("export_gap_offsets", known | offsets)
        yield self._by("export_newest_gap_timestamp_seconds", times)

    def _reconciliation(self) -> Iterator[Metric]:
        yield self._one("reconciliation_timestamp_seconds", _seconds(self._health.reconciled_at))
        if self._health.verdicts is not None:
            counts = dict.fromkeys((verdict.value for verdict in Verdict), 0) | dict(self._health.verdicts)
            yield self._by("verdicts", counts)
        yield self._one("lasting_mismatches", self._lasting_mismatches())

    def _lasting_mismatches(self) -> int | None:
        """None: there are no two reconciliations."""
        totals = in_order(self._tables.read("run_totals", columns=["run_id", "run_number"]))
        newest = totals["run_id"].to_pylist()[-2:]
        if len(newest) < 2:
            return None
        bad = {"run_id": newest, "verdict": [verdict.value for verdict in MISMATCHES]}
        rows = self._tables.rows("reconciliations", bad, columns=["run_id", *_KEY])
        seen = {(row["run_id"], *(row[name] for name in _KEY)) for row in rows}
        return sum((newest[1], *key) in seen for run_id, *key in seen if run_id == newest[0])

    def _findings(self) -> Iterator[Metric]:
        if self._health.findings is None:
            return
        own = [each for each in self._health.findings if each.rule not in rule_catalogue().audits]
        severities = dict.fromkeys(SEVERITIES, 0) | Counter(each.severity for each in own)
        yield self._by("open_findings", severities)
        rules = Counter((each.rule, each.severity) for each in own)
        samples = ((*key, float(count)) for key, count in sorted(rules.items()))
        yield self._each("open_findings_by_rule", samples)

    def _quality(self) -> Iterator[Metric]:
        found = self._suites()
        if not found:
            return
        states = [(suite, Counter(row["state"] for row in rows)) for suite, rows in found.items()]
        samples = ((suite, state, float(own[state])) for suite, own in states for state in reversed(RESULTS))
        yield self._each("expectations", samples)
        fails = {
            suite: sum((row["state"], row["severity"]) == ("fails", "critical") for row in rows)
            for suite, rows in found.items()
        }
        yield self._by("critical_expectations_failed", fails)
        compared = {suite: sum(row["element_count"] or 0 for row in rows) for suite, rows in found.items()}
        yield self._by("validation_rows_compared", compared)
        of_branches = rule_catalogue().branch_suites
        of_runs = (rows[0]["evaluated_at"] for suite, rows in found.items() if suite not in of_branches)
        newest = max(of_runs, default=None)
        yield self._one("validation_timestamp_seconds", _seconds(newest))

    def _suites(self) -> dict[str, list[dict[str, Any]]]:
        """The results of the newest validation of each suite: of those that the newest run had, and of each that a
        branch has."""
        newest = greatest(self._tables, _RESULTS, "evaluated_at")
        if newest is None:
            return {}
        suite, of_branches = pc.field("suite"), sorted(rule_catalogue().branch_suites)
        kinds = (~one_of("suite", of_branches), *(suite == name for name in of_branches))
        rows = [row for kind in kinds for row in self._newest_results(kind, newest - _RECENT)]
        found: dict[str, list[dict[str, Any]]] = {}
        for (name, _), own in groupby(sorted(rows, key=_VALIDATION), _VALIDATION):
            found[name] = [*own]  # the last one is the newest
        return found

    def _newest_results(self, kind: pc.Expression, since: dt.datetime) -> list[dict[str, Any]]:
        """The results of the run that was validated last among those of one `kind`."""
        for where in (kind & (pc.field("evaluated_at") >= since), kind):
            rows = self._tables.read(_RESULTS, columns=_RESULT_COLUMNS, where=where).sort_by("evaluated_at")
            if rows.num_rows:
                own: list[dict[str, Any]] = rows.filter(pc.equal(rows["run_id"], rows["run_id"][-1])).to_pylist()
                return own
        return []

    def _statuses(self) -> Iterator[Metric]:
        groups = self._health.groups
        if groups is None:
            return
        yield self._one("statuses_timestamp_seconds", _seconds(self._health.observed_at))
        for name, counts in (("groups", self._health.group_statuses), ("share_partitions", self._health.statuses)):
            yield self._by(name, dict.fromkeys(STATUSES, 0) | counts)
        known, unknown = (pc.sum(groups[name]).as_py() or 0 for name in ("unfinished_records", "unfinished_unknown"))
        yield self._one("known_unfinished_records", known)
        yield self._one("unfinished_unknown_share_partitions", unknown)
        yield self._one("groups_without_series", max(0, groups.num_rows - MOST_GROUPS))
        yield from self._groups(groups.slice(0, MOST_GROUPS).to_pylist())

    def _groups(self, groups: list[dict[str, Any]]) -> Iterator[Metric]:
        hot = ((own["group_id"], each, float(each == own["status"])) for own in groups for each in STATUSES)
        yield self._each("group_status", hot)
        counts = ((own["group_id"], *each) for own in groups for each in statuses_of(own).items())
        yield self._each("group_share_partitions", counts)
        outcomes = ((own["group_id"], name, own[name] or 0) for own in groups for name in OUTCOMES)
        yield self._each("group_recent_deliveries", outcomes)
        since = ((own["group_id"], _seconds(own["status_since"])) for own in groups)
        yield self._each("group_status_since_timestamp_seconds", since)
        records = ((own["group_id"], own["unfinished_records"] or 0) for own in groups)
        yield self._each("group_known_unfinished_records", records)
        unknown = ((own["group_id"], own["unfinished_unknown"]) for own in groups)
        yield self._each("group_unfinished_unknown_share_partitions", unknown)


def _seconds(at: dt.datetime | None) -> float | None:
    return None if at is None else at.timestamp()
