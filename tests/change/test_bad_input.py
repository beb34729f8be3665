"""What nobody can mean is one clear line and exit code 2, before any broker is asked, however long the text is."""

from __future__ import annotations

import pytest
from drivers.command_line import run

NINES = "9" * 5_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--to-earliest", "--out-of-range", "bogus"], "[bad_out_of_range]"),
        (["--by-duration", f"P{NINES}D"], "[bad_duration]"),
        (["--by-duration", f"PT{NINES}S"], "[bad_duration]"),
        (["--by-duration", f"PT1.{NINES}S"], "[bad_duration]"),
        (["--by-duration", "P999999999999999D"], "[bad_duration]"),
        (["--to-datetime", f"{NINES}-01-01T00:00:00Z"], "[bad_datetime]"),
        (["--to-offset", NINES], "[bad_offset]"),
        (["--to-offset", f"-{NINES}"], "[negative_target]"),
        (["--shift-by", NINES], "[bad_offset]"),
        (["--shift-by", "9223372036854775808"], "[bad_offset]"),
        (["--topic", f"t:{NINES}", "--to-earliest"], "[bad_scope]"),
        (["--to-history", "2199-01-01T00:00:00Z"], "[future_time]"),
        (["--to-earliest", "--wait-empty", "nan"], "nan is no number"),
        (["--to-earliest", "--wait-empty", "inf"], "not in the range"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_plan_is_refused_in_one_line(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, no defect, no line as long as the input."""
    scope = [] if "--topic" in options else ["--topic", "t"]
    done = run(capsys, "change", "plan", "reset", "--group", "g", *scope, *options, "--bootstrap-server", "127.0.0.1:1")
    complaint = done.complaint(2)
    assert says in complaint
    assert len(complaint) < 400


@pytest.mark.parametrize("option", ["--max-age", "--wait", "--watch"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e308", "-1"])
def test_an_age_is_a_number(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Hours and seconds that are no number are refused as such."""
    assert "Invalid value" in run(capsys, "change", "apply", "p", option, value).complaint(2)
