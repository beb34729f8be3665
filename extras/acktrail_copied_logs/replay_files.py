"""Replay of copied records: by the rules of their dialect, or, where files are in the order of their log, all share
partitions at once in bounded memory; and both as JSON, the stable output of ``acktrail record decode`` and ``replay``.
In JSON -1 is Kafka's own "not known" for epochs and start offset; a delivery complete count is null instead.

A replay can end at a point: an offset of each state partition, or a time, which cuts each before its first record with
a later timestamp, as Kafka's lookup of an offset by time does. ``--at 3:120,7:45`` keeps offsets 0 to 120 of state
partition 3 and 0 to 45 of 7, and none of another one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acktrail.errors import InputError
from acktrail.format.columns.binary_column import ascending
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.wire.group_record import ShareGroupRecord
from acktrail.format.wire.primitives import absent_if_none, batches_form
from acktrail.format.wire.raw_record import AddressedRecord, DecodeStatus, RawRecord
from acktrail.model.records import RecordAt, ShareSnapshot, StateRecord, Tombstone
from acktrail.model.replay import replay as replay_as_a_broker
from acktrail.replay.column_replay import states_of
from acktrail.replay.newest_offsets import LogReplay
from acktrail.tables.records.record_files import record_tables
from acktrail.times import instant_ms
from acktrail_copied_logs.copied_files import raw_batches
from acktrail_copied_logs.dialects import Dialect, DialectReplay, JsonForm, Policy, key_form, state_json
from acktrail_copied_logs.drafts.strict_replay import replay_released
from acktrail_copied_logs.log_segment import ReadReport

_GROUP_NAMES: Final = {
    "group_id": "group",
    "member_id": "member",
    "rack_id": "rack",
    "assignment_timestamp_ms": "assignment_timestamp",
}
"""Fields of a group's record with another name in JSON."""
_EARLIEST_TIME_MS: Final = 100_000_000_000
"""March 1973: a lower number is no time, but an offset without its state partition."""
_LATEST_MS: Final = 1 << 63
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_PAIR: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")
_HINT: Final = "give PARTITION:OFFSET,..., a time (2026-08-01T12:00:00Z), how long ago (1h), or epoch ms"
_ROWS_AT_ONCE: Final = 1 << 20
"""Records decoded and applied together: enough that the states before them cost little."""
_Kept = Iterator[tuple[RawRecord, bool]]


def replay_sorted(files: Iterable[Path], reading: ReadReport) -> tuple[DialectReplay, int, int] | None:
    """The states after the records of `files`, in the layout of Kafka 4.1 and later, ordered by their keys; equal to
    ``model.replay``. And the numbers of readable and of other records.

    None where this needs ``model.replay``: the records of a state partition do not ascend from file to file, an address
    comes twice, or a share partition is in two state partitions. Raises as ``read_file``."""
    replay, reached, counts = LogReplay(), dict[int, int](), Counter[str]()
    for raw in record_tables((batch for file in files for batch in raw_batches(file, reading)), _ROWS_AT_ONCE):
        if not _continues(raw, reached):
            return None
        records = decode_records(raw)
        counts.update(records["decode_status"].to_pylist())
        replay.add(records)
    table = replay.states()
    states = {state.key: state for state in states_of(table)}
    if len(states) != table.num_rows:
        return None
    forms = tuple(state_json(states[key]) for key in sorted(states))
    readable = counts[DecodeStatus.DECODED.value]
    return DialectReplay(states=forms), readable, counts.total() - readable


def _continues(batch: pa.Table, reached: dict[int, int]) -> bool:
    """Whether every offset of `batch` lies above those before it in its state partition, and above `reached`, which
    gets the highest ones."""
    partition, offset = (np.asarray(batch.column(name), np.int64) for name in ("partition", "offset"))
    rows = ascending(partition)
    partition, offset = partition[rows], offset[rows]
    starts = np.flatnonzero(np.diff(partition, prepend=-2))  # no state partition is -2
    ends = np.append(starts[1:], len(rows))[: len(starts)] - 1
    rises = np.diff(offset) > 0
    rises[starts[1:] - 1] = True
    for place, end in zip(starts.tolist(), ends.tolist(), strict=True):
        state_partition = int(partition[place])
        if offset[place] <= reached.get(state_partition, -1):
            return False
        reached[state_partition] = int(offset[end])
    return bool(rises.all())


def replay_records(
    dialect: Dialect[Any], records: Iterable[RecordAt[Any]], policy: Policy, *, audited: bool
) -> DialectReplay:
    """The states after `records` of `dialect`, which come in log order within a partition, ordered by their keys.

    A dialect with rules of its own follows these. `audited`: also a broker's replay reports each rule that a record
    breaks.
    """
    if dialect.replay is not None:
        found = dialect.replay(records, policy)
    elif audited or policy is Policy.STRICT:
        found = replay_released(records, policy, dialect.durable_states)
    else:
        states = replay_as_a_broker(record_at.record for record_at in records)
        found = DialectReplay(states=[*map(state_json, states.values())])
    return replace(found, states=sorted(found.states, key=_key))


def _key(form: JsonForm) -> tuple[object, ...]:
    return form["group"], form["topic_id"] or "", form["partition"]


