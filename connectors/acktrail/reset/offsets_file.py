"""Offsets in a CSV file, as ``kafka-share-groups.sh`` and ``kafka-consumer-groups.sh`` write and read them.

Three columns ``topic,partition,offset``, or four ``group,topic,partition,offset``; the first line says which, and it is
no header. Texts may be quoted; a byte order mark, Windows line ends and blank lines are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from acktrail.errors import ChangeRefused, MalformedFile
from acktrail.reset.request import parse_offset

__all__ = ["OffsetRow", "check_rows", "read_offsets", "write_offsets"]

_THREE: Final = 3
_FOUR: Final = 4
_DIGITS: Final = 9
_HINT: Final = "lines are topic,partition,offset or group,topic,partition,offset, without a header"


class OffsetRow(NamedTuple):
    """One line. `group_id` None: the file has no column of groups. (A tuple: files have millions of rows.)"""

    group_id: str | None
    topic: str
    partition: int
    offset: int
    line: int


def read_offsets(file: Path) -> tuple[OffsetRow, ...]:
    """Every row of `file`. Some microseconds a row: a million take seconds.

    Raises:
        MalformedFile: it cannot be read, or a line has other columns; with the line.
        ChangeRefused: an offset that is none (`bad_offset`, `negative_target`), no row at all (`empty_file`).
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = tuple(_rows(lines, str(file)))
    except OSError as error:
        raise MalformedFile(
            f"cannot be read ({type(error).__name__})", file=str(file), hint="check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no UTF-8 text", file=str(file), hint=_HINT) from error
    except csv.Error as error:
        raise MalformedFile(f"is no CSV ({error})", file=str(file), hint=_HINT) from error
    if not rows:
        raise ChangeRefused("empty_file", f"{file} holds no offsets", hint=_HINT)
    return rows


def check_rows(rows: Sequence[OffsetRow], groups: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
    """Offsets by group, topic and partition.

    Raises:
        ChangeRefused: `two_groups_one_column` (several groups and a file that names none), `wrong_group` (a group that
            was not asked for), `duplicate_row` (a share partition twice, whatever the offsets).
    """
    if rows[0].group_id is None and len(groups) != 1:
        raise ChangeRefused(
            "two_groups_one_column",
            "the file names no groups, and several are to be reset",
            hint="one --group at a time",
        )
    found: dict[str, dict[tuple[str, int], int]] = {group: {} for group in groups}
    for row in rows:
        group = groups[0] if row.group_id is None else row.group_id
        if group not in found:
            raise ChangeRefused(
                "wrong_group",
                f"line {row.line} is about group {group!r}",
                hint="name it with --group, or take the line out",
            )
        where = (row.topic, row.partition)
        if where in found[group]:
            raise ChangeRefused(
                "duplicate_row", f"line {row.line} names {row.topic}:{row.partition} again", hint="one line a partition"
            )
        found[group][where] = row.offset
    return found


def write_offsets(rows: Iterable[tuple[str | None, str, int, int]]) -> str:
    """(group, topic, partition, offset) as CSV that Kafka's tools read; group None: three columns."""
    return "".join(
        ",".join(([] if group is None else [_field(group)]) + [_field(topic), str(partition), str(offset)]) + "\n"
        for group, topic, partition, offset in rows
    )


def _rows(lines: Iterable[str], file: str) -> Iterator[OffsetRow]:
    reader = csv.reader(lines, strict=True)
    width = 0
    for columns in reader:
        if not columns:
            continue
        width = width or len(columns)
        if len(columns) != width or width not in (_THREE, _FOUR):
            wanted = f"{width} as the first line" if width in (_THREE, _FOUR) else "3 or 4"
            raise MalformedFile(f"{len(columns)} columns, not {wanted}", file=file, line=reader.line_num, hint=_HINT)
        yield _row(columns, file, reader.line_num)


def _row(columns: Sequence[str], file: str, line: int) -> OffsetRow:
    group = columns[0] if len(columns) == _FOUR else None
    topic, partition, offset = columns[-_THREE:]
    if not _is_small(partition) or not topic:
        raise MalformedFile(f"{partition!r} is no partition", file=file, line=line, hint=_HINT)
    number = int(offset) if _is_small(offset) else parse_offset(offset, f"line {line}")
    return OffsetRow(group, topic, int(partition), number, line)


def _is_small(text: str) -> bool:
    """A plain number of few digits, without the cost of a pattern."""
    return len(text) <= _DIGITS and text.isascii() and text.isdigit()


def _field(text: str) -> str:
    """Quoted where a comma, a quote, a line end or a space at either end would be misread."""
    if re.search(r'[",\r\n#]|^\s|\s$', text) or not text:
        escaped = text.replace('"', '""')
        return f'"{escaped}"'
    return text
