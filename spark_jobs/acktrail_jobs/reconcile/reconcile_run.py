"""The reconciliation job: replay from the tables, compare with what the cluster said, write what was found.

For example::

    state record 3:41, start offset 7            an executor replays state partition 3: a row with start offset 7
    described start offset 7, before and after   an executor judges the group and topic: `match`, no finding
    file of ``reconciliations`` with that row    the driver commits its name, under the run's transaction
    the same run once more                       the transaction is there: nothing is done

All share partitions of a group and topic are in one share, so that findings about one beside the others are found
there. Only names of files, findings and sums leave an executor.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.executors import GROUP, Executors, GroupedWork
from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.schemas.table_schemas import FINDINGS, RECONCILIATIONS, SHARE_PARTITION_STATES
from acktrail.history.no_record_offsets import looked_offsets
from acktrail.history.observed_run import Coverage, Observation, read_descriptions, read_observation, with_topics
from acktrail.history.partition_replay import SAVED_COLUMNS, replayed_states
from acktrail.history.replay_resume import ReplayResume, ReplayStart, replay_of, replay_shares
from acktrail.history.saved_states import REPLAY, with_cluster
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_commit import WRITTEN_FILES, written_file
from acktrail.tables.delta.table_snapshot import reconciliation_commit
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.seen_losses import seen_losses
from acktrail_jobs.reconcile.findings import (
    PLACES,
    added_places,
    dropped_letter_findings,
    places_of,
    share_partition_findings,
    state_partition_findings,
    unpruned_findings,
    with_critical_findings,
    without_start_findings,
)
from acktrail_jobs.reconcile.reconcile_due import note_begun, note_reconciled
from acktrail_jobs.reconcile.verdict_rows import one_state_per_partition, reconcile_rows
from acktrail_jobs.statuses.status_rows import counts_of

_REPLAYED: Final = SAVED_COLUMNS.append(pa.field(GROUP, pa.int64()))
_JUDGED: Final = pa.schema([*FINDINGS, *WRITTEN_FILES, *PLACES])
"""A row is a finding, a file, or what is known of a state partition."""
_KEY: Final = [(name, "ascending") for name in KEY_COLUMNS]
_BY_COMMIT: Final = ("share_partition_states", "findings", "reconciliations")
"""The tables that get one commit of a run, in the order of the commits."""
_FEW_ROWS: Final = 50_000
"""Records and states whose share partitions are judged as one share."""
_GROUPS_EACH: Final = 4
"""Shares that an executor judges one after the other: it holds one at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSummary:
    """What the tables hold of a run: counts by verdict, and its findings by rule and by severity. `moved`: share
    partitions whose description changed while the state topic was read. `went_on_from`: the run whose saved replay was
    continued; None: all records were replayed, and `replayed_all` says why. `ran_on`: where; None: nowhere."""

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
    tables: TablesConfig,
    executors: Executors,
    run_id: str,
    *,
    before_done: Callable[[], object] = lambda: None,
) -> ReconcileSummary:
    """Reconcile the observation `run_id`: write ``share_partition_states``, ``reconciliations`` and ``findings``.

    Replays the records that came since the last reconciliation, from the states that it left, or all of them. The same
    run again changes nothing: a run that was stopped half-way is completed. Where `before_done`
    fails, the run is not noted as reconciled.

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
    _reconcile(executors, stored, observation, resume)
    before_done()
    note_reconciled(stored, observation.cluster_id, observation.run_id, resume.covered_version)
    found = _summary(stored, observation.run_id)
    return replace(found, went_on_from=resume.run_id, replayed_all=resume.full_replay_reason, ran_on=executors.place)


def _reconcile(executors: Executors, stored: Tables, observation: Observation, resume: ReplayResume) -> None:
    """Executors replay, judge and write; their files become part of the tables here, those of the verdicts last."""
    commit = reconciliation_commit(observation.cluster_id, observation.run_id)
    done = [name for name in _BY_COMMIT if stored.transaction_version(name, commit) is not None]
    missing = set() if _BY_COMMIT[-1] in done else {*_BY_COMMIT} - {*done}  # no findings leave no commit
    if not missing and not resume.is_further:
        return
    start, coverages = resume.start(), resume.coverages
    shares = replay_shares(coverages, start, executors.count)  # where Spark cannot start nothing is written
    wanted = missing - {"findings"}
    for name in wanted:
        stored.create(name)
    if resume.is_further:
        wanted.add(create_anew_for(stored, REPLAY.name, observation.cluster_id or "").name)
    judge = ShareJudge(
        tables=stored.config,
        observation=observation,
        coverages=coverages,
        groups=executors.count * _GROUPS_EACH if start.rows(coverages) > _FEW_ROWS else 1,
        wanted=frozenset(wanted),
    )
    work = partial(replay_numbered, judge, start)
    grouped = GroupedWork(work=work, rows=_REPLAYED, groups=judge.groups, judge=judge.judge)
    found = executors.run_grouped("replay the state records, judge and write", shares, grouped, _JUDGED)
    places = added_places(found.filter(pc.field("state_partition").is_valid()).select(PLACES.names))
    once: dict[str, Any] = {"transactions": {commit: 1}, "expected": {commit: None}}
    if "share_partition_states" in missing:
        stored.commit_files("share_partition_states", found, **once)
    if "findings" in missing:
        of_all = (
            state_partition_findings(coverages.values(), observation),
            unpruned_findings(places, coverages, observation),
            dropped_letter_findings(stored, observation),
        )
        own = found.filter(pc.field("rule").is_valid()).select(FINDINGS.names)
        stored.upsert("findings", pa.concat_tables([own, *of_all]), **once)
    if "reconciliations" in missing:
        stored.commit_files("reconciliations", found, **once)
    counts = zip(*(places[name].to_pylist() for name in ("state_partition", "share_partitions")), strict=True)
    resume.save(found.filter(pc.field("path").is_valid()).select(WRITTEN_FILES.names), dict(counts))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareJudge:
    """The judge of a run. `groups`: how many shares there are; `wanted`: the tables whose files are written."""

    tables: TablesConfig
    observation: Observation
    coverages: Mapping[int, Coverage]
    groups: int
    wanted: frozenset[str]

    def judge(self, number: int, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows of ``_JUDGED`` for the replayed rows of share `number`. Raises as ``Tables`` does."""
        tables, saved = Tables(self.tables), rows.select(SAVED_COLUMNS.names).cast(SAVED_COLUMNS)
        described = read_descriptions(tables, self.observation.run_id)
        described = described.only(group_numbers(described.shares, self.groups) == number)
        replayed = replayed_states(saved, self.observation, self.coverages, looked_offsets(tables))
        states = one_state_per_partition(replayed)
        verdicts = reconcile_rows(states, described, self.observation, self.coverages).sort_by(_KEY)
        settled = seen_losses(tables)
        broken = share_partition_findings(verdicts, self.observation, settled)
        yield broken
        yield without_start_findings(verdicts, self.observation)
        yield places_of(saved)
        own = {
            "share_partition_states": with_topics(states, described).select(SHARE_PARTITION_STATES.names).sort_by(_KEY),
            "reconciliations": with_critical_findings(verdicts.select(RECONCILIATIONS.names), broken),
            "replay_memory": with_cluster(saved, REPLAY, self.observation.cluster_id or ""),
        }
        for name in sorted(self.wanted):
            yield written_file(tables.place(name), own[name])


def replay_numbered(judge: ShareJudge, start: ReplayStart, coverages: Sequence[Coverage]) -> Iterator[pa.Table]:
    """What a replay leaves of some state partitions, each row with the number of its share."""
    saved = replay_of(Tables(judge.tables), judge.observation, start, coverages).rows()
    yield saved.append_column(GROUP, pa.array(group_numbers(saved, judge.groups)))


def group_numbers(rows: pa.Table, groups: int) -> Int64Array:
    """The number of the share of each row, from 0 to before `groups`: the same for all rows of a group and topic.

    >>> rows = pa.table({"group_id": ["a", "b", "a"], "topic_id": ["x", None, "x"]})
    >>> first, second, third = group_numbers(rows, 5).tolist()
    >>> first == third
    True
    """
    if groups == 1 or not rows.num_rows:
        return np.zeros(rows.num_rows, np.int64)
    found = np.zeros(rows.num_rows, np.int64)
    for name in ("group_id", "topic_id"):
        texts = rows[name].combine_chunks().dictionary_encode("encode")
        hashes = [zlib.crc32((text or "").encode()) for text in texts.dictionary.to_pylist()]
        found = (31 * found + np.array(hashes, np.int64)[texts.indices.to_numpy()]) % groups
    return found
