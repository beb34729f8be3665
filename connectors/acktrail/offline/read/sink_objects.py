"""Objects that a stock S3 sink of Kafka Connect wrote of the state topic, as bytes: ``ByteArrayFormat`` with the
byte-array converter, downloaded as files.

An object is named ``TOPIC+PARTITION+OFFSET.bin``, by its first record; it has the values, each with a separator behind
it. With ``store.kafka.keys`` a twin ``.keys.bin`` has the keys in the same order; without it keys are lost. Null values
are in no object; with ``behavior.on.null.values=write`` their keys are in one of the folder ``tombstone``. Timestamps
are in none (https://docs.confluent.io/kafka-connectors/s3-sink/current/overview.html; kafka-connect-storage-cloud:
``ByteArrayRecordWriterProvider``, ``KeyValueHeaderRecordWriterProvider``, ``TopicPartitionWriter``).

A separator may be a part of a value, so it separates nothing: keys and values end where their own fields end, and it
must follow there. Offsets are consecutive from the first one, except for null values: what the next object's name and
the tombstones do not agree with has no offset, and is reported instead of guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from acktrail.errors import InputError, MalformedFile, MalformedRecord, UnsupportedRecord
from acktrail.format.wire.dialects.released import VALUE_ENDS
from acktrail.format.wire.primitives import INT16
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, key_end
from acktrail.offline.read.codecs import bare_suffix, open_file
from acktrail.offline.read.read_report import ReadReport, SegmentDamage, SegmentDamageStatus

OBJECT_SUFFIX: Final = ".bin"
_NAME: Final = re.compile(r"(?P<log>.+\+(?P<partition>0|[1-9][0-9]{0,9}))\+(?P<offset>[0-9]{1,19})(?P<view>\.[a-z]+)?")
_KEYS, _HEADERS = ".keys", ".headers"
_TOMBSTONES: Final = "tombstone"
_ANY_KIND: Final = (SNAPSHOT_TYPE, UPDATE_TYPE)
_NO_TIMESTAMP: Final = -1

_Pieces = Sequence[tuple[int, int]]
"""Begin and end of keys or values that follow each other, separators left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """What an object's name says. `log`: topic and partition; `view` empty: values."""

    log: str
    partition: int
    offset: int
    view: str


def read_sink_object(file: Path, reading: ReadReport) -> Iterator[RawRecord]:
    """The records of one object of values, with the keys of its twin; or the tombstones of an object of keys in the
    folder ``tombstone``. None of the other objects of keys and headers: they are read with their values. What cannot be
    read or has no offset is added to `reading`.

    Raises UnknownName (the file does not exist), MalformedFile (its name is no object's, it is damaged as a compressed
    file, or the values of keys are missing), InputError (its name contradicts the state partition of `reading`).
    """
    name = _name_of(file)
    if name is None:
        raise MalformedFile(
            "not named as an object of Kafka Connect's S3 sink", file=str(file), hint="TOPIC+PARTITION+OFFSET.bin"
        )
    if reading.state_partition not in (None, name.partition):
        raise InputError(f"{file} is of state partition {name.partition}, not of {reading.state_partition}")
    if name.view == _KEYS and file.absolute().parent.name == _TOMBSTONES:
        yield from _Object(file, name, reading).tombstones()
    elif name.view == _KEYS and not _twin(file, "").exists():
        raise MalformedFile("the object with the values of these keys is missing", file=str(file))
    elif not name.view:
        yield from _Object(file, name, reading).records()


def _name_of(file: Path) -> _Name | None:
    found = _NAME.fullmatch(file.name[: file.name.rfind(OBJECT_SUFFIX)])
    if found is None or bare_suffix(file) != OBJECT_SUFFIX or found["view"] not in (None, _KEYS, _HEADERS):
        return None
    partition, offset = int(found["partition"]), int(found["offset"])
    if partition >> 31 or offset >> 63:
        return None
    return _Name(log=found["log"], partition=partition, offset=offset, view=found["view"] or "")


def _twin(file: Path, view: str) -> Path:
    """The object of the same records with another view."""
    stem, suffix, rest = file.name.rpartition(OBJECT_SUFFIX)
    return file.with_name(stem.removesuffix(_KEYS) + view + suffix + rest)


