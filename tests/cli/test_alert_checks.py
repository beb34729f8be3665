"""Series that are older than their alert allows are not called ok."""

from __future__ import annotations

from typing import Any

import pytest

from acktrail.cli import alert_checks


class Answers:
    """A Prometheus in which every series is as old."""

    def __init__(self, age: float) -> None:
        self._age = age

    def rows(self, _: str) -> list[dict[str, Any]]:
        return [{"value": [0, str(self._age)]}]


@pytest.mark.parametrize(
    ("age", "status", "late"),
    [
        (60, "ok", ""),
        (1000, "missing", "last success, tables read"),
        (8000, "missing", "last success, export, tables read and 1 more"),
    ],
)
def test_stale_series_are_judged_by_the_thresholds_of_their_alerts(age: float, status: str, late: str) -> None:
    found = alert_checks._series(Answers(age))  # type: ignore[arg-type]  # all that is asked of a Prometheus
    assert (found.status, found.hint.rpartition(": ")[2]) == (status, late)
