"""The lag of an export is exact or not known: never a zero that hides another log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.connect.metrics.worker_metrics import ExportLag, export_lag
from acktrail.connect.source_batches import LogEnds, LogMark, SourcePartition
from acktrail.errors import Unreachable

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


@given(shift=st.integers(0, 50), length=st.integers(0, 50), reached=st.integers(0, 50))
def test_a_replaced_log_has_the_lag_of_its_own_records(shift: int, length: int, reached: int) -> None:
    """The sink's positions are larger than Kafka's offsets by the shift: the lag is that of the log there is now."""
    (found,) = lag(LogEnds(0, length, 4), shift + reached, LogMark(shift, 4)).records.values()
    assert found == (length - reached if reached <= length else None)


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
