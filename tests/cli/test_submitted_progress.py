"""Progress under ``spark-submit``, which writes the stderr of a Python program to stdout."""

from __future__ import annotations

import pytest

from acktrail import stderr_lines
from acktrail.cli import progress
from acktrail.connect.activity import doing


@pytest.mark.parametrize(("gateway", "is_shown"), [(None, True), ("1", False)])
def test_no_progress_runs_into_results(
    gateway: str | None, is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shown elsewhere after a while; never under spark-submit."""
    monkeypatch.setattr(stderr_lines, "_PLAIN_S", 0.0)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if gateway is not None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", gateway)
    with progress.showing_activity():
        doing("replaying")
        doing("writing")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("writing" in shown.err) is is_shown
