"""A task that lives on through outages says each of them once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from samples.memory_source import MemoryLog, MemorySink, MemoryTables, MemoryTask
from servers.workload import until

from acktrail.connect.runtime.connector_config import ErrorPolicy
from acktrail.connect.runtime.task_execution import FlushPolicy
from acktrail.connect.runtime.task_thread import TaskThread
from acktrail.connect.source_batches import Commit
from acktrail.errors import ConfigurationError, RetryableError


def endless(pairs: list[Any]) -> MemoryTask:
    return MemoryTask([MemoryLog(pairs=pairs, end_offset=100)], is_continuous=True)


def task_of(source: Callable[[], MemoryTask], sink: Callable[[], MemorySink], said: list[str]) -> TaskThread:
    """A task that commits and tries again at once."""
    plan: Any = SimpleNamespace(
        name="one",
        source=SimpleNamespace(task=lambda _: source(), cluster_id=None, reads_logs=True),
        sink=SimpleNamespace(task=lambda _: sink()),
        transforms=tuple,
        flush=FlushPolicy(interval_s=0.01, poll_s=0.01),
        errors=ErrorPolicy(longest_pause_s=0.01),
    )
    return TaskThread(plan, 0, {}, lambda event, _: said.append(event))


def test_a_storage_that_takes_nothing_for_long_is_one_outage(pairs: list[Any]) -> None:
    """Reading succeeds in every attempt and does not end the outage: the commit does."""
    tables, said = MemoryTables(), list[str]()
    left = iter(range(4))

    class FullSink(MemorySink):
        def flush(self) -> Commit:
            if self.pending_rows and next(left, None) is not None:
                raise RetryableError("the storage is full")
            return super().flush()

    thread = task_of(lambda: endless(pairs), lambda: FullSink(tables), said)
    thread.start()
    until(lambda: list(tables.positions.values()) == [100] and said[-1:] == ["outage_ended"], timeout_s=30)
    thread.request_stop()
    assert thread.join(30)
    assert said == ["outage_began", "outage_ended"]
    assert thread.errors == {"RetryableError": 4}


@pytest.mark.parametrize("is_classified", [False, True])
def test_no_more_files_is_an_outage(pairs: list[Any], is_classified: bool) -> None:
    """EMFILE passes, whoever says so: a bare error, or one that was taken for a wrong configuration."""
    tables, said = MemoryTables(), list[str]()
    left = iter(range(5))

    class NoFiles(MemorySink):
        def flush(self) -> Commit:
            if self.pending_rows and next(left, None) is not None:
                error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                if is_classified:
                    raise ConfigurationError("cannot read the options", hint="check the path") from error
                raise error
            return super().flush()

    thread = task_of(lambda: endless(pairs), lambda: NoFiles(tables), said)
    thread.start()
    until(lambda: list(tables.positions.values()) == [100] and said[-1:] == ["outage_ended"], timeout_s=30)
    thread.request_stop()
    assert thread.join(30)
    assert said == ["outage_began", "outage_ended"]
