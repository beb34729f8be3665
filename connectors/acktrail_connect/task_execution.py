"""Moves batches from a source task into a sink task, in commits that are neither too small nor too large."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, Final, Self

from acktrail.errors import ForeignCluster, InputError
from acktrail.model.log_positions import LogSpan, Position, SourcePartition
from acktrail_connect.contract import CommittedPositions, SinkTask, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch

_AHEAD_BYTES: Final = 12 * 1024 * 1024
"""With more, memory grows and nothing becomes faster."""
_LOOK_UP_S: Final = 0.1
Change = Callable[[SourceBatch], SourceBatch]
"""What transforms make of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """When to commit: as soon as one bound is reached, and at the end. The bounds on rows and bytes hold memory flat
    for any size of the log; `interval_s` bounds the age of an uncommitted row. `poll_s` is the longest wait of one
    poll."""

    rows: int = 100_000
    size_bytes: int = 96 * 1024 * 1024
    interval_s: float = 10.0
    poll_s: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is. Records are counted in logs; observations do not count. `pending_rows` of any kind are read and
    not committed."""

    records_read: int
    records_committed: int
    partitions_finished: int
    partitions: int
    pending_rows: int = 0


_SUMMED: Final = ("records_read", "records_quarantined", "bytes_read", "gap_count", "gap_offsets", "gaps", "commits")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """What a run did. `gaps` are the spans whose first part was pruned before it could be read, `rows` and `positions`
    what was committed, by table and by source partition; `gap_count` and `gap_offsets` count all gaps, also those that
    `gaps` has no more. `bytes_read` is the size of the rows in memory. `was_stopped`: the stop event ended the run
    before the source task was finished."""

    records_read: int = 0
    records_quarantined: int = 0
    bytes_read: int = 0
    gap_count: int = 0
    gap_offsets: int = 0
    gaps: tuple[LogSpan, ...] = ()
    commits: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[SourcePartition, Position] = field(default_factory=dict)
    partitions: int = 0
    partitions_finished: int = 0
    was_stopped: bool = False

    @property
    def records_decoded(self) -> int:
        return self.records_read - self.records_quarantined

    def followed_by(self, later: TaskSummary) -> TaskSummary:
        """What two runs did, one after the other."""
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(later, name) for name in _SUMMED}
        rows = Counter(self.rows)
        rows.update(later.rows)
        return replace(later, **sums, rows=dict(rows), positions={**self.positions, **later.positions})


class ReadAhead:
    """Polls `task` ahead of ``take``, until 12 MB wait. Use it as a context manager.

    From entry to exit the task belongs to the thread: no other may touch it. It ends when the task is finished, when
    `stop` is set (what was read before can still be taken), or when the block is left. `is_over`: nothing more will
    come; `is_finished`: because the task gave everything. `partitions` as of the task, at its last poll. Each batch
    passes `changed`.
    """

    def __init__(self, task: SourceTask, stop: Event, *, poll_s: float, changed: Change) -> None:
        self._task, self._change = task, changed
        self._stop, self._abandoned, self._has_room = stop, Event(), Event()
        self._poll_s = poll_s
        self._waiting: SimpleQueue[tuple[SourceBatch, int] | None] = SimpleQueue()
        self._given_bytes = self._taken_bytes = 0  # each is written by one thread
        self._error: BaseException | None = None
        self._thread = Thread(target=self._read, name="acktrail-reader", daemon=True)
        self.partitions = task.partitions
        self.is_finished = self.is_over = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self._thread.join()

    def take(self, timeout_s: float) -> tuple[SourceBatch, int] | None:
        """The next batch and the bytes of its rows; None when none came within `timeout_s`, or when it is over. Raises
        any error of the task, after the batches read before it."""
        try:
            taken = self._waiting.get(timeout=timeout_s)
        except Empty:
            return None
        if taken is not None:
            self._taken_bytes += taken[1]
            self._has_room.set()
            return taken
        self.is_over = True
        if self._error is not None:
            raise self._error
        return None

    def _read(self) -> None:
        try:
            self._poll()
        except BaseException as error:  # noqa: BLE001  # raised again by ``take``
            self._error = error
        self._waiting.put(None)

    def _poll(self) -> None:
        task = self._task
        while not task.is_finished:
            if self._stop.is_set() or self._abandoned.is_set():
                return
            for batch in map(self._change, task.poll(self._poll_s)):
                self._hand_over(batch, size_of(batch))
            self.partitions = task.partitions
        self.is_finished = True

    def _hand_over(self, batch: SourceBatch, size: int) -> None:
        while self._given_bytes - self._taken_bytes >= _AHEAD_BYTES and not self._abandoned.is_set():
            self._has_room.wait(_LOOK_UP_S)
            self._has_room.clear()
        self._given_bytes += size
        self._waiting.put((batch, size))


def size_of(batch: SourceBatch) -> int:
    """Bytes of a batch's rows. Every buffer of every column is looked at: ask once a batch."""
    return sum(rows.nbytes for rows in batch.rows.values())


