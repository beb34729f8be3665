"""What may be asked for, and the message for what may not."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest
from change.scenes import CASES, a_request
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.request.offsets_csv import OffsetRow, check_rows, offset_rows
from acktrail.change.request.reset_request import (
    StrategyKind,
    check_request,
    choose_strategy,
    parse_duration,
    parse_moment,
)
from acktrail.cli.change.report_commands import write_offsets
from acktrail.errors import AcktrailError, ChangeRefused, MalformedFile
from acktrail.times import instant_text

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(("says", "options"), [(says, options) for says, *options in CASES["refused requests"]])
def test_a_request_that_is_none_is_refused_by_name(
    says: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """R004-30: parts that do not go together, no strategy, two, none of the numbers, times and scopes that there are:
    each has its rule and a hint. No traceback, no defect, no line as long as the input (`{5000 nines}` is as many)."""
    given = [re.sub(r"{(\d+) nines}", lambda many: "9" * int(many[1]), option) for option in options]
    done = run(capsys, "change", "plan", "reset", *given, "--bootstrap-server", "127.0.0.1:1")
    complaint = done.complaint(2)
    assert says in complaint
    assert complaint.endswith(")") or not says.startswith("[")
    assert len(complaint) < 400


@pytest.mark.parametrize(
    "group", ["it's", '"q"', "a\nb", "../../etc", "é" * 127, "\u202eabc", "a b", "%s", "';drop table--", "🦆"]
)
def test_hostile_group_ids_are_group_ids(group: str) -> None:
    """Whatever Kafka takes as a group id is one."""
    assert check_request(a_request(groups=(group,))).groups == (group,)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-01-31T13:30:00.123Z", "2026-01-31T13:30:00.123Z"),
        ("2026-01-31T13:30:00,1239+02:00", "2026-01-31T11:30:00.123Z"),
        ("2026-01-31T13:30-0330", "2026-01-31T17:00:00.000Z"),
        ("2026-01-31T13:30:59+02", "2026-01-31T11:30:59.000Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_a_moment_has_a_zone(text: str, utc: str) -> None:
    """R004-02: the zone counts; milliseconds are kept, what is finer is cut."""
    assert instant_text(parse_moment(text)) == utc


ZONES = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))


@given(st.datetimes(min_value=dt.datetime(1970, 1, 3), timezones=ZONES))  # noqa: DTZ001
def test_moments_are_those_of_the_calendar(moment: dt.datetime) -> None:
    """The number of milliseconds is the one that Python's calendar gives."""
    text = moment.isoformat(timespec="microseconds")
    assert parse_moment(text) == (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT30M", 1800), ("P1DT12H", 129_600), ("PT0.5S", 0.5), ("P7D", 604_800), ("PT0S", 0)]
)
def test_a_duration_counts_back_from_now(text: str, seconds: float) -> None:
    """By-duration is a moment, fixed when the plan is made."""
    assert parse_duration(text) == seconds * 1000
    strategy = choose_strategy({StrategyKind.BY_DURATION: text}, now_ms=NOW_MS)
    assert strategy.moment_ms == NOW_MS - seconds * 1000


def rows_of(tmp_path: Path, content: bytes) -> list[tuple[str | None, str, int, int]]:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)
    return [(row.group_id, row.topic, row.partition, row.offset) for row in offset_rows(file)]


