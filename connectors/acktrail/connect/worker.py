"""The worker: moves batches from a source's tasks into a sink, in commits that are neither too small nor too large."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from acktrail.connect.contract import LogSpan, Sink, Source, SourceBatch, SourceTask, TaskId
from acktrail.connect.read_ahead import ReadAhead

__all__ = ["FlushPolicy", "Progress", "Worker", "WorkerSummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When to commit: as soon as one of them is reached, and at the end.

    The bounds on rows and bytes hold memory flat, whatever the size of the log; `interval_s` bounds how old a row
    may get that no commit has yet. `poll_s` is how long one task may be waited for while all are idle.
    """

    rows: int = 100_000
    size_bytes: int = 96 * 1024 * 1024
    interval_s: float = 10.0
    poll_s: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is. Records are those of logs; observations do not count."""

    records_read: int
    records_committed: int
    tasks_finished: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What a run did. `gaps` are the spans whose first part was pruned before it could be read.

    `was_stopped`: the stop event ended the run before all tasks were finished.
    """

    records_read: int
    records_quarantined: int
    gaps: tuple[LogSpan, ...]
    commits: int
    rows: dict[str, int]
    """Rows committed, by table."""
    positions: dict[TaskId, int]
    """Positions committed by this run."""
    tasks: int
    tasks_finished: int
    was_stopped: bool

    @property
    def records_decoded(self) -> int:
        return self.records_read - self.records_quarantined


@dataclass(slots=True, kw_only=True)
class _Counters:
    """What was read, committed and is pending so far."""

    records_read: int = 0
    records_committed: int = 0
    records_quarantined: int = 0
    pending_bytes: int = 0
    commits: int = 0
    finished: int = 0
    gaps: list[LogSpan] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    positions: dict[TaskId, int] = field(default_factory=dict)
    was_cut: bool = False
    """What was read ahead when the run was stopped was left to the next run."""
    landed: tuple[int, int, int] = (0, 0, 0)
    """Records read, records quarantined and gaps as of the last commit."""

    def take(self, batch: SourceBatch) -> None:
        self.pending_bytes += sum(rows.nbytes for rows in batch.rows.values())
        if batch.span is not None:
            self.records_read += batch.span.records
            self.records_quarantined += batch.span.quarantined
            if batch.span.gap_first is not None:
                self.gaps.append(batch.span)


class Worker:
    """Runs every task of `source` into `sink`: to their ends if they have one, else until it is told to stop.

    Tasks are polled on one thread of their own, the sink is used on the caller's: reading goes on during a commit.

    `clock` gives seconds that never go back. `progress` is called after every batch and every commit.
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
        self._source = source
        self._sink = sink
        self._policy = policy or FlushPolicy()
        self._clock = clock
        self._progress = progress
        self._tally = _Counters()
        self._tasks = 0

    @property
    def landed(self) -> WorkerSummary:
        """What the run has committed so far, also after an error."""
        counters = self._tally
        records, quarantined, gaps = counters.landed
        return WorkerSummary(
            records_read=records,
            records_quarantined=quarantined,
            gaps=tuple(counters.gaps[:gaps]),
            commits=counters.commits,
            rows=counters.rows,
            positions=counters.positions,
            tasks=self._tasks,
            tasks_finished=counters.finished,
            was_stopped=counters.was_cut or counters.finished < self._tasks,
        )

    def run(self, stop: Event | None = None) -> WorkerSummary:
        """Run until all tasks are finished or `stop` is set. Then one more commit follows at most: of what was read, as
        far as one commit takes it. The rest is read again by the next run, so that a stop takes no longer than two
        commits, however much was read ahead.

        An error ends the run at once: what was not committed is read again by the next one.

        Raises:
            AcktrailError: whatever the source or the sink raises.
        """
        tasks = list(self._source.tasks())
        try:
            return self._run(tasks, stop or Event())
        finally:
            for task in tasks:
                task.close()

    def _run(self, tasks: list[SourceTask], stop: Event) -> WorkerSummary:
        counters = self._tally = _Counters()
        self._tasks = len(tasks)
        for task in tasks:
            task.start(self._sink.position(task.task_id))
        self._move(tasks, stop, counters)
        self._flush(counters, len(tasks))
        return self.landed

    def _move(self, tasks: list[SourceTask], stop: Event, counters: _Counters) -> None:
        """Put what comes and flush when it is time to, while the next batches are being read."""
        flushed_at = self._clock()
        with ReadAhead(tasks, stop, poll_s=self._policy.poll_s) as reading:
            while not reading.is_over:
                batch = reading.take(self._policy.poll_s)
                counters.finished = reading.finished
                if batch is not None:
                    self._put(batch, counters, len(tasks))
                if self._is_due(counters, flushed_at):
                    if stop.is_set():
                        counters.was_cut = True
                        break
                    self._flush(counters, len(tasks))
                    flushed_at = self._clock()
        counters.finished = reading.finished

    def _put(self, batch: SourceBatch, counters: _Counters, tasks: int) -> None:
        self._sink.put(batch)
        counters.take(batch)
        self._progress(_progress(counters, tasks))

    def _is_due(self, counters: _Counters, flushed_at: float) -> bool:
        return (
            self._sink.pending_rows >= self._policy.rows
            or counters.pending_bytes >= self._policy.size_bytes
            or self._clock() - flushed_at >= self._policy.interval_s
        )

    def _flush(self, counters: _Counters, tasks: int) -> None:
        commit = self._sink.flush()
        if commit.rows or commit.positions:
            counters.commits += 1
        for name, rows in commit.rows.items():
            counters.rows[name] = counters.rows.get(name, 0) + rows
        counters.positions.update(commit.positions)
        counters.records_committed = counters.records_read
        counters.landed = (counters.records_read, counters.records_quarantined, len(counters.gaps))
        counters.pending_bytes = 0
        self._progress(_progress(counters, tasks))


def _progress(counters: _Counters, tasks: int) -> Progress:
    return Progress(
        records_read=counters.records_read,
        records_committed=counters.records_committed,
        tasks_finished=counters.finished,
        tasks=tasks,
    )
