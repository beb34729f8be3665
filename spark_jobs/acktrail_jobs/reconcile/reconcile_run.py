"""The reconciliation job: replay from the tables, compare with what the brokers described, write what was found.

For example::

    state record 3:41, start offset 7            an executor replays state partition 3: a row with start offset 7
    described start offset 7, before and after   an executor judges the group and topic: `match`, no finding
    file of ``reconciliations`` with that row    the driver commits its name, under the run's transaction
    the same run once more                       the transaction is there: nothing is done
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.history.no_record_offsets import looked_offsets
from acktrail.history.observed_run import PHASES, Observation, read_descriptions, read_observation
from acktrail.history.replay_resume import ReplayResume
from acktrail.history.saved_states import REPLAY
from acktrail.tables.acknowledged_losses import acknowledged_losses
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail.tables.records.continuity import ensure_whole
from acktrail_jobs.frames import JobSession, collected, columns_of, rows_in
from acktrail_jobs.reconcile.bucket_judge import JUDGED, BucketJudge
from acktrail_jobs.reconcile.findings import (
    added_places,
    dropped_letter_findings,
    state_partition_findings,
    unpruned_findings,
)
from acktrail_jobs.reconcile.frames_of_run import (
    BUCKET,
    ReplayedRun,
    bucket_count,
    described_share_partitions,
    observed_files,
    replayed_states,
)
from acktrail_jobs.reconcile.reconcile_due import note_begun, note_reconciled
from acktrail_jobs.statuses.status_rows import counts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMMIT_ORDER: Final = ("share_partition_states", "findings", "reconciliations")
"""Tables that get one commit per run, in the order of the commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSummary:
    """The result of a reconciliation, from the tables.

    Attributes:
        share_partitions: number of share partitions with a verdict.
        moved: number of share partitions whose description changed while the state topic was read.
        verdicts: number of share partitions by verdict.
        findings: number of findings by rule.
        severities: number of findings by severity.
        went_on_from: id of the run whose saved states the replay resumed from; None if all records were replayed.
        replayed_all: the reason why all records were replayed; None if the replay resumed.
        ran_on: where the jobs ran; None if none was needed.
    """

    run_id: str
    share_partitions: int
    moved: int
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    severities: dict[str, int] = field(default_factory=dict)
    went_on_from: str | None = field(default=None, compare=False)
    replayed_all: str | None = field(default=None, compare=False)
    ran_on: str | None = field(default=None, compare=False)


def reconcile(
    tables: TablesConfig, spark: JobSession, run_id: str, *, before_done: Callable[[], object] = lambda: None
) -> ReconcileSummary:
    """Reconcile the observation `run_id`: write ``share_partition_states``, ``reconciliations`` and ``findings``.

    Replays the records since the last reconciliation, starting from the states that it saved, or all records. Repeating
    a complete run changes nothing; repeating a run that was stopped completes it. If `before_done` raises, the run is
    not noted as reconciled.

    Raises:
        DamagedTables: ``state_records`` lost commits or files that it had.
        ConfigurationError: tables that cannot be read or written.
        UnknownName, InputError: `run_id` observed nothing, or its observation is not complete.
        ConcurrentCommit: the same run is being reconciled elsewhere.
    """
    stored = Tables(tables)
    ensure_whole(stored)
    observation = read_observation(stored, run_id)
    resume = ReplayResume(stored, observation)
    note_begun(stored, observation.cluster_id, observation.run_id)
    doing(f"replaying about {resume.start().rows(resume.coverages):,} records and states")
    _reconcile(spark, stored, observation, resume)
    before_done()
    note_reconciled(stored, observation.cluster_id, observation.run_id, resume.covered_version)
    found = _summary(stored, observation.run_id)
    return replace(found, went_on_from=resume.run_id, replayed_all=resume.full_replay_reason, ran_on=spark.place)


