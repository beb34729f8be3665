"""All statuses again, from the first reconciliation on: what the runs would have written one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig, unseen_time
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError
from acktrail.executors import OpenExecutors
from acktrail.statuses.run_rows import read_run_rows
from acktrail.statuses.run_totals import total_row
from acktrail.statuses.status_rows import StatusRun, judge_run
from acktrail.tables.delta.store import Tables
from acktrail.tables.findings_seen import seen_archives
from acktrail.tables.past.history_tables import CHANGES, positions_at
from acktrail.tables.trend_chunks import RebuiltTrends
from acktrail_jobs.pipeline.change_counts import (
    RUN_NUMBER,
    CountedHistory,
    counts_by_run,
    covers,
    log_ends,
    table_number,
)
from acktrail_jobs.pipeline.status_run import STATUSES, STEP, StatusSummary, counted_numbers, summary_of

_OF_FINDINGS: Final = ("findings", "new_findings")
"""Columns of ``run_totals`` that only the run itself could know: a finding keeps the newest run that saw it."""


def rebuild_statuses(tables: TablesConfig, open_executors: OpenExecutors) -> StatusSummary:
    """Judge every reconciliation again, oldest first, and replace the four tables. The history of deliveries is read
    once, by the executors; memory holds the trends, the changes and one run.

    Raises:
        ConfigurationError: nothing was reconciled, or the tables cannot be read or written.
        ConcurrentCommit: the statuses are being written elsewhere.
    """
    stored = Tables(tables)
    runs = _runs(stored)
    done = stored.transaction_version(STATUSES, STEP)
    spans = _spans(stored, runs)
    counts, counted = _counts(stored, open_executors, spans)
    known = {row["run_id"]: row for row in stored.read("run_totals", columns=["run_id", *_OF_FINDINGS]).to_pylist()}
    trends, changes, totals = RebuiltTrends(), [], []
    before = TABLES[STATUSES].empty_table()
    for number, run in enumerate(runs):
        doing(f"judging run {number + 1} of {len(runs)} again")
        rows = read_run_rows(stored, run.run_id)
        own = None if counts is None else counts.filter(pc.equal(counts[RUN_NUMBER], number))
        found = judge_run(run, rows, before, own, seen_archives(stored, run.observed_at), unseen_time())
        trends.add(found.trends, run.number)
        changes.append(found.changes)
        total = total_row(stored, run, found.statuses, pc.sum(rows["archived_seen"]).as_py())
        totals.append(_with_findings(total, known.get(run.run_id)))
        before = found.statuses
    moved = {STEP: runs[-1].number}
    trends.write(stored, STEP)
    stored.replace("run_totals", pa.concat_tables(totals), transactions=moved)
    stored.create("status_changes")
    with stored.rewritable("status_changes"):
        stored.replace("status_changes", pa.concat_tables(changes), transactions=moved)
    numbers = {**moved, **counted_numbers(counted)}
    stored.replace(STATUSES, before, transactions=numbers, expected={STEP: done})
    return summary_of(runs[-1], before, changes=changes[-1].num_rows)


def _runs(tables: Tables) -> list[StatusRun]:
    """Every reconciliation with a share partition, in the order of their observations."""
    columns = ["cluster_id", "run_id", "observed_at"]
    rows = tables.read("reconciliations", columns=columns).group_by(columns, use_threads=False).aggregate([])
    if not rows.num_rows:
        raise ConfigurationError(
            f"nothing was reconciled in the tables at {tables.root}", hint="run `acktrail reconcile`"
        )
    ordered = rows.sort_by([("observed_at", "ascending"), ("run_id", "ascending")])
    return [StatusRun(**row) for row in ordered.to_pylist()]


def _spans(tables: Tables, runs: Sequence[StatusRun]) -> dict[int, Int64Array]:
    """For each state partition the record before which the changes of each run lie, from 0 on."""
    ends = [log_ends(tables, run.run_id) for run in runs]
    numbers = {number for own in ends for number in own}
    built = positions_at(tables.snapshot(CHANGES), numbers)
    spans = {}
    for number in numbers:
        bounds = [0, *(min(own.get(number, 0), built[number]) for own in ends)]
        spans[number] = np.maximum.accumulate(np.array(bounds, np.int64))
    return spans


def _counts(
    tables: Tables, open_executors: OpenExecutors, spans: Mapping[int, Int64Array]
) -> tuple[pa.Table | None, CountedHistory]:
    """The counts of all runs, by their number; None: there is no history. And what is counted then."""
    snapshot = tables.snapshot(CHANGES)
    if snapshot is None:
        return None, CountedHistory()
    with open_executors("") as executors:
        counts = counts_by_run(executors, tables, snapshot, spans)
    ends = {number: int(own[-1]) for number, own in spans.items()}
    version = snapshot.version if covers(ends, snapshot) else None
    return counts, CountedHistory(ends=ends, table=table_number(snapshot), version=version, seen=snapshot.version)


def _with_findings(total: pa.Table, known: Mapping[str, object] | None) -> pa.Table:
    """`total` with what the run itself saw of findings; null where that is not known."""
    for name in _OF_FINDINGS:
        field = total.schema.field(name)
        value = None if known is None else known[name]
        total = total.set_column(total.column_names.index(name), field, pa.array([value], field.type))
    return total
