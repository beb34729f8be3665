"""Records that are none, in files of every format: a row with a reason each, and never more than that."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers.command_line import run
from samples.dump_lines import write_dump
from samples.golden_vectors import wire
from state_topics.segment_bytes import batch

from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord

Pair = tuple[bytes | None, bytes | None]


def as_records(pairs: Sequence[Pair]) -> list[RawRecord]:
    return [
        RawRecord(state_partition=3, offset=offset, timestamp_ms=offset, key=key, value=value)
        for offset, (key, value) in enumerate(pairs)
    ]


def as_dump(folder: Path, records: Sequence[RawRecord]) -> Path:
    return write_dump(records, folder / "a.jsonl")


def as_parquet(folder: Path, records: Sequence[RawRecord]) -> Path:
    rows = [(r.state_partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]
    table = pa.Table.from_pylist([dict(zip(RAW_RECORDS.names, row, strict=True)) for row in rows], schema=RAW_RECORDS)
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def as_segment(folder: Path, records: Sequence[RawRecord]) -> Path:
    (folder / "__share_group_state-3").mkdir()
    file = folder / "__share_group_state-3" / "0.log"
    file.write_bytes(b"".join(batch([record]) for record in records))
    return file


SNAPSHOT, UPDATE = wire("W-4x-snapshot-key"), wire("W-4x-update-key")
VALUE = wire("W-42-snapshot-value")
COUNT = VALUE[:38]

BAD: list[tuple[Pair, str, str]] = [
    ((None, VALUE), "null_key", "null key"),
    ((None, None), "null_key", "null key"),
    ((UPDATE, None), "null_update", "null value"),
    ((b"\x00\x07" + SNAPSHOT[2:], VALUE), "unknown_type", "7"),
    ((b"\xff\xff" + SNAPSHOT[2:], VALUE), "unknown_type", "-1"),
    ((SNAPSHOT, b"\x00\x01" + VALUE[2:]), "unknown_version", "1"),
    ((SNAPSHOT[:2] + b"\x7f\xff" + SNAPSHOT[4:], VALUE), "malformed_key", "32767 bytes announced"),
    ((SNAPSHOT[:2] + b"\xff\xff" + SNAPSHOT[4:], VALUE), "malformed_key", "negative length"),
    ((SNAPSHOT[:4] + b"\xff\xfe" + SNAPSHOT[6:], VALUE), "malformed_key", "UTF-8"),
    ((SNAPSHOT, COUNT + b"\xff\xff\xff\xff\x0f" + bytes(40)), "malformed_value", "state batches announced"),
    ((SNAPSHOT, COUNT + b"\xff\xff\xff\xff\xff\x01"), "malformed_value", "longer than five bytes"),
    ((SNAPSHOT, COUNT + b"\x00"), "malformed_value", "null array"),
    ((SNAPSHOT, COUNT + b"\x01\xff\xff\xff\xff\x0f"), "malformed_value", "cut off"),
    ((SNAPSHOT, COUNT + b"\x01\x01\x05\xff\xff\xff\xff\x0f"), "malformed_value", "announced"),
    ((SNAPSHOT, b""), "malformed_value", "cut off"),
]


@pytest.mark.parametrize("write", [as_dump, as_parquet, as_segment])
def test_lies_are_rows_with_reasons(
    write: Callable[[Path, Sequence[RawRecord]], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Null keys, unknown types and versions, lengths and counts that lie: in each format a row that names the fault,
    beside the records that are right; and nothing is allocated for what is announced."""
    pairs: list[Pair] = [(SNAPSHOT, VALUE), *(pair for pair, _, _ in BAD), (SNAPSHOT, VALUE)]
    file = write(tmp_path, as_records(pairs))
    tracemalloc.start()

    rows = run(capsys, "record", "decode", file).rows

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024 * 1024
    assert [row["decode_status"] for row in rows] == ["decoded", *(status for _, status, _ in BAD), "decoded"]
    for row, (_, _, reason) in zip(rows[1:-1], BAD, strict=True):
        assert reason in row["decode_error"], row
    done = run(capsys, "record", "replay", file)
    assert len(done.rows) == 1
    assert f"{len(rows)} read, 2 replayed, {len(BAD)} not readable" in done.stderr


def test_duplicates_and_any_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dump with every record twice and in any order replays as the log does; decode keeps each line as it stands."""
    records = as_records([(SNAPSHOT, VALUE), (UPDATE, wire("W-41-update-value")), (SNAPSHOT, None), (SNAPSHOT, VALUE)])
    in_order = run(capsys, "record", "replay", as_dump(tmp_path, records)).stdout
    source = random.Random(7)
    for _ in range(5):
        shuffled = source.sample([*records, *records], 2 * len(records))
        file = as_dump(tmp_path, shuffled)

        assert run(capsys, "record", "replay", file).stdout == in_order
        assert [row["offset"] for row in run(capsys, "record", "decode", file).rows] == [r.offset for r in shuffled]
