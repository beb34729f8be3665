"""Dumps of records in a dialect, and a log of released records that a broker and the founding documents read apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from samples.dump_lines import write_dump

from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

KEY = SharePartition(group_id=GroupId("G1"), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)


def dump(file: Path, encode: Callable[[Any], tuple[bytes, bytes | None]] | None, log: Sequence[RecordAt[Any]]) -> Path:
    """A dump of `log` as a dialect encodes it; a record's timestamp is ten times its offset."""
    assert encode is not None
    found = []
    for placed in log:
        place = {"state_partition": placed.partition, "offset": placed.offset, "timestamp_ms": 10 * placed.offset}
        key, value = encode(placed.record)
        found.append(RawRecord(**place, key=key, value=value))
    return write_dump(found, file)


def as_log(records: Sequence[Any]) -> list[RecordAt[Any]]:
    """One after the other in one state partition."""
    return [RecordAt(partition=0, offset=offset, record=record) for offset, record in enumerate(records)]


def each_is_a_line(decoded: Callable[..., Any], folder: Path, encode: Any, records: Sequence[Any]) -> None:
    """Every one of `records` is decoded, in their order, with a type and its group; `decoded` runs the command."""
    log = as_log(records)
    rows = decoded(dump(folder / "log.jsonl", encode, log)).rows
    assert [row["decode_status"] for row in rows] == ["decoded"] * len(log)
    assert [row["offset"] for row in rows] == [placed.offset for placed in log]
    for row, placed in zip(rows, log, strict=True):
        assert row["group"] == getattr(placed.record, "key", placed.record).group_id
        kind = type(placed.record).__name__.lower()
        assert row["type"].rpartition("_")[2] in kind
        if hasattr(placed.record, "batches"):
            assert len(row["batches"]) == len(placed.record.batches)


def update(epoch: int, start: int, *, key: SharePartition = KEY) -> ShareUpdate:
    """Without batches."""
    return ShareUpdate(
        key=key, snapshot_epoch=epoch, leader_epoch=1, start_offset=start, delivery_complete_count=0, batches=()
    )


def snapshot(epoch: int, start: int) -> ShareSnapshot:
    """Without batches."""
    return ShareSnapshot(
        key=KEY,
        snapshot_epoch=epoch,
        state_epoch=1,
        leader_epoch=1,
        start_offset=start,
        delivery_complete_count=0,
        create_timestamp_ms=1_700_000_000_000,
        write_timestamp_ms=1_700_000_000_000,
        batches=(),
    )


ODD_KEY = replace(KEY, group_id=GroupId("odd\x1b[2J\n'group'"))
ODD = as_log([update(0, 5, key=ODD_KEY), snapshot(0, 10), update(0, 20), update(7, 30), snapshot(2, 40), update(2, 50)])
"""Updates without a snapshot, or of another snapshot's epoch: a broker applies them."""


def any_moment_is_the_replay_of_what_was_there(replayed: Callable[..., Any], folder: Path, encode: Any) -> None:
    """--at an offset or a time equals the replay of a dump of `ODD` that ends there; `replayed` runs the command."""
    whole = dump(folder / "log.jsonl", encode, ODD)
    for end in range(1, len(ODD) + 1):
        part = replayed(dump(folder / "part.jsonl", encode, ODD[:end]))
        epoch_ms = 10 * (end - 1)
        time = f"1970-01-01T00:00:00.{epoch_ms:03d}Z"
        for moment in (f"0:{end - 1}", time):
            then = replayed(whole, "--at", moment)
            assert then.stdout == part.stdout, moment
            assert f"{len(ODD) - end} later records left out" in then.stderr
