"""What findings, checks, resets and the export show, added to the tables of ``dashboard_tables``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from change.scenes import attempt
from samples.dashboard_tables import HOSTILE, NOW, results_of, topic_id_of

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables

__all__ = ["CHECKED_RUNS", "EVIDENCE", "QUARANTINED", "write_evidence_tables"]

EVIDENCE = (17, 90_210)
"""State partition and offset of the record that findings and statuses name."""
QUARANTINED = (3, 41)
CHECKED_RUNS = 20
_EVERY = timedelta(minutes=5)


def write_evidence_tables(tables: Tables, *, cluster_id: str = "5L6g3nShT-eMCtK--X86sw", runs: int = 48) -> None:
    """State records, results of expectations, gaps, a reset from plan to proof."""
    put(tables, "state_records", _records(cluster_id))
    if not tables.exists("quality_results"):
        put(tables, "quality_results", results_of(f"run-{runs - 1:05d}", NOW - timedelta(minutes=3)))
    put(tables, "export_ranges", _gaps(cluster_id))
    attempt(Path(tables.config.uri), 1)


def put(tables: Tables, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as one commit; columns that are not named are null."""
    full = [{column: row.get(column) for column in TABLES[name].names} for row in rows]
    tables.append(name, pa.Table.from_pylist(full, schema=TABLES[name]))


def _records(cluster_id: str) -> list[dict[str, Any]]:
    at_ms = int((NOW - timedelta(minutes=8)).timestamp() * 1000)
    batches = [
        {"first_offset": 1_236_441, "last_offset": 1_236_499, "delivery_state": 2, "delivery_count": 1},
        {"first_offset": 1_236_500, "last_offset": 1_236_500, "delivery_state": 4, "delivery_count": 5},
    ]
    good = {
        "cluster_id": cluster_id, "run_id": "export-1", "state_partition": EVIDENCE[0], "timestamp_ms": at_ms,
        "key": b"\x00\x00\x00\x0fbilling-workers", "value": bytes(range(120)), "record_type": "update",
        "group_id": "billing-workers", "topic_id": topic_id_of("orders"), "partition": 0, "snapshot_epoch": 4,
        "leader_epoch": 7, "start_offset": 1_200_000, "delivery_complete_count": 60, "batches": batches,
        "decode_status": "decoded",
    }  # fmt: skip
    bad = {
        "cluster_id": cluster_id, "run_id": "export-1", "state_partition": QUARANTINED[0], "offset": QUARANTINED[1],
        "timestamp_ms": at_ms, "key": HOSTILE[0].encode(), "value": HOSTILE[6].encode() * 40,
        "decode_status": "malformed_value", "decode_error": f"string at byte 4 is too long {HOSTILE[1]}",
    }  # fmt: skip
    return [*({**good, "offset": EVIDENCE[1] + number} for number in range(20)), bad]


def _gaps(cluster_id: str) -> list[dict[str, Any]]:
    common = {"cluster_id": cluster_id, "run_id": "export-1", "records_read": 0, "records_decoded": 0,
              "records_quarantined": 0, "exported_at": NOW - timedelta(hours=2)}  # fmt: skip
    gaps = ((1, 4_000, 4_309, "pruned"), (2, 0, 99, "pruned_before_first_export"), (3, 70, 70, "log_replaced"))
    return [
        {**common, "state_partition": part, "gap_first": first, "gap_last": last, "gap_reason": reason}
        for part, first, last, reason in gaps
    ]
