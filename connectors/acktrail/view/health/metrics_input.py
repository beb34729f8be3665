"""What metrics show beside the health of a cluster: sums of the export, newest validation, lasting mismatches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client.core import Metric

from acktrail.branches import branches, load
from acktrail.errors import AcktrailError
from acktrail.model.reconciliation import Verdict
from acktrail.model.rules.catalogue import BRANCH_SUITES
from acktrail.tables.delta.store import Tables
from acktrail.view.health.cluster_health import ClusterHealth, cluster_health
from acktrail.view.health.status_reader import COUNTED_COLUMNS, run_totals, suite_totals
from acktrail.view.health.table_facts import greatest

MISMATCHES: Final = (Verdict.MISSING_STATE, Verdict.LIVE_AHEAD, Verdict.DURABLE_AHEAD, Verdict.PAST_LOG_END)
"""Verdicts that no normal life of a group explains, once they last."""
_KEY: Final = ("group_id", "topic_id", "partition")
_RESULTS: Final = "quality_results"
_RECENT: Final = dt.timedelta(days=2)
"""What was validated before that is read only where nothing was since."""
_PARTS: Final = {
    "exported_at": "exports",
    "verdicts": "reconciliation",
    "queues": "statuses",
    "findings": "findings",
    "gaps": "gaps",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTotals:
    """One suite in the newest validation."""

    suite: str
    holds: int
    fails: int
    noted: int
    not_evaluated: int
    critical_fails: int
    rows_compared: int
    evaluated_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsInput:
    """None is not known; `unreadable` are the parts that could not be read: ``exports``, ``gaps``, ``reconciliation``,
    ``statuses``, ``findings``, ``quality``, and the package of a branch. `lasting_mismatches`: share partitions with a
    mismatch in both of the newest two reconciliations. `of_branches`: what branches add (`Branch.metrics`)."""

    health: ClusterHealth
    read_at: float
    records: int | None
    quarantined: int | None
    suites: tuple[SuiteTotals, ...] | None
    lasting_mismatches: int | None
    of_branches: tuple[Metric, ...]
    unreadable: frozenset[str]


def metrics_input(tables: Tables, now: dt.datetime) -> MetricsInput:
    """Of the tables as they are now; never raises an AcktrailError: what cannot be read is in `unreadable`."""
    health = cluster_health(tables, now)
    unreadable = {_PARTS[name] for name in health.unknown if name in _PARTS}
    records = _part(lambda: _sums(tables), "exports", unreadable)
    return MetricsInput(
        health=health,
        read_at=now.timestamp(),
        records=None if records is None else records[0],
        quarantined=None if records is None else records[1],
        suites=_part(lambda: _suites(tables), "quality", unreadable),
        lasting_mismatches=_part(lambda: _lasting_mismatches(tables), "reconciliation", unreadable),
        of_branches=_of_branches(tables, health.cluster_id or "", unreadable),
        unreadable=frozenset(unreadable),
    )


def _part(read: Callable[[], Any], name: str, unreadable: set[str]) -> Any:
    try:
        return read()
    except AcktrailError:
        unreadable.add(name)
        return None


def _of_branches(tables: Tables, cluster: str, unreadable: set[str]) -> tuple[Metric, ...]:
    found: list[Metric] = []
    for branch in branches():
        if branch.metrics:
            read = partial(_metrics_of, branch.metrics, tables, cluster)
            found += _part(read, branch.package, unreadable) or ()
    return tuple(found)


def _metrics_of(target: str, tables: Tables, cluster: str) -> tuple[Metric, ...]:
    return tuple(load(target)(tables, cluster))


def _sums(tables: Tables) -> tuple[int, int] | None:
    if not tables.exists("export_ranges"):
        return None
    rows = tables.read("export_ranges", columns=["records_read", "records_quarantined"])
    read, quarantined = (pc.sum(column).as_py() or 0 for column in rows.columns)
    return read, quarantined


def _suites(tables: Tables) -> tuple[SuiteTotals, ...] | None:
    """Of the newest run, and of each suite of a branch; of several validations the newest; None: nothing was validated
    yet."""
    newest = greatest(tables, _RESULTS, "evaluated_at")
    if newest is None:
        return None
    suite = pc.field("suite")
    kinds = (
        ~suite.isin(pa.array(sorted(BRANCH_SUITES), pa.string())),
        *(suite == name for name in sorted(BRANCH_SUITES)),
    )
    run_ids = [run_id for kind in kinds for run_id in _newest_runs(tables, kind, newest)]
    totals = suite_totals(tables.read(_RESULTS, columns=COUNTED_COLUMNS, where=pc.field("run_id").isin(run_ids)))
    rows = totals.sort_by("evaluated_at").drop_columns("run_id").to_pylist()
    return tuple(SuiteTotals(**row) for _, row in sorted({row["suite"]: row for row in rows}.items()))


def _newest_runs(tables: Tables, kind: pc.Expression, newest: dt.datetime) -> list[str]:
    """The runs that were validated last among the results of one `kind`. `newest`: the last of all validations."""
    for where in (kind & (pc.field("evaluated_at") >= newest - _RECENT), kind):
        rows = tables.read(_RESULTS, columns=["run_id", "evaluated_at"], where=where)
        if rows.num_rows:
            last = pc.greater_equal(rows["evaluated_at"], pc.max(rows["evaluated_at"]))
            return [str(run_id) for run_id in rows.filter(last)["run_id"].unique().to_pylist()]
    return []


def _lasting_mismatches(tables: Tables) -> int | None:
    """None: there are no two reconciliations."""
    newest = run_totals(tables).select(["run_id", "observed_at"]).to_pylist()[-2:]
    if len(newest) < 2:
        return None
    ids = [row["run_id"] for row in newest]
    bad = {"run_id": ids, "verdict": [verdict.value for verdict in MISMATCHES]}
    rows = tables.rows("reconciliations", bad, columns=["run_id", *_KEY])
    seen = {run_id: {tuple(row[name] for name in _KEY) for row in rows if row["run_id"] == run_id} for run_id in ids}
    return len(seen[ids[0]] & seen[ids[1]])