class TaskExecution:
    """Runs `source` into `sink`: to its end if it has one, else until it is stopped. The source is polled on a thread
    of its own, the sink is used on the caller's: reading continues during a commit. `clock` gives seconds that never
    decrease, `committed` is handed to the source, `changed` makes of a batch what the sink gets. `progress` is called
    after every batch and every commit. `refused` makes dead letters of a batch whose rows the sink refuses; None: such
    a batch ends the run."""

    def __init__(
        self,
        source: SourceTask,
        sink: SinkTask,
        *,
        run_id: str = "run",
        policy: FlushPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        committed: CommittedPositions = lambda _: {},
        progress: Callable[[Progress], None] = lambda _: None,
        changed: Change = lambda batch: batch,
        refused: Callable[[SourceBatch, InputError], SourceBatch] | None = None,
    ) -> None:
        self._source, self._sink, self._run_id = source, sink, run_id
        self._change, self._refused = changed, refused
        self._policy = policy or FlushPolicy()
        self._clock, self._committed, self._progress = clock, committed, progress
        self._pending = self._done = TaskSummary()
        """What was read and not committed yet, and what was committed."""
        self._pending_bytes = 0
        self._is_finished = False
        self._asked: set[SourcePartition] = set()

    @property
    def summary(self) -> TaskSummary:
        """What the run has committed so far, also after an error."""
        return replace(self._done, was_stopped=not self._is_finished)

    def run(self, stop: Event | None = None) -> TaskSummary:
        """Run until the task is finished or `stop` is set. Then at most one more commit follows, of as many batches
        as one commit takes. The next run reads the rest again, so that a stop takes no longer than two commits, however
        much was read ahead.

        An error ends the run at once: uncommitted records are read again by the next run. Only where the source says
        that its origin is another one now (ForeignCluster), or a batch is refused (InputError), what was read before is
        committed first.

        Raises:
            AcktrailError: any error of the source or the sink.
        """
        self._pending, self._done = TaskSummary(), TaskSummary()
        self._pending_bytes, self._is_finished, self._asked = 0, False, set()
        stop = stop or Event()
        sink = self._sink
        context = SourceTaskContext(
            run_id=self._run_id, position=self._position, committed=self._committed, stored=sink.stored, stop=stop
        )
        try:
            sink.start()
            self._source.start(context)
            self._move(stop)
            self._flush()
            return self.summary
        finally:
            self._source.stop()

    def _move(self, stop: Event) -> None:
        """Put each batch and flush when it is time to, while the next batches are being read."""
        flushed_at = self._clock()
        with ReadAhead(self._source, stop, poll_s=self._policy.poll_s, changed=self._change) as reading:
            while not reading.is_over:
                try:
                    taken = reading.take(self._policy.poll_s)
                    self._note(reading.partitions)
                    if taken is not None:
                        self._put(*taken)
                except (ForeignCluster, InputError):  # what came before is good, and may be nowhere else any more
                    self._flush()
                    raise
                if self._is_due(flushed_at):
                    if stop.is_set():
                        return
                    self._flush()
                    flushed_at = self._clock()
        self._is_finished = reading.is_finished
        self._note(reading.partitions)

    def _note(self, partitions: tuple[int, int]) -> None:
        """How many partitions are at their end, and how many there are. Usually that is known."""
        if partitions != (self._done.partitions_finished, self._done.partitions):
            ended, count = partitions
            self._done = replace(self._done, partitions_finished=ended, partitions=count)

    def _position(self, source_partition: SourcePartition) -> Position | None:
        self._asked.add(source_partition)
        return self._sink.position(source_partition)

    def _put(self, batch: SourceBatch, size: int) -> None:
        if batch.position is not None and batch.source_partition not in self._asked:
            self._position(batch.source_partition)  # the contract of sinks, also where the source did not ask
        try:
            self._sink.put(batch)
        except InputError as error:
            if self._refused is None or batch.span is not None:  # a log is whole, or it is not exported
                raise
            batch = self._refused(batch, error)
            self._sink.put(batch)
            size = size_of(batch)
        self._pending_bytes += size
        self._pending = self._pending.followed_by(summary_of(batch, size))
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
            partitions=self._done.partitions,
            partitions_finished=self._done.partitions_finished,
        )
        self._done = self._done.followed_by(committed)
        self._pending, self._pending_bytes = TaskSummary(), 0
        if commit.positions:
            self._source.commit(commit.positions)
        self._report()

    def _report(self) -> None:
        committed = self._done.records_read
        self._progress(
            Progress(
                records_read=committed + self._pending.records_read,
                records_committed=committed,
                partitions_finished=self._done.partitions_finished,
                partitions=self._done.partitions,
                pending_rows=self._sink.pending_rows,
            )
        )


def summary_of(batch: SourceBatch, size: int = 0) -> TaskSummary:
    """What a batch of `size` bytes adds to the counts."""
    span = batch.span
    if span is None:
        return TaskSummary(bytes_read=size)
    return TaskSummary(
        records_read=span.records,
        records_quarantined=span.quarantined,
        bytes_read=size,
        gap_count=1 if span.gap else 0,
        gap_offsets=span.gap[1] - span.gap[0] + 1 if span.gap else 0,
        gaps=(span,) if span.gap else (),
    )
