"""Records that are none, in files of every format: a row with a reason each, and never more than that."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers.command_line import run
from samples.dump_lines import dump_line
from samples.golden_vectors import wire
from state_topics.segment_bytes import batch

from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord

RECORDS: dict[str, list[tuple[bytes, bytes]]] = {
    "4.0": [(wire("W-4x-snapshot-key"), wire("W-40-snapshot-value"))],
    "4.1": [
        (wire("W-4x-snapshot-key"), wire("W-41-snapshot-value")),
        (wire("W-4x-update-key"), wire("W-41-update-value")),
    ],
    "4.2": [(wire("W-4x-snapshot-key"), wire("W-42-snapshot-value"))],
}
"""One record of each type of each release."""

Pair = tuple[bytes | None, bytes | None]


def as_records(pairs: Sequence[Pair]) -> list[RawRecord]:
    return [
        RawRecord(state_partition=3, offset=offset, timestamp_ms=offset, key=key, value=value)
        for offset, (key, value) in enumerate(pairs)
    ]


def as_dump(folder: Path, records: Sequence[RawRecord]) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(dump_line(record) + "\n" for record in records))
    return file


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


FORMATS = pytest.mark.parametrize("write", [as_dump, as_parquet, as_segment])
Write = Callable[[Path, Sequence[RawRecord]], Path]


@pytest.mark.parametrize("dialect", RECORDS)
def test_truncated_at_every_byte(dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Key and value of every record type cut off at every byte: one row each with the place in it, beside the whole
    record; replay gives the whole records' state and counts the others."""
    for whole in RECORDS[dialect]:
        key, value = whole
        cut: list[Pair] = [(key[:end], value) for end in range(len(key))]
        cut += [(key, value[:end]) for end in range(len(value))]
        file = as_dump(tmp_path, as_records([whole, *cut]))

        done = run(capsys, "record", "decode", "--dialect", dialect, file)
        replayed = run(capsys, "record", "replay", "--dialect", dialect, file)

        rows = done.rows
        assert [row["offset"] for row in rows] == list(range(len(cut) + 1))
        assert [row["decode_status"] == "decoded" for row in rows] == [True] + [False] * len(cut)
        assert all("byte" in row["decode_error"] for row in rows[1:])
        assert done.stderr == f"{len(rows)} read, 1 decoded, {len(cut)} not readable\n"
        assert f"{len(rows)} read, 1 replayed" in replayed.stderr
        assert replayed.code == 0


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


@FORMATS
def test_lies_are_rows_with_reasons(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@FORMATS
def test_random_bytes(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of random bytes are a row each."""
    source = random.Random(5)
    pairs: list[Pair] = [
        (source.randbytes(source.randrange(40)), source.randbytes(source.randrange(90))) for _ in range(300)
    ]
    pairs += [(SNAPSHOT, source.randbytes(source.randrange(90))) for _ in range(300)]
    file = write(tmp_path, as_records(pairs))

    done = run(capsys, "record", "decode", "--dialect", "4.2", file)

    assert [row["offset"] for row in done.rows] == list(range(len(pairs)))
    assert run(capsys, "record", "replay", "--dialect", "4.2", file).code == 0


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


def test_records_of_two_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two different records at one address are of two logs: no state is made up from both, and the address is named."""
    ours = as_records([(SNAPSHOT, VALUE), (SNAPSHOT, VALUE)])
    theirs = replace(ours[1], value=wire("W-41-snapshot-value"))

    line = run(capsys, "record", "replay", as_dump(tmp_path, [*ours, theirs])).complaint(2)

    assert "two different records at state partition 3, offset 1" in line
    assert "different clusters" in line
