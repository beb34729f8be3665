"""Reading ahead: tasks are polled on a thread of their own while what they gave before is being committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from queue import Empty, Full, Queue
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from acktrail.connect.contract import SourceBatch, SourceTask

__all__ = ["ReadAhead"]

_LOOK_UP_S: Final = 0.1


class ReadAhead:
    """Polls `tasks` in turn, at most `ahead` batches before they are taken. Use it as a context manager.

    From entry to exit the tasks belong to the thread: nobody else may touch them. While all are idle it waits for one
    of them at a time, `poll_s` seconds. It ends when every task is finished, when `stop` is set (what was read before
    can still be taken), or when the block is left.
    """

    def __init__(self, tasks: Sequence[SourceTask], stop: Event, *, poll_s: float, ahead: int = 4) -> None:
        self._tasks = tasks
        self._stop = stop
        self._poll_s = poll_s
        self._queue: Queue[SourceBatch | None] = Queue(ahead)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandoned.set()
        self._thread.join()

    def take(self, timeout_s: float) -> SourceBatch | None:
        """The next batch; None when none came within `timeout_s`, or when it is over.

        Raises:
            AcktrailError: whatever a task raised, after the batches read before it.
        """
        try:
            batch = self._queue.get(timeout=timeout_s)
        except Empty:
            return None
        if batch is None:
            self.is_over = True
            if self._error is not None:
                raise self._error
        return batch

    def _read(self) -> None:
        try:
            self._poll_in_turn()
        except BaseException as error:  # noqa: BLE001  # raised again by whoever takes
            self._error = error
        self._hand_over(None)

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

    def _hand_over(self, batch: SourceBatch | None) -> None:
        while not self._abandoned.is_set():
            try:
                self._queue.put(batch, timeout=_LOOK_UP_S)
            except Full:
                continue
            return
