"""``run_totals``: one row for each reconciliation."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.connect.source_batches import DROPPED_BY_RETENTION, LOG_REPLACED
from acktrail.model.queue_status import STATUS_TABLE
from acktrail.statuses.status_rows import StatusRun
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.export_ranges import read_ranges

_TOTALS: Final = TABLES["run_totals"]
_RANKED: Final = pa.array([status.value for status in STATUS_TABLE])
_NO_LOSS: Final = pa.array([DROPPED_BY_RETENTION, LOG_REPLACED])
"""Reasons of gaps that are no lost records of the export."""


def total_row(tables: Tables, run: StatusRun, statuses: pa.Table, archived_seen: int | None) -> pa.Table:
    """The row of a run with these statuses (``QUEUE_STATUSES``)."""
    ranked = pa.table([statuses["group_id"], pc.index_in(statuses["status"], value_set=_RANKED)], ["group", "rank"])
    worst = ranked.group_by("group", use_threads=False).aggregate([("rank", "min")])["rank_min"]
    row: dict[str, Any] = {
        "cluster_id": run.cluster_id,
        "run_id": run.run_id,
        "observed_at": run.observed_at,
        "groups": len(worst),
        "share_partitions": statuses.num_rows,
        "statuses": counts_of(statuses["status"]),
        "group_statuses": counts_of(pc.take(_RANKED, worst)),
        "verdicts": counts_of(statuses["verdict"]),
        "unfinished_records": pc.sum(statuses["unfinished_records"]).as_py() or 0,
        "unfinished_unknown": statuses["unfinished_records"].null_count,
        "archived_seen": archived_seen or 0,
        **_findings(tables, run),
        **_exported(tables, run),
    }
    return pa.Table.from_pylist([row], schema=_TOTALS)


def _findings(tables: Tables, run: StatusRun) -> dict[str, Any]:
    """Those that no later run has seen: a finding keeps the newest run alone."""
    columns = ["severity", "first_seen_at"]
    found = tables.read("findings", columns=columns, where=pc.field("run_id") == run.run_id)
    is_new = pc.equal(found["first_seen_at"], pa.scalar(run.observed_at, _TOTALS.field("observed_at").type))
    return {"findings": counts_of(found["severity"]), "new_findings": pc.sum(is_new).as_py() or 0}


def _exported(tables: Tables, run: StatusRun) -> dict[str, int]:
    where = pc.field("exported_at") <= pa.scalar(run.observed_at, _TOTALS.field("observed_at").type)
    ranges = read_ranges(tables).filter(where)
    is_loss = pc.invert(pc.fill_null(pc.is_in(ranges["gap_reason"], value_set=_NO_LOSS), fill_value=False))
    gaps = ranges.filter(pc.and_(pc.is_valid(ranges["gap_first"]), is_loss))
    lost = pc.add(pc.subtract(gaps["gap_last"], gaps["gap_first"]), 1)
    return {
        "records_exported": pc.sum(ranges["records_read"]).as_py() or 0,
        "records_quarantined": pc.sum(ranges["records_quarantined"]).as_py() or 0,
        "gaps": gaps.num_rows,
        "gap_records": pc.sum(lost).as_py() or 0,
    }


def counts_of(values: pa.ChunkedArray) -> dict[str, int]:
    """How often there is each of `values`."""
    found = {row["values"]: row["counts"] for row in pc.value_counts(values).to_pylist()}
    return dict(sorted(found.items()))
