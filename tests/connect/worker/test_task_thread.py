"""A task of a worker lives on through outages and says each once. The lag of an export is exact or not known."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.memory_source import MemoryLog, MemorySink, MemoryTables, MemoryTask
from servers.workload import until

from acktrail.errors import ConfigurationError, RetryableError, Unreachable
from acktrail.model.log_positions import SourcePartition
from acktrail_connect.source_batches import LogEnds, LogMark
from acktrail_connect.task_execution import FlushPolicy
from acktrail_connect.worker.connector_config import ErrorPolicy
from acktrail_connect.worker.task_thread import TaskThread
from acktrail_connect.worker.worker_metrics import ExportLag, export_lag


def no_files(*, is_classified: bool) -> Exception:
    """EMFILE, whoever says so: a bare error, or one that was taken for a wrong configuration."""
    error: Exception = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    if is_classified:
        error, error.__cause__ = ConfigurationError("cannot read the options", hint="check the path"), error
    return error


@pytest.mark.parametrize(
    "error", [RetryableError("the storage is full"), no_files(is_classified=False), no_files(is_classified=True)]
)
def test_a_storage_that_takes_nothing_for_long_is_one_outage(error: Exception) -> None:
    """Reading succeeds in every attempt and does not end the outage: the commit does. Too many open files pass, too. A
    task that did not begin, or was stopped, is not finished: a worker whose tasks are finished ends."""
    tables, said, left = MemoryTables(), list[str](), iter([error] * 4)
    plan: Any = SimpleNamespace(
        name="one",
        source=SimpleNamespace(
            task=lambda _: MemoryTask([MemoryLog(end_offset=100)], is_continuous=True),
            cluster_id=None,
            reads_logs=True,
        ),
        sink=SimpleNamespace(task=lambda _: MemorySink(tables, fails=left)),
        transforms=tuple,
        flush=FlushPolicy(interval_s=0.01, poll_s=0.01),
        errors=ErrorPolicy(longest_pause_s=0.01),
    )
    thread = TaskThread(plan, 0, {}, lambda event, _: said.append(event))
    assert not thread.is_finished
    thread.start()
    until(lambda: list(tables.positions.values()) == [100] and said[-1:] == ["outage_ended"], timeout_s=30)
    thread.request_stop()
    assert (thread.join(30), thread.is_finished) == (True, False)
    assert (said, thread.errors) == (["outage_began", "outage_ended"], {type(error).__name__: 4})


PARTITION = SourcePartition("state/c/t/0")


def lag(
    ends: LogEnds, position: int | None, mark: LogMark | None = None, *, error: Exception | None = None
) -> ExportLag:
    """Of a log that was exported up to `position`."""

    def asked() -> dict[SourcePartition, LogEnds]:
        if error is not None:
            raise error
        return {PARTITION: ends}

    source = SimpleNamespace(ends=asked, source_partitions=lambda: [PARTITION])
    sink = SimpleNamespace(
        positions=lambda _name, _wanted: {} if position is None else {PARTITION: position},
        log_marks=lambda _wanted: {} if mark is None else {PARTITION: mark},
    )
    run: Any = SimpleNamespace(plan=SimpleNamespace(name="state", source=source, sink=sink))
    return export_lag(run, clock=lambda: 1.0)


@given(first=st.integers(0, 50), length=st.integers(0, 50), position=st.none() | st.integers(0, 150))
def test_lag_is_what_lies_between_position_and_end(first: int, length: int, position: int | None) -> None:
    """Without a position it is the whole log; a position past the end is another log's, and the lag is not known."""
    end = first + length
    (found,) = lag(LogEnds(first, end), position).records.values()
    assert found == (length if position is None else end - position if position <= end else None)


@pytest.mark.parametrize(("then", "now", "known"), [(3, 3, 4), (3, 4, None), (None, 4, 4), (3, None, 4)])
def test_a_log_that_was_not_compared_yet_has_no_lag(then: int | None, now: int | None, known: int | None) -> None:
    """Since a new leader came the log may be another one, even if it ends behind the position: not known, until the
    exporter has compared it."""
    assert list(lag(LogEnds(0, 9, now), 5, LogMark(0, then)).records.values()) == [known]


@pytest.mark.parametrize(("error", "reason"), [(Unreachable("b:1"), "no Kafka broker"), (KeyError("x"), "KeyError")])
def test_what_cannot_be_asked_is_not_known(error: Exception, reason: str) -> None:
    """Every partition is unknown, with the reason; an error of a plug-in's own does not end the watch."""
    found = lag(LogEnds(0, 9), 3, error=error)
    assert list(found.records.values()) == [None]
    assert found.reason.startswith(reason)
