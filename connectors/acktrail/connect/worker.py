"""The worker: moves batches from a source's tasks into a sink, in commits that are neither too small nor too large."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event

from acktrail.connect.contract import LogSpan, Sink, Source, SourceBatch, SourceTask, TaskId
from acktrail.connect.read_ahead import ReadAhead


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When to commit: as soon as one bound is reached, and at the end.

    The bounds on rows and bytes hold memory flat for any size of the log; `interval_s` bounds the age of
    an uncommitted row. `poll_s` is the longest wait for one task while all are idle.
    """

    rows: int = 100_000
    size_bytes: int = 96 * 1024 * 1024
    interval_s: float = 10.0
    poll_s: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is. Records are counted in logs; observations do not count."""

    records_read: int
    records_committed: int
    tasks_finished: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What a run did. `gaps` are the spans whose first part was pruned before it could be read.

    `was_stopped`: the stop event ended the run before all tasks were finished.
    """

    records_read: int = 0
    records_quarantined: int = 0
    gaps: tuple[LogSpan, ...] = ()
    commits: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows committed, by table."""
    positions: Mapping[TaskId, int] = field(default_factory=dict)
    """Positions committed by this run."""
    tasks: int = 0
    tasks_finished: int = 0
    was_stopped: bool = False

    @property
    def records_decoded(self) -> int:
        return self.records_read - self.records_quarantined

    def followed_by(self, later: WorkerSummary) -> WorkerSummary:
        """What two runs did, one after the other."""
        return replace(
            later,
            records_read=self.records_read + later.records_read,
            records_quarantined=self.records_quarantined + later.records_quarantined,
            gaps=self.gaps + later.gaps,
            commits=self.commits + later.commits,
            rows={name: self.rows.get(name, 0) + later.rows.get(name, 0) for name in {**self.rows, **later.rows}},
            positions={**self.positions, **later.positions},
        )


@dataclass(slots=True, kw_only=True)
class _Counters:
    """What was read and not committed yet."""

    records: int = 0
    quarantined: int = 0
    size_bytes: int = 0
    gaps: tuple[LogSpan, ...] = ()

    def take(self, batch: SourceBatch) -> None:
        self.size_bytes += sum(rows.nbytes for rows in batch.rows.values())
        if batch.span is not None:
            self.records += batch.span.records
            self.quarantined += batch.span.quarantined
            if batch.span.gap_first is not None:
                self.gaps = (*self.gaps, batch.span)


class Worker:
    """Runs every task of `source` into `sink`: to its end if it has one, else until it is stopped.

    Tasks are polled on a thread of their own, the sink is used on the caller's: reading continues during a commit.

    `clock` gives seconds that never decrease. `progress` is called after every batch and every commit.
    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        *,
        policy: FlushPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._source, self._sink = source, sink
        self._policy = policy or FlushPolicy()
        self._clock, self._progress = clock, progress
        self._pending = _Counters()
        self._done = WorkerSummary()
        self._left_unread = False
        """Batches that were read ahead when the run was stopped are left to the next run."""

    @property
    def summary(self) -> WorkerSummary:
        """What the run has committed so far, also after an error."""
        is_finished = self._done.tasks_finished == self._done.tasks
        return replace(self._done, was_stopped=self._left_unread or not is_finished)

    def run(self, stop: Event | None = None) -> WorkerSummary:
        """Run until all tasks are finished or `stop` is set. Then at most one more commit follows, of as many batches
        as one commit takes. The next run reads the rest again, so that a stop takes no longer than two commits, however
        much was read ahead.

        An error ends the run at once: uncommitted records are read again by the next run.

        Raises:
            AcktrailError: any error of the source or the sink.
        """
        tasks = list(self._source.tasks())
        self._pending, self._done = _Counters(), WorkerSummary(tasks=len(tasks))
        try:
            for task in tasks:
                task.start(self._sink.position(task.task_id))
            self._move(tasks, stop or Event())
            self._flush()
            return self.summary
        finally:
            for task in tasks:
                task.close()

    def _move(self, tasks: list[SourceTask], stop: Event) -> None:
        """Put each batch and flush when it is time to, while the next batches are being read."""
        flushed_at = self._clock()
        with ReadAhead(tasks, stop, poll_s=self._policy.poll_s) as reading:
            while not reading.is_over:
                batch = reading.take(self._policy.poll_s)
                self._done = replace(self._done, tasks_finished=reading.finished)
                if batch is not None:
                    self._sink.put(batch)
                    self._pending.take(batch)
                    self._report()
                if self._is_due(flushed_at):
                    if stop.is_set():
                        self._left_unread = True
                        break
                    self._flush()
                    flushed_at = self._clock()
        self._done = replace(self._done, tasks_finished=reading.finished)

    def _is_due(self, flushed_at: float) -> bool:
        return (
            self._sink.pending_rows >= self._policy.rows
            or self._pending.size_bytes >= self._policy.size_bytes
            or self._clock() - flushed_at >= self._policy.interval_s
        )

    def _flush(self) -> None:
        commit = self._sink.flush()
        pending, self._pending = self._pending, _Counters()
        self._done = self._done.followed_by(
            WorkerSummary(
                records_read=pending.records,
                records_quarantined=pending.quarantined,
                gaps=pending.gaps,
                commits=1 if commit.rows or commit.positions else 0,
                rows=commit.rows,
                positions=commit.positions,
                tasks=self._done.tasks,
                tasks_finished=self._done.tasks_finished,
            )
        )
        self._report()

    def _report(self) -> None:
        committed = self._done.records_read
        self._progress(
            Progress(
                records_read=committed + self._pending.records,
                records_committed=committed,
                tasks_finished=self._done.tasks_finished,
                tasks=self._done.tasks,
            )
        )