def _reconcile(spark: JobSession, stored: Tables, observation: Observation, resume: ReplayResume) -> None:
    """Executors replay, judge and write data files. The driver commits them; ``reconciliations`` is committed last, so
    a run is visible only when it is complete."""
    commit = reconciliation_commit(observation.cluster_id, observation.run_id)
    committed = {name for name in _COMMIT_ORDER if stored.transaction_version(name, commit) is not None}
    # reconciliations is committed last; a run without findings makes no commit to findings
    missing = set() if "reconciliations" in committed else {*_COMMIT_ORDER} - committed
    if not missing and not resume.is_further:
        return
    run = replayed_run(stored, observation, resume)
    columns = columns_of(spark, JUDGED)  # opens the session: where Spark cannot start nothing is written
    tables_to_write = missing - {"findings"}
    for name in tables_to_write:
        stored.create(name)
    if resume.is_further:
        tables_to_write.add(create_anew_for(stored, REPLAY.name, observation.cluster_id or "").name)
    judge = bucket_judge(stored, run)
    judged = cogroup_by_bucket(spark, run).applyInArrow(judge.written(frozenset(tables_to_write)), columns)
    what = f"replay about {run.start.rows(run.coverages):,} records and states; judge and write"
    rows = collected(spark, what, judged, JUDGED)
    files, places = rows_in(rows, "files"), added_places(rows_in(rows, "places"))
    commit_once: dict[str, Any] = {"transactions": {commit: 1}, "expected": {commit: None}}
    if "share_partition_states" in missing:
        stored.commit_files("share_partition_states", files, **commit_once)
    if "findings" in missing:
        run_findings = (
            state_partition_findings(run.coverages.values(), observation),
            unpruned_findings(places, run.coverages, observation),
            dropped_letter_findings(stored, observation),
        )
        stored.upsert("findings", pa.concat_tables([rows_in(rows, "findings"), *run_findings]), **commit_once)
    if "reconciliations" in missing:
        stored.commit_files("reconciliations", files, **commit_once)
    counts = zip(*(places[name].to_pylist() for name in ("state_partition", "share_partitions")), strict=True)
    resume.save(files, dict(counts))


def replayed_run(stored: Tables, observation: Observation, resume: ReplayResume) -> ReplayedRun:
    """Return what a run replays, with as many buckets as its share partitions need."""
    start, described = resume.start(), sum(observed_files(stored, observation.run_id).values()) // len(PHASES)
    return ReplayedRun(
        config=stored.config,
        observation=observation,
        coverages=resume.coverages,
        start=start,
        buckets=bucket_count(max(start.saved.share_partitions, described)),
    )


def bucket_judge(stored: Tables, run: ReplayedRun) -> BucketJudge:
    """Return the judge of all buckets. What it reads is small, and read once."""
    return BucketJudge(
        run=run,
        described=read_descriptions(stored, run.observation.run_id),
        looked=looked_offsets(stored),
        settled=acknowledged_losses(stored),
    )


def cogroup_by_bucket(spark: JobSession, run: ReplayedRun) -> DataFrame:
    """Cogroup replayed states and the brokers' descriptions by bucket."""
    states, described = replayed_states(spark, run), described_share_partitions(spark, run)
    return states.groupBy(BUCKET).cogroup(described.groupBy(BUCKET))


def _summary(stored: Tables, run_id: str) -> ReconcileSummary:
    own = pc.field("run_id") == run_id
    verdicts = stored.read("reconciliations", columns=["verdict", "moved"], where=own)
    findings = stored.read("findings", columns=["rule", "severity"], where=own)
    return ReconcileSummary(
        run_id=run_id,
        share_partitions=verdicts.num_rows,
        moved=pc.sum(pc.cast(verdicts["moved"], pa.int64())).as_py() or 0,
        verdicts=counts_of(verdicts["verdict"]),
        findings=counts_of(findings["rule"]),
        severities=counts_of(findings["severity"]),
    )
