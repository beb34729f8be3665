"""What a run read, checked and found, as JSON that the same versions of the tables always give again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns
from acktrail.times import utc_text
from acktrail_dashboard.rows.run_tables import RunTables, rows, rows_of_run
from acktrail_dashboard.summary import summarize
from acktrail_dashboard.summary_types import Summary

Snapshots = Mapping[str, TableSnapshot]
"""Tables at fixed versions; one that was never created is not there."""

TABLES_OF_A_RUN: Final = (
    "state_records", "export_ranges", "group_observations", "offset_observations", "topics", "share_partition_states",
    "reconciliations", "findings", "quality_results", "queue_statuses", "status_changes",
)  # fmt: skip
"""The tables that a run reads or writes."""

_RESULTS: Final = ("share_partition_states", "reconciliations")
_OF_A_FINDING: Final = (
    "rule", "severity", "subject", "detail", "evidence_state_partition", "evidence_offset", "first_seen_at",
    "last_seen_at", "times_seen",
)  # fmt: skip
"""What a pack has of each finding, in packs of every release: a name that is learned later does not refute one."""


def run_facts(snapshots: Snapshots, run_id: str) -> dict[str, Any]:
    """What the tables hold of a run: who, what was read of each state partition, gaps, rules, results."""
    tables = _run_tables(snapshots, run_id)
    own, summary = rows_of_run(tables, run_id), summarize(tables, run_id)
    return {
        "cluster_id": summary.head.cluster_id,
        "run_id": run_id,
        "observed_from": _plain(summary.head.observed_from),
        "observed_to": _plain(summary.head.observed_to),
        "state_topic_ids": list(summary.head.state_topic_ids),
        "read": [_plain(asdict(row)) for row in summary.exports],
        "gaps": [_plain(asdict(row)) for row in summary.gaps],
        "rules": [_plain(asdict(row)) for row in summary.expectations],
        "results": {
            "share_partitions": summary.totals.share_partitions,
            "verdicts": dict(summary.totals.verdicts),
            "statuses": dict(summary.totals.statuses),
            "findings": _findings(summary),
            "lag_records": summary.totals.lag_records,
            "lag_unknown": summary.totals.lag_unknown,
            "archived_seen": summary.totals.archived_seen,
            "rows_sha256": {name: rows_digest(getattr(own, name)) for name in _RESULTS},
        },
    }


def rows_digest(table: pa.Table) -> str:
    """A SHA-256 over the rows as a set."""
    lines = sorted(json.dumps(_plain(row), sort_keys=True, ensure_ascii=True) for row in rows(table))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _findings(summary: Summary) -> list[dict[str, Any]]:
    return [_plain({name: getattr(row, name) for name in _OF_A_FINDING}) for row in summary.findings]


def _run_tables(snapshots: Snapshots, run_id: str) -> RunTables:
    own = pc.field("run_id") == run_id

    def of(name: str, where: pc.Expression | None = own) -> pa.Table:
        snapshot = snapshots.get(name)
        return chosen_columns(name, None).empty_table() if snapshot is None else snapshot.read(where=where)

    return RunTables(
        share_partition_states=of("share_partition_states"),
        reconciliations=of("reconciliations"),
        findings=of("findings"),
        quality_results=of("quality_results"),
        group_observations=of("group_observations"),
        queue_statuses=of("queue_statuses"),
        export_ranges=of("export_ranges", None),
        topics=of("topics", None),
    )


_FORMS: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (dict, lambda value: {str(name): _plain(each) for name, each in value.items()}),
    (list, lambda value: [_plain(each) for each in value]),
    (tuple, lambda value: [_plain(each) for each in value]),
    (bytes, lambda value: value.hex()),
)


def _plain(value: Any) -> Any:
    """A value as JSON has it; instants in UTC, to the microsecond."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    form = next((form for kind, form in _FORMS if isinstance(value, kind)), None)
    return utc_text(value, "auto") if form is None else form(value)
