"""Exports one cluster's share-group state: once to the present end, or as one observation for a reconciliation."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Thread
from typing import Final, TypedDict, Unpack

import pyarrow as pa

from acktrail import errors
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.log_positions import SourcePartition
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.known_names import known_names
from acktrail.times import new_run_id
from acktrail_connect.export.archived_offsets import note_archived
from acktrail_connect.sinks.delta_sink import DeltaSink
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.observation import observe as observe_brokers
from acktrail_connect.sources.observation import unanswered_groups
from acktrail_connect.sources.state_source import StateTask
from acktrail_connect.task_execution import FlushPolicy, Progress, TaskExecution, TaskSummary, summary_of

_SWITCH_S: Final = 0.000_2
_RESUMPTIONS: Final = 20
"""How often in a row the reading resumes from the last commit before the error is raised."""
_LONGEST_PAUSE_S: Final = 1.0
_LOOK_UP_S: Final = 0.1
_REASONS_KEPT: Final = 20
_GAPS_KEPT: Final = 1_000
Written = tuple[Sequence[SourceBatch], pa.Table]
"""Batches without rows, and the data files that have them (``DeltaSink.put_files``)."""


@dataclass(frozen=True, slots=True)
class ExportGap:
    """Offsets of one state partition, both inclusive, that are in no row, and why (``log_positions``)."""

    state_partition: int
    first_offset: int
    last_offset: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """What one run wrote. records_read = records_decoded + records_quarantined. `status` is ``complete``, ``stopped``
    (ended before it was finished) or ``state_topic_absent`` (no share consumer ever came to this cluster). `unanswered`
    lists the requests that brokers did not answer."""

    run_id: str
    cluster_id: str
    status: str
    records_read: int = 0
    records_decoded: int = 0
    records_quarantined: int = 0
    commits: int = 0
    gaps: tuple[ExportGap, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    """Rows committed, by table."""
    unanswered: tuple[str, ...] = ()


class RunOptions(TypedDict, total=False):
    """Of a run: its id (a new one), what stops it early, when it commits, what gets its progress."""

    run_id: str | None
    stop: Event | None
    policy: FlushPolicy | None
    progress: Callable[[Progress], None]


def export(
    kafka: KafkaConfig, tables: TablesConfig, *, asks_brokers: bool = True, **options: Unpack[RunOptions]
) -> ExportSummary:
    """Copy the cluster's share-group state and its descriptions of groups and offsets into the tables.

    Up to the present end of the state topic. Nothing is changed in the cluster. The next run continues where the tables
    end. The state topic is read while the brokers are asked.

    Raises:
        NotAllAnswered: the state records are exported; requests that brokers did not answer are recorded as unknown.
        Unreachable, NotAuthorized, ForeignCluster, ConcurrentCommit, ConfigurationError: nothing half written.
        OutcomeUnknown: the storage is gone; run again.
    """
    run = ExportRun(kafka, tables, **options)
    with run.open():
        if asks_brokers:
            run.sample("before")
        else:
            run.read_state()
    return run.checked_summary()


def observe(kafka: KafkaConfig, tables: TablesConfig, **options: Unpack[RunOptions]) -> ExportSummary:
    """One observation: ask the brokers, read the state topic to its present end, ask the brokers again. The state that
    is replayed from the tables up to here must lie between the two samples. Raises as ``export``."""
    run = ExportRun(kafka, tables, **options)
    with run.open():
        run.observe()
    return run.checked_summary()


class ExportRun:
    """One run against one cluster into one set of tables. Use ``open`` first; one thread. Reading resumes from the last
    commit when another writer committed first, when a partition's leader changed, and when it is not known whether a
    commit landed: positions are read from the tables."""

    def __init__(
        self,
        kafka: KafkaConfig,
        tables: TablesConfig,
        *,
        run_id: str | None = None,
        stop: Event | None = None,
        policy: FlushPolicy | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._kafka, self._tables = kafka, tables
        self._run_id, self._stop = run_id or new_run_id(), stop or Event()
        self._policy, self._progress = policy, progress
        self._done = TaskSummary()
        self._unanswered: list[str] = []
        self._is_stopped = False
        self.is_topic_absent = False
        """No share consumer ever came to this cluster: there is no state topic."""
        self._cluster_id = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Connect, and check that the tables belong to this cluster before anything is read."""
        with ShareGroupAdmin(self._kafka) as admin:
            self._cluster_id = admin.cluster_id
            self._renew_sink()
            self._sink.start()
            yield

    def observe(self, run_id: str | None = None) -> None:
        """Sample the brokers, read the state topic to its present end, sample the brokers again. Rows of the samples
        have `run_id` (None: the run's own)."""
        if self.sample("before", run_id):
            self.read_state()
            self.sample("after", run_id, reads_state=False)

    def sample(self, phase: str, run_id: str | None = None, *, reads_state: bool = True) -> bool:
        """Ask the brokers for groups, start offsets, lag and log offsets, and commit them; False: the run was stopped.
        While they are asked, the state topic is read to its present end, unless `reads_state` is False, so that a
        coordinator that does not answer does not delay the export. `after` first finds out which archived offsets are
        records; what cannot be found out now is asked for again."""
        if phase == "after" and not self._stop.is_set():
            with suppress(errors.AcktrailError):
                note_archived(self._kafka, Tables(self._tables), self._cluster_id, run_id or self._run_id)
        sampled: Future[SourceBatch] = Future()
        asking = partial(self._ask_brokers, sampled, phase, run_id or self._run_id)
        Thread(target=asking, name="acktrail-sample", daemon=True).start()
        if reads_state:
            self.read_state()
        while not (wait([sampled], _LOOK_UP_S).done or self._stop.is_set()):
            pass
        if not sampled.done():
            self._is_stopped = True
            return False
        self._store(sampled, phase)
        return True

    def read_state(self) -> None:
        """Read the state topic from where the tables end to its present end."""
        self._resuming(self._read)

    def commit_written(self, app_id: str, number: int, write: Callable[[str], Written]) -> None:
        """Commit the state records that others have written when `write`, which gets the cluster's id, returns, with
        `number` of `app_id` as an application transaction. Nothing is done where the tables have that or a later one:
        a repetition brings nothing twice."""

        def commit() -> None:
            known = self._sink.stored.position(SourcePartition(app_id))
            if known is not None and known >= number:
                return
            batches, files = write(self._cluster_id)
            self._sink.put_files(batches, files, {app_id: number})
            rows = self._sink.flush().rows
            for done in map(summary_of, batches):
                self._add(done)
            self._add(TaskSummary(commits=1 if rows else 0, rows=rows))

        self._resuming(commit)

    def summary(self) -> ExportSummary:
        """What was done so far; `gaps` are at most the newest thousand."""
        done, status = self._done, "state_topic_absent" if self.is_topic_absent else "complete"
        return ExportSummary(
            run_id=self._run_id,
            cluster_id=self._cluster_id,
            status="stopped" if self._is_stopped else status,
            records_read=done.records_read,
            records_decoded=done.records_decoded,
            records_quarantined=done.records_quarantined,
            commits=done.commits,
            gaps=tuple(ExportGap(span.partition, *span.gap, reason=span.gap_reason) for span in done.gaps if span.gap),
            rows=dict(done.rows),
            unanswered=tuple(self._unanswered),
        )

    def checked_summary(self) -> ExportSummary:
        """``summary``. Raises NotAllAnswered, which has it, where brokers did not answer."""
        summary = self.summary()
        if summary.unanswered:
            hint = "the state records are exported; run again when the brokers answer"
            raise errors.NotAllAnswered("; ".join(summary.unanswered), summary=summary, hint=hint)
        return summary

    def _resuming(self, work: Callable[[], None]) -> None:
        """Do `work`, again from the last commit where that is safe and may help."""
        for left in range(_RESUMPTIONS, -1, -1):
            try:
                work()
            except (errors.ConcurrentCommit, errors.LogChanged, errors.OutcomeUnknown):
                self._renew_sink()
                if not left or self._stop.is_set():
                    raise
                self._stop.wait(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311  # writers that collided part ways
            else:
                return

    def _add(self, more: TaskSummary) -> None:
        done = self._done.followed_by(more)
        self._done = replace(done, gaps=done.gaps[-_GAPS_KEPT:])

    def _renew_sink(self) -> None:
        self._sink = DeltaSink(Tables(self._tables), cluster_id=self._cluster_id, run_id=self._run_id)

    def _ask_brokers(self, sampled: Future[SourceBatch], phase: str, run_id: str) -> None:
        try:
            known = known_names(Tables(self._tables))
            with ShareGroupAdmin(self._kafka) as admin:
                names = {"groups": known.groups, "topic_ids": known.topic_ids}
                sampled.set_result(observe_brokers(admin, run_id=run_id, phase=phase, **names))
        except BaseException as error:  # noqa: BLE001  # raised again on the export's thread
            sampled.set_exception(error)

    def _store(self, sampled: Future[SourceBatch], phase: str) -> None:
        """Commit the brokers' responses, and remember the missing ones."""
        try:
            batch = sampled.result()
        except errors.RetryableError as error:
            self._unanswered.append(f"not observed {phase} the export: {error.message}")
            return
        silent = unanswered_groups(batch)
        if silent:
            named = ", ".join(map(repr, silent[:3])) + (", ..." if silent[3:] else "")
            self._unanswered.append(f"no coordinator answered for {len(silent)} group(s): {named}")
        self._unanswered = list(dict.fromkeys(self._unanswered))[-_REASONS_KEPT:]

        def commit() -> None:
            self._sink.put(batch)
            rows = self._sink.flush().rows
            self._done = self._done.followed_by(TaskSummary(commits=1 if rows else 0, rows=rows))

        self._resuming(commit)

    def _read(self) -> None:
        source = StateTask(self._kafka)
        run = TaskExecution(source, self._sink, run_id=self._run_id, policy=self._policy, progress=self._progress)
        try:
            with _tuned_interpreter():
                run.run(self._stop)
        finally:
            self._add(run.summary)
        self.is_topic_absent = not source.is_present
        if run.summary.was_stopped and self._stop.is_set():
            self._is_stopped = True


@contextmanager
def _tuned_interpreter() -> Iterator[None]:
    """Reading, decoding and committing are threads that need the interpreter for microseconds at a time: waiting
    Python's usual 5 ms for it costs a seventh of an export's time. Imported objects are not searched for garbage:
    millions of messages would start that every 100,000, a tenth of an export's time."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(usual)