@pytest.mark.parametrize(
    "content",
    [
        b"orders,0,17\npayments,1,0\n",
        b"\xef\xbb\xbforders,0,17\r\npayments,1,0\r\n",
        b'"orders",0,17\n"payments","1","0"\n\n',
        b"orders,0,17\n\npayments,1,0",
    ],
    ids=["plain", "mark-and-crlf", "quoted", "blank-lines"],
)
def test_three_columns_are_read_however_they_were_written(tmp_path: Path, content: bytes) -> None:
    """R004-30: byte order mark, Windows line ends, quotes, blank lines and a missing last line end change nothing."""
    assert rows_of(tmp_path, content) == [(None, "orders", 0, 17), (None, "payments", 1, 0)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"orders,0\n", "line 1: 2 columns"),
        (b"orders,0,1\ng,orders,0,1\n", "line 2: 4 columns"),
        (b"topic,partition,offset\norders,0,1\n", "line 1: 'partition' is not a partition"),
        (b"orders,-1,1\n", "line 1: '-1' is not a partition"),
        (b'orders,0,"1\n', "is not CSV"),
        (b"orders\x00,0\n", "1"),
        (b"\xff\xfe\x00o", "UTF-8"),
        (b"orders,0,-5\n", "[negative_target]"),
        (b"orders,0,1.5\n", "[bad_offset]"),
        (b"", "[empty_file]"),
        (b"\n\n", "[empty_file]"),
    ],
)
def test_what_is_no_such_file_is_named_with_its_line(tmp_path: Path, content: bytes, says: str) -> None:
    """R004-30: wrong columns, a header, bad numbers, other encodings: one clear error."""
    with pytest.raises((MalformedFile, ChangeRefused)) as caught:
        rows_of(tmp_path, content)
    assert says in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A folder is no file either."""
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(MalformedFile, match=str(path)):
            list(offset_rows(path))


COUNTS = {"orders": 100}


def row(group: str | None, partition: int = 0, line: int = 1) -> OffsetRow:
    return OffsetRow(group_id=group, topic="orders", partition=partition, offset=5, line=line)


@pytest.mark.parametrize(
    ("rule", "rows", "groups"),
    [
        ("wrong_group", [row("g1"), row("other", 1, 2)], ["g1"]),
        ("duplicate_row", [row("g1"), row("g1", 0, 2)], ["g1"]),
        ("duplicate_row", [row(None), row(None, 0, 2)], ["g1"]),
        ("two_groups_one_column", [row(None)], ["g1", "g2"]),
    ],
)
def test_rows_that_contradict_are_refused(rule: str, rows: list[OffsetRow], groups: list[str]) -> None:
    """R004-30: another group's line, one partition twice, no column of groups for several."""
    with pytest.raises(ChangeRefused, match=rf"\[{rule}\]"):
        check_rows(rows, groups, COUNTS)


def test_rows_are_by_group_and_partition() -> None:
    """One offset a share partition; a group without a line has none."""
    assert check_rows([row("g1"), row("g2", 3)], ["g1", "g2", "g3"], COUNTS) == {
        "g1": {("orders", 0): 5},
        "g2": {("orders", 3): 5},
        "g3": {},
    }


def test_a_file_of_partitions_that_are_not_there_is_refused_as_a_whole() -> None:
    """Behind two that are there, a thousand are let through. The next one is the last that is read."""
    with pytest.raises(ChangeRefused, match=r"line 1003: 'orders':1002 \[unknown_partition\]"):
        check_rows((row(None, at, at + 1) for at in range(10**12)), ["g"], {"orders": 2})


names = st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("\r\n\t #,"), min_size=1, max_size=6)
offsets = st.integers(0, 2**63 - 1)


@given(st.lists(st.tuples(names, names, st.integers(0, 99), offsets), min_size=1, max_size=4))
def test_what_is_written_is_read_back(rows: list[tuple[str | None, str, int, int]]) -> None:
    """Commas, quotes, spaces and line ends in names survive."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
        file.write(write_offsets(rows))
        file.flush()
        found = [(r.group_id, r.topic, r.partition, r.offset) for r in offset_rows(Path(file.name))]
    assert found == rows


@pytest.mark.parametrize("name", ["x\rvictim", " x", "x\t", "#x", "\ufeffx"])
def test_a_name_that_a_reader_may_take_for_something_else_is_quoted(name: str) -> None:
    """A line end, a blank at either end, a comment: other tools read a row of another group."""
    assert write_offsets([(name, "t", 0, 5), (None, name, 0, 5)]) == f'"{name}","t",0,5\n"{name}",0,5\n'


@pytest.mark.full
def test_the_last_of_a_million_rows_is_checked(tmp_path: Path) -> None:
    """R004-30: size is no problem, and the last line's mistake is still found."""
    file = tmp_path / "big.csv"
    file.write_text("".join(f"orders,{n},5\n" for n in range(1_000_000)) + "orders,7,6\n")
    rows = list(offset_rows(file))
    with pytest.raises(AcktrailError, match="line 1000001"):
        check_rows(rows, ["g"], {"orders": 1_000_000})
    assert len(rows) == 1_000_001


@pytest.mark.parametrize("option", ["--max-age", "--wait", "--watch"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e308", "-1"])
def test_an_age_is_a_number(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Hours and seconds that are no number are refused as such."""
    assert "Invalid value" in run(capsys, "change", "apply", "p", option, value).complaint(2)
