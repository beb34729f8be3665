"""Offsets in a CSV file, as ``kafka-share-groups.sh`` and ``kafka-consumer-groups.sh`` write and read them.

Three columns ``topic,partition,offset``, or four ``group,topic,partition,offset``; the first line says which, and it is
no header. Texts may be quoted; a byte order mark, Windows line ends and blank lines are ignored.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from acktrail.errors import ChangeRefused, MalformedFile
from acktrail.group_changes.request.reset_request import excerpt, parse_offset

_THREE: Final = 3
_FOUR: Final = 4
_DIGITS: Final = 9
_MANY: Final = 5_000
_MOST_UNKNOWN: Final = 1_000
_HINT: Final = "lines are topic,partition,offset or group,topic,partition,offset, without a header"


class OffsetRow(NamedTuple):
    """One line. `group_id` None: the file has no column of groups. (A tuple: files have millions of rows.)"""

    group_id: str | None
    topic: str
    partition: int
    offset: int
    line: int


def read_offsets(file: Path) -> tuple[OffsetRow, ...]:
    """Every row of `file`. Some microseconds a row: a million take seconds. Raises as `offset_rows`."""
    return tuple(offset_rows(file))


def offset_rows(file: Path) -> Iterator[OffsetRow]:
    """The rows of `file`, one by one.

    Raises:
        MalformedFile: it cannot be read, or a line has other columns; with the line.
        ChangeRefused: an offset that is none (`bad_offset`, `negative_target`), no row at all (`empty_file`).
    """
    is_empty = True
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            for row in _rows(lines, str(file)):
                is_empty = False
                yield row
    except OSError as error:
        raise MalformedFile(
            f"cannot be read ({type(error).__name__})", file=str(file), hint="check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is no UTF-8 text", file=str(file), hint=_HINT) from error
    except csv.Error as error:
        raise MalformedFile(f"is no CSV ({error})", file=str(file), hint=_HINT) from error
    if is_empty:
        raise ChangeRefused("empty_file", f"{file} holds no offsets", hint=_HINT)


def check_rows(
    rows: Iterable[OffsetRow], groups: Sequence[str], partition_counts: Callable[[], Mapping[str, int]] | None = None
) -> dict[str, dict[tuple[str, int], int]]:
    """Offsets by group, topic and partition.

    `partition_counts` gives the number of partitions of every topic; it is asked once, when there are many rows. A file
    that names more than a thousand partitions that are not there is refused without holding them all.

    Raises:
        ChangeRefused: `two_groups_one_column` (several groups and a file that names none), `wrong_group` (a group that
            was not asked for), `duplicate_row` (a share partition twice, with any offsets), `unknown_partition`.
    """
    found: dict[str, dict[tuple[str, int], int]] = {group: {} for group in groups}
    existing: Mapping[str, int] | None = None
    unknown = 0
    for count, row in enumerate(rows, start=1):
        group = _group_of(row, groups)
        if group not in found:
            raise ChangeRefused(
                "wrong_group",
                f"line {row.line} is about group {excerpt(group)}",
                hint="name it with --group, or take the line out",
            )
        where = (row.topic, row.partition)
        if where in found[group]:
            text = f"line {row.line} names {excerpt(row.topic)}:{row.partition} again"
            raise ChangeRefused("duplicate_row", text, hint="one line a partition")
        found[group][where] = row.offset
        if count == _MANY and partition_counts is not None:
            existing = partition_counts()
            unknown = sum(part[1] >= existing.get(part[0], 0) for parts in found.values() for part in parts)
        elif existing is not None:
            unknown += row.partition >= existing.get(row.topic, 0)
        if unknown > _MOST_UNKNOWN:
            text = f"more than {_MOST_UNKNOWN} lines up to line {row.line} name partitions that are not there"
            raise ChangeRefused(
                "unknown_partition",
                f"{text}, the last one {excerpt(row.topic)}:{row.partition}",
                hint="is it a file of this cluster?",
            )
    return found


def _group_of(row: OffsetRow, groups: Sequence[str]) -> str:
    if row.group_id is not None:
        return row.group_id
    if len(groups) != 1:
        raise ChangeRefused(
            "two_groups_one_column",
            "the file names no groups, and several are to be reset",
            hint="one --group at a time",
        )
    return groups[0]


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
        raise MalformedFile(f"{excerpt(partition)} is no partition", file=file, line=line, hint=_HINT)
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