def _content(file: Path) -> bytes:
    with open_file(file) as raw:
        return raw.read()


class _Object:
    """One object while it is read."""

    def __init__(self, file: Path, name: _Name, reading: ReadReport) -> None:
        self._file, self._name, self._reading = file, name, reading
        self._data = _content(file)

    def tombstones(self) -> Iterator[RawRecord]:
        """The first key has the offset of the name; where the others were, no name says."""
        keys = _keys(self._data, self._reading.separator)
        for begin, end in keys[:1]:
            yield self._record(self._name.offset, self._data[begin:end], None)
        if len(keys) > 1:
            reason = f"{len(keys)} tombstones, and the name has the offset of the first alone"
            self._report(SegmentDamageStatus.UNKNOWN_OFFSETS, keys[1][0], self._name.offset + 1, None, reason)
        elif self._reached(keys) < len(self._data):
            self._report_rest(keys, self._name.offset + len(keys), None)

    def records(self) -> Iterator[RawRecord]:
        """The values up to the first that cannot be read, or has no offset."""
        values, keys = self._values()
        if len(keys) < len(values):
            self._reading.keyless.append(f"{self._file}: {len(values) - len(keys):,} of {len(values):,} records")
        is_whole = self._reached(values) == len(self._data)
        following = self._following()
        offsets, reason = self._offsets(len(values), following if is_whole else None)
        for index, (offset, (begin, end)) in enumerate(zip(offsets, values, strict=False)):
            yield self._record(offset, keys[index] if index < len(keys) else None, self._data[begin:end])
        behind = offsets[-1] + 1 if offsets else self._name.offset
        last = None if following is None else following - 1
        if len(offsets) < len(values):
            self._report(SegmentDamageStatus.UNKNOWN_OFFSETS, values[len(offsets)][0], behind, last, reason)
        elif not is_whole:
            self._report_rest(values, behind, last)
        if following is None and is_whole:
            self._reading.unchecked.append(str(self._file))

    def _record(self, offset: int, key: bytes | None, value: bytes | None) -> RawRecord:
        return RawRecord(
            state_partition=self._name.partition, offset=offset, timestamp_ms=_NO_TIMESTAMP, key=key, value=value
        )

    def _twin_keys(self) -> tuple[list[bytes], bool]:
        """The keys in the twin, up to the first that cannot be read, and whether that is all of it. None where there is
        no twin."""
        file = _twin(self._file, _KEYS)
        if not file.exists():
            return [], True
        twin = _Object(file, replace(self._name, view=_KEYS), self._reading)
        pieces = _keys(twin._data, self._reading.separator)
        is_whole = self._reached(pieces) == len(twin._data)
        if not is_whole:
            twin._report_rest(pieces, self._name.offset + len(pieces), None)
        return [twin._data[begin:end] for begin, end in pieces], is_whole

    def _values(self) -> tuple[_Pieces, list[bytes]]:
        """The values, and the keys of the first of them; no keys where they are not those of the values: their number
        is another one, or a value does not end where its key's type has it end."""
        keys, has_all_keys = self._twin_keys()

        def kinds(index: int) -> Sequence[int]:
            return INT16.unpack_from(keys[index]) if index < len(keys) else _ANY_KIND

        keyed = self._split(kinds, len(keys))
        is_whole = self._reached(keyed) == len(self._data)
        if not keys or (is_whole and len(keyed) == len(keys)):
            return keyed, keys
        alone = self._split(lambda _: _ANY_KIND)
        is_another_number = is_whole and (has_all_keys or len(keyed) < len(keys))
        if is_another_number or self._reached(alone) > self._reached(keyed):
            return alone, []
        return keyed, keys

    def _split(self, kinds: Callable[[int], Sequence[int]], wanted: int | None = None) -> _Pieces:
        """The values by the first layout that reads `wanted` of them and nothing is left; else by the one that reads
        most, and none where two read as much in two ways."""
        read: list[_Pieces] = []
        for value_end in VALUE_ENDS:
            pieces = _split(self._data, self._reading.separator, kinds, value_end)
            if len(pieces) == wanted and self._reached(pieces) == len(self._data):
                return pieces
            read.append(pieces)
        most = max(map(self._reached, read))
        best = [pieces for pieces in read if self._reached(pieces) == most]
        return best[0] if all(pieces == best[0] for pieces in best) else []

    def _following(self) -> int | None:
        """The first offset of the next object of values in the folder; None: there is none."""
        names = map(_name_of, self._file.absolute().parent.glob(f"*{OBJECT_SUFFIX}*"))
        own = (each.offset for each in names if each is not None and each.log == self._name.log and not each.view)
        return min((offset for offset in own if offset > self._name.offset), default=None)

    def _offsets(self, count: int, following: int | None) -> tuple[list[int], str]:
        """The offsets of the first of `count` values that are certain, and why those of the others are not."""
        begin = self._name.offset
        nulls = self._null_values(following)
        left_out = sum(nulls.values())
        if following is not None and count + left_out != following - begin:
            reason = (
                f"{count} values and {left_out} tombstones for {following - begin} offsets, the next object begins at "
                f"{following}"
            )
            return ([begin] if count + left_out < following - begin else []), reason
        offsets, at = list[int](), begin
        while len(offsets) < count:
            if nulls.get(at, 0) > 1:
                return offsets, f"one of several tombstones whose offsets are not known is at {at}"
            if at not in nulls:
                offsets.append(at)
            at += 1
        return offsets, ""

    def _null_values(self, following: int | None) -> dict[int, int]:
        """How many tombstones the objects of the sink's folder for them have, by their first offset."""
        folder = self._file.absolute().parent.parent / _TOMBSTONES
        found: dict[int, int] = {}
        for file in folder.glob(f"*{_KEYS}{OBJECT_SUFFIX}*"):
            name = _name_of(file)
            is_own = name is not None and name.log == self._name.log and name.offset > self._name.offset
            if name is not None and is_own and (following is None or name.offset < following):
                found[name.offset] = len(_keys(_content(file), self._reading.separator))
        return found

    def _reached(self, pieces: _Pieces) -> int:
        return pieces[-1][1] + len(self._reading.separator) if pieces else 0

    def _report_rest(self, pieces: _Pieces, first: int, last: int | None) -> None:
        reason = "cut off, or nothing of a state topic with the separator behind it"
        self._report(SegmentDamageStatus.UNREADABLE_REST, self._reached(pieces), first, last, reason)

    def _report(self, status: SegmentDamageStatus, position: int, first: int, last: int | None, reason: str) -> None:
        self._reading.on_damage(
            SegmentDamage(
                state_partition=self._name.partition,
                file=str(self._file),
                position=position,
                size_bytes=len(self._data) - position,
                first_offset=first,
                last_offset=last,
                status=status,
                reason=reason,
            )
        )


