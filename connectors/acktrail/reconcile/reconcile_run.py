"""The reconciliation job: replay from the tables, compare with what the cluster said, write what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import RECONCILIATIONS, SHARE_PARTITION_STATES
from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.executors import Executors, OpenExecutors
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.findings import share_partition_findings, state_partition_findings, with_critical_findings
from acktrail.reconcile.neighbour_findings import (
    dropped_letter_findings,
    unpruned_findings,
    without_start_findings,
)
from acktrail.reconcile.observed_run import Observation, newest_run, read_descriptions, read_observation, with_topics
from acktrail.reconcile.partition_replay import replayed_states
from acktrail.reconcile.reconcile_due import note_begun, note_reconciled
from acktrail.reconcile.replay_resume import ReplayResume, run_replay
from acktrail.reconcile.verdict_rows import one_state_per_partition, reconcile_rows
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail.tables.exported.continuity import ensure_whole
from acktrail.tables.findings_seen import settled_archives

_ROWS_AT_ONCE: Final = 50_000
"""Rows of one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSummary:
    """What the tables hold of a run: counts by verdict, and its findings by rule and by severity. `moved`: share
    partitions whose description changed while the state topic was read. `went_on_from`: the run whose saved replay was
    continued; None: all records were replayed, and `replayed_all` says why."""

    run_id: str
    share_partitions: int
    moved: int
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    severities: dict[str, int] = field(default_factory=dict)
    went_on_from: str | None = field(default=None, compare=False)
    replayed_all: str | None = field(default=None, compare=False)


def reconcile(
    tables: TablesConfig,
    open_executors: OpenExecutors,
    run_id: str | None = None,
    *,
    before_done: Callable[[str], object] = lambda _run_id: None,
) -> ReconcileSummary:
    """Reconcile the observation `run_id` (None: the newest complete one): write ``share_partition_states``,
    ``reconciliations`` and ``findings``.

    Replays the records that came since the last reconciliation, from the states that it left, or all of them. The same
    run again changes nothing: a run that was stopped half-way is completed. `before_done` is called with the run's id
    while the executors are open; where it fails, the run is not noted as reconciled.

    Raises:
        DamagedTables: ``state_records`` lost commits or files that it had.
        ConfigurationError: no complete observation, or tables that cannot be read or written.
        UnknownName, InputError: `run_id` observed nothing, or its observation is not complete.
        ConcurrentCommit: the same run is being reconciled elsewhere.
    """
    stored = Tables(tables)
    ensure_whole(stored)
    observation = read_observation(stored, run_id or newest_run(stored))
    resume = ReplayResume(stored, observation)
    note_begun(stored, observation.cluster_id, observation.run_id)
    rows = resume.start().rows(resume.coverages)
    doing(f"replaying about {rows:,} records and states")
    with open_executors(observation.run_id) as executors:
        _reconcile(executors, stored, observation, resume)
        before_done(observation.run_id)
    note_reconciled(stored, observation.cluster_id, observation.run_id, resume.covered_version)
    found = _summary(stored, observation.run_id)
    return replace(found, went_on_from=resume.run_id, replayed_all=resume.full_replay_reason)


def _reconcile(executors: Executors, stored: Tables, observation: Observation, resume: ReplayResume) -> None:
    coverages = resume.coverages
    saved = run_replay(executors, stored, observation, coverages, resume.start())
    described = read_descriptions(stored, observation.run_id)
    states = one_state_per_partition(replayed_states(saved, observation, coverages))
    verdicts = reconcile_rows(states, described, observation, coverages)
    doing(f"writing the states of {states.num_rows:,} share partitions")
    for number, rows in _pieces(with_topics(states, described).select(SHARE_PARTITION_STATES.names)):
        _write_once(stored, observation, "share_partition_states", str(number), rows.cast(SHARE_PARTITION_STATES))
    found = pa.concat_tables(
        (
            state_partition_findings(coverages.values(), observation),
            unpruned_findings(saved, coverages, observation),
            without_start_findings(verdicts, observation),
            dropped_letter_findings(stored, observation),
        )
    )
    _write_once(stored, observation, "findings", "state partitions", found)
    settled = settled_archives(stored, observation.observed_at)
    for number, rows in _pieces(verdicts):
        broken = share_partition_findings(rows, observation, settled)
        _write_once(stored, observation, "findings", str(number), broken)
        named = with_critical_findings(rows.select(RECONCILIATIONS.names), broken)
        _write_once(stored, observation, "reconciliations", str(number), named)
    resume.save(saved)


def _pieces(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """`rows` in numbered pieces, which depend on the set of rows and not on their order; at least one, so that a
    reconciliation without a share partition leaves its commit too."""
    if rows.num_rows > _ROWS_AT_ONCE:
        rows = rows.sort_by([(name, "ascending") for name in KEY_COLUMNS])
    for number in range(max(1, -(-rows.num_rows // _ROWS_AT_ONCE))):
        yield number, rows.slice(number * _ROWS_AT_ONCE, _ROWS_AT_ONCE)


def _write_once(stored: Tables, observation: Observation, table: str, piece: str, rows: pa.Table) -> None:
    """Commit one piece of a table, unless an earlier attempt of this run did."""
    app_id = reconciliation_commit(observation.cluster_id, observation.run_id, piece)
    if stored.transaction_version(table, app_id) is not None:
        return
    if table == "findings":
        stored.upsert(table, rows, transactions={app_id: 1})
    else:
        stored.append(table, rows, transactions={app_id: 1}, expected={app_id: None})


def _summary(stored: Tables, run_id: str) -> ReconcileSummary:
    own = pc.field("run_id") == run_id
    verdicts = stored.read("reconciliations", columns=["verdict", "moved"], where=own)
    findings = stored.read("findings", columns=["rule", "severity"], where=own)
    return ReconcileSummary(
        run_id=run_id,
        share_partitions=verdicts.num_rows,
        moved=pc.sum(pc.cast(verdicts["moved"], pa.int64())).as_py() or 0,
        verdicts=_counts(verdicts["verdict"]),
        findings=_counts(findings["rule"]),
        severities=_counts(findings["severity"]),
    )


def _counts(values: pa.ChunkedArray) -> dict[str, int]:
    found = {row["values"]: row["counts"] for row in pc.value_counts(values).to_pylist()}
    return dict(sorted(found.items()))
