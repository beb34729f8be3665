"""Tables as runs leave them, made by hand: a few share partitions, findings, gaps and a validation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.cluster_check import create_for
from acktrail.tables.commit_order import number_at
from acktrail.tables.delta.store import Tables

CLUSTER: Final = "cluster-1"
HOSTILE: Final = "g' OR 1=1 \x1b[2J\n<b>{{7*7}}\u202e\"\\💥"


class HealthTables:
    """Writes what runs write, each as of `minutes` before the object was made."""

    def __init__(self, folder: Path) -> None:
        self.config = TablesConfig(uri=str(folder))
        self.tables = Tables(self.config)
        self.now = dt.datetime.now(dt.UTC)

    def ago(self, minutes: float) -> dt.datetime:
        return self.now - dt.timedelta(minutes=minutes)

    def exported(self, minutes: float, *, reason: str | None = None, lost: int = 10) -> None:
        """One export, with a gap of `lost` offsets for `reason`."""
        gap = {} if reason is None else {"gap_first": 0, "gap_last": lost - 1, "gap_reason": reason}
        row = {"state_partition": 0, "first_offset": lost, "last_offset": 99, "records_read": 90, **gap}
        at = self.ago(minutes)
        row |= {"records_decoded": 89, "records_quarantined": 1, "run_id": "export", "exported_at": at}
        row |= {"records_version": number_at(at)}
        create_for(self.tables, "export_ranges", CLUSTER)
        self._append("export_ranges", [row])

    def reconciled(
        self,
        queues: Sequence[dict[str, Any]] = (),
        findings: Iterable[dict[str, Any]] = (),
        *,
        minutes: float = 5.0,
        run_id: str = "run-2",
        mismatches: Sequence[int] = (),
    ) -> None:
        """One reconciliation: `queues` and `findings` are rows without what all of them have. The share partitions
        `mismatches` of group ``g`` are behind the cluster."""
        at = self.ago(minutes)
        same = {"run_id": run_id, "observed_at": at, "run_number": number_at(at)}
        rows = [{"topic": "orders", "topic_id": "T", "partition": n, **same, **row} for n, row in enumerate(queues)]
        self.tables.replace("queue_statuses", self._table("queue_statuses", rows))
        self._append("run_totals", [same])
        verdicts = [*(("live_ahead", n) for n in mismatches), ("match", 99)]
        judged = [{"group_id": "g", "topic_id": "T", "partition": n, "verdict": verdict} for verdict, n in verdicts]
        self._append("reconciliations", [{**same, **row} for row in judged])
        seen = {"run_id": run_id, "first_seen_at": at, "last_seen_at": at, "times_seen": 1, "detail": "it is so"}
        found = [{"subject": str(number), **seen, **row} for number, row in enumerate(findings)]
        self.tables.upsert("findings", self._table("findings", found))
        checks = self._table("reconcile_checks", [{"run_id": run_id, "reconciled_at": at}])
        self.tables.replace("reconcile_checks", checks)

    def validated(self, minutes: float = 4.0, *, critical_fails: int = 0, run_id: str = "run-2") -> None:
        """One validation of one suite of five expectations, one of them not evaluated."""
        row = {"suite": "state_records", "severity": "critical", "run_id": run_id, "evaluated_at": self.ago(minutes)}
        states = ["fails"] * critical_fails + ["holds"] * (4 - critical_fails) + ["not_evaluated"]
        counts = (90, 0, 0, 0, None)
        self._append(
            "quality_results",
            [{**row, "state": state, "element_count": rows} for state, rows in zip(states, counts, strict=True)],
        )

    def changed(self, minutes: float, group: str, before: str | None, after: str | None) -> None:
        """Partition 0 of a topic changed its status."""
        row = {"changed_at": self.ago(minutes), "group_id": group, "topic": "orders", "partition": 0}
        self._append("status_changes", [{**row, "before": before, "after": after, "reason": "so it is"}])

    def queue(self, group: str, status: str, *, minutes: float = 60.0, **more: Any) -> dict[str, Any]:
        """A row of one share partition."""
        row = {"group_id": group, "status": status, "status_since": self.ago(minutes), "unfinished_records": 0}
        return {**row, "reason": f"it is {status}", "evidence_state_partition": 3, "evidence_offset": 17, **more}

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.tables.append(name, self._table(name, rows))

    def _table(self, name: str, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([{"cluster_id": CLUSTER, **row} for row in rows], schema=TABLES[name])
