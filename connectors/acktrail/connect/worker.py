"""The worker: moves batches from a source's tasks into a sink, in commits that are neither too small nor too large."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Condition, Event, Thread
from typing import Final, Self

from acktrail.connect.contract import LogSpan, Sink, Source, SourceBatch, SourceTask, TaskId

_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""About as much as is read during a commit."""
_LOOK_UP_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When to commit: as soon as one bound is reached, and at the end. The bounds on rows and bytes hold memory flat
    for any size of the log; `interval_s` bounds the age of an uncommitted row. `poll_s` is the longest wait for one
    task while all are idle."""

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
    """What a run did. `gaps` are the spans whose first part was pruned before it could be read, `rows` and `positions`
    what was committed, by table and by task. `was_stopped`: the stop event ended the run before all tasks were
    finished."""

    records_read: int = 0
    records_quarantined: int = 0
    gaps: tuple[LogSpan, ...] = ()
    commits: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[TaskId, int] = field(default_factory=dict)
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


class ReadAhead:
    """Polls `tasks` in turn, ahead of ``take``, until 32 MB wait. Use it as a context manager.

    From entry to exit the tasks belong to the thread: no other may touch them. While all are idle it waits for one
    of them at a time, `poll_s` seconds. It ends when every task is finished, when `stop` is set (what was read before
    can still be taken), or when the block is left. `finished` counts the tasks that gave everything; `is_over`: nothing
    more will come.
    """

    def __init__(self, tasks: Sequence[SourceTask], stop: Event, *, poll_s: float) -> None:
        self._tasks = tasks
        self._stop = stop
        self._poll_s = poll_s
        self._waiting: deque[SourceBatch] = deque()
        self._waiting_bytes = 0
        self._changed = Condition()
        self._read_out = False
        self._abandoned = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._read, name="acktrail-reader", daemon=True)
        self.finished = 0
        self.is_over = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self._thread.join()

    def take(self, timeout_s: float) -> SourceBatch | None:
        """The next batch; None when none came within `timeout_s`, or when it is over. Raises any error of a task, after
        the batches read before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._read_out, timeout_s)
            if self._waiting:
                batch = self._waiting.popleft()
                self._waiting_bytes -= _size(batch)
                self._changed.notify_all()
                return batch
            self.is_over = self._read_out
        if self.is_over and self._error is not None:
            raise self._error
        return None

    def _read(self) -> None:
        try:
            self._poll_in_turn()
        except BaseException as error:  # noqa: BLE001  # raised again by ``take``
            self._error = error
        with self._changed:
            self._read_out = True
            self._changed.notify_all()

    def _poll_in_turn(self) -> None:
        running = deque(self._tasks)
        idle = 0
        while running and not (self._stop.is_set() or self._abandoned.is_set()):
            task = running.popleft()
            batch = task.poll(self._poll_s if idle > len(running) else 0.0)
            idle = idle + 1 if batch is None else 0
            if batch is not None:
                self._hand_over(batch)
            if task.is_finished:
                self.finished += 1
            else:
                running.append(task)

    def _hand_over(self, batch: SourceBatch) -> None:
        with self._changed:
            while self._waiting_bytes >= _AHEAD_BYTES and not self._abandoned.is_set():
                self._changed.wait(_LOOK_UP_S)
            self._waiting.append(batch)
            self._waiting_bytes += _size(batch)
            self._changed.notify_all()


def _size(batch: SourceBatch) -> int:
    return sum(rows.nbytes for rows in batch.rows.values())


class Worker:
    """Runs every task of `source` into `sink`: to its end if it has one, else until it is stopped. Tasks are polled on
    a thread of their own, the sink is used on the caller's: reading continues during a commit. `clock` gives seconds
    that never decrease. `progress` is called after every batch and every commit."""

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
        self._pending = self._done = WorkerSummary()
        """What was read and not committed yet, and what was committed."""
        self._pending_bytes = 0
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
        self._pending, self._done = WorkerSummary(), WorkerSummary(tasks=len(tasks))
        self._pending_bytes = 0
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
                    self._put(batch)
                if self._is_due(flushed_at):
                    if stop.is_set():
                        self._left_unread = True
                        break
                    self._flush()
                    flushed_at = self._clock()
        self._done = replace(self._done, tasks_finished=reading.finished)

    def _put(self, batch: SourceBatch) -> None:
        self._sink.put(batch)
        self._pending_bytes += _size(batch)
        span = batch.span
        if span is not None:
            gaps = () if span.gap_first is None else (span,)
            read = WorkerSummary(records_read=span.records, records_quarantined=span.quarantined, gaps=gaps)
            self._pending = self._pending.followed_by(read)
        self._report()

    def _is_due(self, flushed_at: float) -> bool:
        return (
            self._sink.pending_rows >= self._policy.rows
            or self._pending_bytes >= self._policy.size_bytes
            or self._clock() - flushed_at >= self._policy.interval_s
        )

    def _flush(self) -> None:
        commit = self._sink.flush()
        committed = replace(
            self._pending,
            commits=1 if commit.rows or commit.positions else 0,
            rows=commit.rows,
            positions=commit.positions,
            tasks=self._done.tasks,
            tasks_finished=self._done.tasks_finished,
        )
        self._done = self._done.followed_by(committed)
        self._pending, self._pending_bytes = WorkerSummary(), 0
        self._report()

    def _report(self) -> None:
        committed = self._done.records_read
        self._progress(
            Progress(
                records_read=committed + self._pending.records_read,
                records_committed=committed,
                tasks_finished=self._done.tasks_finished,
                tasks=self._done.tasks,
            )
        )