def _keys(data: bytes, separator: bytes) -> _Pieces:
    """The keys from the begin of `data` on."""
    return _pieces(data, separator, lambda _, at: {_end(key_end, data, at)})


def _split(
    data: bytes, separator: bytes, kinds: Callable[[int], Sequence[int]], value_end: Callable[[int, bytes, int], int]
) -> _Pieces:
    """The values from the begin of `data` on, of the types that `kinds` allows for each."""
    return _pieces(data, separator, lambda index, at: {_end(value_end, kind, data, at) for kind in kinds(index)})


def _pieces(data: bytes, separator: bytes, ends: Callable[[int, int], set[int | None]]) -> _Pieces:
    """Pieces with `separator` behind each; `ends` gives where one may end, by its number and begin. The last is before
    the first that has no such end, or more than one."""
    found, at = list[tuple[int, int]](), 0
    while at < len(data):
        fitting = [end for end in ends(len(found), at) if end is not None and data.startswith(separator, end)]
        if len(fitting) != 1:
            break
        found.append((at, fitting[0]))
        at = fitting[0] + len(separator)
    return found


def _end(read: Callable[..., int], *arguments: int | bytes) -> int | None:
    try:
        return read(*arguments)
    except (MalformedRecord, UnsupportedRecord):
        return None
