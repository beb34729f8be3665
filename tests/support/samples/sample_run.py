"""A run as the demo workload leaves it: every kind of group, and what a cluster may get wrong. Its rows are in
``sample_run.json``, by table, without what all of them have; the batches of a state are lists of `BATCH`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.view.run_summary import RunTables
from acktrail_dashboard.web.branch_views import report_sections

RUN = "reconcile-2026-11-21T04:46:00Z"
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
SEEN = datetime(2026, 11, 21, 4, 46, 12, tzinfo=UTC)
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</title></style></svg><img src=//evil.example/x onerror=alert(1)>",
    "\"onmouseover='alert(1)' style=\"background:url(https://evil.example/)",
    "two\nlines\r\tand a tab",
    "evil\u202egnp.exe\u2066",
    "zero\u200bwidth",
    "\x1b[31mred\x9b0m\x00",
    "\N{CJK UNIFIED IDEOGRAPH-754C}" * 85,
    "x" * 255,
    "&lt;already&gt; &amp; escaped",
)
NAMED = (
    "rule", "severity", "subject", "detail", "suite", "expectation", "observed_value", "topic", "topic_id", "status",
    "group_id", "group_state", "assignor", "error", "completeness_reason",
)  # fmt: skip
"""Columns whose text comes from a cluster, or from tables that somebody else may write."""
FILE = Path(__file__).with_suffix(".json")
BATCH = ("first_offset", "last_offset", "delivery_state", "delivery_count")


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows with the run's own columns filled in; columns not named are null."""
    own = {"cluster_id": CLUSTER, "run_id": RUN, "observed_at": SEEN}
    return pa.Table.from_pylist([{**own, **row} for row in rows], schema=TABLES[name])


def share_partition(
    group: str, topic: str, partition: int, *, start: int | None, end: int, **changes: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A state row and a reconciliation row that agree: nothing was done with what lies past the start offset."""
    lag = None if start is None else end - start
    key = {"group_id": group, "topic": topic, "topic_id": topic[:22], "partition": partition, "archived_seen": 0}
    key |= {"completeness": "complete"}
    state = {
        **key, "state_partition": partition % 4, "snapshot_epoch": 3, "state_epoch": 2, "leader_epoch": 0,
        "start_offset": start, "end_offset": start, "delivery_complete_count": 0, "batches": [],
        "last_record_offset": 10_000,
    }  # fmt: skip
    verdict = {
        **key, "verdict": "match", "moved": False, "reason": None, "durable_start_offset": start, "durable_lag": lag,
        "described_start_offset_after": start, "described_lag_after": lag, "log_start_offset": 0,
        "log_end_offset_before": end, "log_end_offset_after": end,
    }  # fmt: skip
    return state | _own(changes, state), verdict | _own(changes, verdict)


def _own(changes: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name in row}


def _stored(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows of the file: instants are texts there."""
    instants = [own.name for own in TABLES[name] if pa.types.is_timestamp(own.type)]
    for row in rows:
        row.update({own: datetime.fromisoformat(row[own]) for own in instants if own in row})
        row.update({own: [*map(tuple, row[own])] for own in ("configs",) if own in row})
        batches = [dict(zip(BATCH, batch, strict=True)) for batch in row.get("batches", ())]
        row.update({"batches": batches} if batches else {})
    return table(name, rows)


@cache
def sample_run() -> RunTables:
    """The tables of one run with five groups and every kind of trouble; branches have no tables."""
    none = Tables(TablesConfig(uri="/acktrail-has-no-tables-here"))
    none.begin()
    rows = json.loads(FILE.read_text("utf-8"))
    own = {name: _stored(name, of_table) for name, of_table in rows.items()}
    return RunTables(**own, branches={each.name: each.read(none, None) for each in report_sections()})


def hostile_run() -> RunTables:
    """A run in which everything that has a name has a hostile one."""
    archived = dict(zip(BATCH, (5, 6, 4, 5), strict=True))
    own = {"start": 5, "end": 9, "batches": [archived], "archived_seen": 2}
    pairs = [share_partition(each, HOSTILE[n - 3], n, verdict=each, reason=each, **own)  # type: ignore[arg-type]
             for n, each in enumerate(HOSTILE)]  # fmt: skip
    words = [
        dict.fromkeys(NAMED, name) | {"success": False, "configs": [(name, name)], "group_type": "share"}
        for name in HOSTILE
    ]
    return replace(
        sample_run(),
        share_partition_states=table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=table("reconciliations", [verdict for _, verdict in pairs]),
        **{name: table(name, words) for name in ("findings", "quality_results", "topics", "group_observations")},
    )


def store(root: Path) -> TablesConfig:
    """The sample's rows in real tables, its exports in a commit each."""
    config = TablesConfig(uri=str(root))
    tables, sample = Tables(config), sample_run()
    for name in ("share_partition_states", "reconciliations", "quality_results", "group_observations"):
        tables.append(name, getattr(sample, name))
    for row in range(sample.export_ranges.num_rows):
        tables.append("export_ranges", sample.export_ranges.slice(row, 1))
    for name in ("findings", "topics"):
        tables.upsert(name, getattr(sample, name))
    return config