def record_json(addressed: AddressedRecord[Any], dialect: Dialect[Any]) -> JsonForm:
    """One decoded record of `dialect` with its address; for one that could not be read, its status and the reason."""
    form = _address("state_partition", addressed)
    if addressed.record is None:
        return form
    if dialect.content is not None:
        return {**form, **dialect.content(addressed.record, addressed.raw.state_partition)}
    return {**form, **_content(addressed.record)}


def group_record_json(addressed: AddressedRecord[ShareGroupRecord]) -> JsonForm:
    """``record_json`` of a record of ``__consumer_offsets``."""
    form, record = _address("partition", addressed), addressed.record
    if record is None:
        return form
    kind = record.record_type.name.lower()
    types = {"type": kind} if record.fields is not None else {"type": "tombstone", "of": kind}
    content = {**record.address, **(record.fields or {})}
    return {**form, **types, **{_GROUP_NAMES.get(name, name): value for name, value in content.items()}}


def _address(partition: str, addressed: AddressedRecord[Any]) -> JsonForm:
    """Where a record is, its status, and why it could not be read."""
    raw, record = addressed.raw, addressed.record
    form = {partition: raw.state_partition, "offset": raw.offset, "timestamp": raw.timestamp_ms}
    error = {"decode_error": addressed.reason} if record is None else {}
    return {**form, "decode_status": addressed.status.value, **error}


def _content(record: StateRecord) -> JsonForm:
    if isinstance(record, Tombstone):
        return {"type": "tombstone", **key_form(record.key)}
    epochs, times = {}, {}
    if isinstance(record, ShareSnapshot):
        epochs = {"state_epoch": record.state_epoch}
        times = {"create_timestamp": record.create_timestamp_ms, "write_timestamp": record.write_timestamp_ms}
    return {
        "type": "snapshot" if isinstance(record, ShareSnapshot) else "update",
        **key_form(record.key),
        "snapshot_epoch": record.snapshot_epoch,
        **epochs,
        "leader_epoch": absent_if_none(record.leader_epoch),
        "start_offset": absent_if_none(record.start_offset),
        "delivery_complete_count": record.delivery_complete_count,
        **times,
        "batches": batches_form(record.batches),
    }


LogPoint = Mapping[int, int] | int
"""The last offset of each state partition, and no record of others; or ms since the epoch. Both are inclusive."""


@dataclass(slots=True, kw_only=True)
class LogCut:
    """What a point includes, filled in while records are read: the last offset of each state partition, and the numbers
    of records after the point (`later`) and in state partitions that it does not name (`unnamed`)."""

    last_offsets: dict[int, int] = field(default_factory=dict)
    later: int = 0
    unnamed: dict[int, int] = field(default_factory=dict)


def parse_log_point(text: str) -> LogPoint:
    """``3:120,7:45`` are offsets by state partition; a lone number is epoch ms; ``1h`` is that long ago;
    everything else must be an RFC 3339 time with its offset from UTC. Fractions below a ms are cut off. Raises
    InputError: it is none of these."""
    if _NUMBER.fullmatch(text):
        number = _fitting(int(text), text)
        if number < _EARLIEST_TIME_MS:
            raise InputError(f"--at {text!r} is not a moment: an offset needs its state partition", hint=_HINT)
        return number
    pairs = [pair for part in text.split(",") if (pair := _PAIR.fullmatch(part.strip()))]
    if len(pairs) == text.count(",") + 1:
        offsets: dict[int, int] = {}
        for pair in pairs:
            partition, offset = int(pair[1]), _fitting(int(pair[2]), text)
            if offsets.setdefault(partition, offset) != offset:
                raise InputError(f"--at {text!r} gives state partition {partition} two offsets")
        return offsets
    return instant_ms("--at", text, kind="moment", hint=_HINT)


def up_to(records: Iterable[RawRecord], point: LogPoint, cut: LogCut) -> Iterator[RawRecord]:
    """Those of `records` (in log order per state partition) up to `point`; fills in `cut`. Raises InputError where the
    point does not fit: a state partition that has no record, or a time for
    records without timestamp."""
    kept = _by_time(records, point) if isinstance(point, int) else _by_offsets(records, point, cut)
    for record, is_included in kept:
        if is_included:
            cut.last_offsets[record.state_partition] = record.offset
            yield record
        else:
            cut.later += 1


def _by_offsets(records: Iterable[RawRecord], offsets: Mapping[int, int], cut: LogCut) -> _Kept:
    seen: set[int] = set()
    for record in records:
        last = offsets.get(record.state_partition)
        if last is None:
            cut.unnamed[record.state_partition] = cut.unnamed.get(record.state_partition, 0) + 1
            continue
        seen.add(record.state_partition)
        yield record, record.offset <= last
    missing = sorted(offsets.keys() - seen)
    if missing:
        raise InputError(f"--at names state partition {missing[0]}, but the files have no record of it")


def _by_time(records: Iterable[RawRecord], latest_ms: int) -> _Kept:
    over: set[int] = set()
    for record in records:
        if record.timestamp_ms < 0:
            raise InputError(
                f"state partition {record.state_partition}, offset {record.offset} has no timestamp: "
                "the state at a time is not known",
                hint="give --at PARTITION:OFFSET,...",
            )
        if record.timestamp_ms > latest_ms:
            over.add(record.state_partition)
        yield record, record.state_partition not in over


def _fitting(number: int, text: str) -> int:
    if number >= _LATEST_MS:
        raise InputError(f"--at {text!r} is out of range", hint=_HINT)
    return number
