"""Reading ahead: tasks are polled on a thread of their own while their earlier batches are committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Condition, Event, Thread
from typing import Final, Self

from acktrail.connect.contract import SourceBatch, SourceTask

_AHEAD_BYTES: Final = 32 * 1024 * 1024
"""About as much as is read during a commit."""
_LOOK_UP_S: Final = 0.1


class ReadAhead:
    """Polls `tasks` in turn, ahead of ``take``, until `ahead_bytes` wait. Use it as a context manager.

    From entry to exit the tasks belong to the thread: no other may touch them. While all are idle it waits for one
    of them at a time, `poll_s` seconds. It ends when every task is finished, when `stop` is set (what was read before
    can still be taken), or when the block is left.
    """

    def __init__(
        self, tasks: Sequence[SourceTask], stop: Event, *, poll_s: float, ahead_bytes: int = _AHEAD_BYTES
    ) -> None:
        self._tasks = tasks
        self._stop = stop
        self._poll_s = poll_s
        self._ahead_bytes = ahead_bytes
        self._waiting: deque[SourceBatch] = deque()
        self._waiting_bytes = 0
        self._changed = Condition()
        self._read_out = False
        self._abandoned = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._read, name="acktrail-reader", daemon=True)
        self.finished = 0
        """Tasks that gave everything."""
        self.is_over = False
        """Nothing more will come."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self._thread.join()

    def take(self, timeout_s: float) -> SourceBatch | None:
        """The next batch; None when none came within `timeout_s`, or when it is over.

        Raises:
            AcktrailError: any error of a task, after the batches read before it.
        """
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
            while self._waiting_bytes >= self._ahead_bytes and not self._abandoned.is_set():
                self._changed.wait(_LOOK_UP_S)
            self._waiting.append(batch)
            self._waiting_bytes += _size(batch)
            self._changed.notify_all()


def _size(batch: SourceBatch) -> int:
    return sum(rows.nbytes for rows in batch.rows.values())
