"""The lag of an export is exact or not known: never a zero that hides another log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.connect.metrics.export_lag import ExportLag, export_lag
from acktrail.connect.source_batches import SourcePartition
from acktrail.errors import Unreachable

PARTITION = SourcePartition("state/c/t/0")


def lag(first: int, end: int, position: int | None, *, error: Exception | None = None) -> ExportLag:
    """Of a log from `first` to `end` that was exported up to `position`."""

    def ends() -> dict[SourcePartition, tuple[int, int]]:
        if error is not None:
            raise error
        return {PARTITION: (first, end)}

    source = SimpleNamespace(ends=ends, source_partitions=lambda: [PARTITION])
    positions: Any = lambda _name, _wanted: {} if position is None else {PARTITION: position}  # noqa: E731  # a stand-in
    plan = SimpleNamespace(name="state", source=source, sink=SimpleNamespace(positions=positions))
    return export_lag(SimpleNamespace(plan=plan), clock=lambda: 1.0)  # type: ignore[arg-type]  # as much as it looks at


@given(first=st.integers(0, 50), length=st.integers(0, 50), position=st.none() | st.integers(0, 150))
def test_lag_is_what_lies_between_position_and_end(first: int, length: int, position: int | None) -> None:
    """Without a position it is the whole log; a position past the end is another log's, and the lag is not known."""
    end = first + length
    (found,) = lag(first, end, position).records.values()
    assert found == (length if position is None else end - position if position <= end else None)


@pytest.mark.parametrize(("error", "reason"), [(Unreachable("b:1"), "no Kafka broker"), (KeyError("x"), "KeyError")])
def test_what_cannot_be_asked_is_not_known(error: Exception, reason: str) -> None:
    """Every partition is unknown, with the reason; an error of a plug-in's own does not end the watch."""
    found = lag(0, 9, 3, error=error)
    assert list(found.records.values()) == [None]
    assert found.reason.startswith(reason)
