"""Offsets in CSV files, as ``kafka-share-groups.sh`` and ``kafka-consumer-groups.sh`` write and read them: three
columns ``topic,partition,offset``, or four ``group,topic,partition,offset``. The first line decides, and it is no
header. Texts may be quoted; a byte order mark, Windows line ends and blank lines are ignored."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from acktrail.change.request import reset_request
from acktrail.errors import ChangeRefused, MalformedFile

_WIDTHS: Final = (3, 4)
_DIGITS: Final = 9
_MOST_UNKNOWN: Final = 1_000
"""Partitions that are not there, each of which gets a refusal of its own."""
_HINT: Final = "lines are topic,partition,offset or group,topic,partition,offset, without a header"


class OffsetRow(NamedTuple):
    """One line. `group_id` None: the file has no column of groups. (A tuple: files have millions of rows.)"""

    group_id: str | None
    topic: str
    partition: int
    offset: int
    line: int


def offset_rows(file: Path) -> Iterator[OffsetRow]:
    """Yield the rows of `file`; some microseconds each. Raises MalformedFile: it cannot be read, or a line has other
    columns; with the line. ChangeRefused: an invalid offset (`bad_offset`, `negative_target`), no row at all
    (`empty_file`)."""
    is_empty = True
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            for row in _rows(lines, str(file)):
                is_empty = False
                yield row
    except OSError as error:
        text = f"cannot be read ({type(error).__name__})"
        raise MalformedFile(text, file=str(file), hint="check the path") from error
    except UnicodeDecodeError as error:
        raise MalformedFile("is not UTF-8 text", file=str(file), hint=_HINT) from error
    except csv.Error as error:
        raise MalformedFile(f"is not CSV ({error})", file=str(file), hint=_HINT) from error
    if is_empty:
        raise ChangeRefused("empty_file", f"{file} holds no offsets", hint=_HINT)


def with_named_groups(request: reset_request.ResetRequest) -> reset_request.ResetRequest:
    """Return `request`, with the groups in its file if it names none itself. Raises ChangeRefused (`no_group`): the
    file names none either. MalformedFile: it cannot be read."""
    is_named = request.groups or request.group_globs or request.all_groups
    if is_named or request.strategy.kind is not reset_request.StrategyKind.FROM_FILE:
        return request
    named = {row.group_id for row in offset_rows(Path(request.strategy.source or ""))}
    if None in named:
        raise ChangeRefused("no_group", "the file does not name a group", hint="give --group")
    return reset_request.check_request(replace(request, groups=tuple(sorted(group or "" for group in named))))


def check_rows(
    rows: Iterable[OffsetRow], groups: Sequence[str], partition_counts: Mapping[str, int]
) -> dict[str, dict[tuple[str, int], int]]:
    """Return offsets by group, topic and partition; reads `rows` once. Raises ChangeRefused: `two_groups_one_column`
    (several groups and a file that names none), `wrong_group` (a group that was not asked for), `duplicate_row` (a
    share partition twice, with any offsets), `unknown_partition` (more than a thousand rows name partitions that do not
    exist; the rest is not read)."""
    found: dict[str, dict[tuple[str, int], int]] = {group: {} for group in groups}
    unknown = 0
    for row in rows:
        unknown += row.partition >= partition_counts.get(row.topic, 0)
        if unknown > _MOST_UNKNOWN:
            text = f"more than {_MOST_UNKNOWN} lines name partitions that are not there"
            last = f"line {row.line}: {reset_request.excerpt(row.topic)}:{row.partition}"
            raise ChangeRefused(
                "unknown_partition", f"{text}, the last one in {last}", hint="check that the file is from this cluster"
            )
        if row.group_id is None and len(groups) != 1:
            text = "the file does not name groups, but several groups are to be reset"
            raise ChangeRefused("two_groups_one_column", text, hint="reset one --group at a time")
        group = groups[0] if row.group_id is None else row.group_id
        if group not in found:
            text = f"line {row.line} names group {reset_request.excerpt(group)}"
            raise ChangeRefused("wrong_group", text, hint="add --group for it, or remove the line")
        where = (row.topic, row.partition)
        if where in found[group]:
            text = f"line {row.line} names {reset_request.excerpt(row.topic)}:{row.partition} again"
            raise ChangeRefused("duplicate_row", text, hint="one line a partition")
        found[group][where] = row.offset
    return found


def _rows(lines: Iterable[str], file: str) -> Iterator[OffsetRow]:
    reader = csv.reader(lines, strict=True)
    width = 0
    for columns in reader:
        if not columns:
            continue
        width, line = width or len(columns), reader.line_num
        if len(columns) != width or width not in _WIDTHS:
            wanted = f"{width} as the first line" if width in _WIDTHS else "3 or 4"
            raise MalformedFile(f"{len(columns)} columns, not {wanted}", file=file, line=line, hint=_HINT)
        *group, topic, partition, offset = columns
        if not _is_small(partition) or not topic:
            raise MalformedFile(
                f"{reset_request.excerpt(partition)} is not a partition", file=file, line=line, hint=_HINT
            )
        number = int(offset) if _is_small(offset) else reset_request.parse_offset(offset, f"line {line}")
        yield OffsetRow(group[0] if group else None, topic, int(partition), number, line)


def _is_small(text: str) -> bool:
    """Return whether a text is a plain number of few digits, without the cost of a pattern."""
    return len(text) <= _DIGITS and text.isascii() and text.isdigit()
