"""CSV files of Kafka's tools: what they write is read, what they cannot read is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.request.reset_request import OffsetRow, check_rows, offset_rows, write_offsets
from acktrail.errors import AcktrailError, ChangeRefused, MalformedFile


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


def test_four_columns_name_the_group(tmp_path: Path) -> None:
    """The form that kafka-share-groups.sh and kafka-consumer-groups.sh write for several groups."""
    assert rows_of(tmp_path, b'g1,orders,0,17\n"g,2",orders,0,18\n') == [
        ("g1", "orders", 0, 17),
        ("g,2", "orders", 0, 18),
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"orders,0\n", "line 1: 2 columns"),
        (b"orders,0,1\ng,orders,0,1\n", "line 2: 4 columns"),
        (b"topic,partition,offset\norders,0,1\n", "line 1: 'partition' is no partition"),
        (b"orders,-1,1\n", "line 1: '-1' is no partition"),
        (b'orders,0,"1\n', "is no CSV"),
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


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
offsets = st.integers(0, 2**63 - 1)


@given(st.lists(st.tuples(names, names, st.integers(0, 99), offsets), min_size=1, max_size=4))
def test_what_is_written_is_read_back(rows: list[tuple[str | None, str, int, int]]) -> None:
    """Commas, quotes and spaces in names survive."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
        file.write(write_offsets(rows))
        file.flush()
        found = [(r.group_id, r.topic, r.partition, r.offset) for r in offset_rows(Path(file.name))]
    assert found == rows


@pytest.mark.full
def test_the_last_of_a_million_rows_is_checked(tmp_path: Path) -> None:
    """R004-30: size is no problem, and the last line's mistake is still found."""
    file = tmp_path / "big.csv"
    file.write_text("".join(f"orders,{n},5\n" for n in range(1_000_000)) + "orders,7,6\n")
    rows = list(offset_rows(file))
    with pytest.raises(AcktrailError, match="line 1000001"):
        check_rows(rows, ["g"], {"orders": 1_000_000})
    assert len(rows) == 1_000_001
