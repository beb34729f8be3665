"""Log segments: every codec, every kind of damage, nothing of the rest lost."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import pytest
from drivers.command_line import run
from samples.dump_lines import write_dump
from samples.golden_vectors import wire
from state_topics.segment_bytes import COMPRESSORS, batch, segment_file

from acktrail.errors import InputError, MalformedFile, MalformedRecord, UnknownName
from acktrail.format.columns.decoding.compression import unpacked
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import Compression
from acktrail_copied_logs import log_batches
from acktrail_copied_logs.dialects import KAFKA_4_2
from acktrail_copied_logs.log_segment import ReadReport, SegmentDamage, SegmentDamageStatus, read_segment

FOLDER = "__share_group_state-3"


def record(offset: int, value: bytes | None = b"value") -> RawRecord:
    return RawRecord(state_partition=3, offset=offset, timestamp_ms=1_000 + offset, key=b"key", value=value)


def read(file: Path) -> tuple[list[RawRecord], list[SegmentDamage]]:
    damage: list[SegmentDamage] = []
    return list(read_segment(file, ReadReport(on_damage=damage.append))), damage


def run_of(first: int, count: int) -> list[RawRecord]:
    return [record(offset) for offset in range(first, first + count)]


THREE = [run_of(0, 2), run_of(5, 1), run_of(6, 3)]
"""Three batches; a cleaner took offsets 2 to 4."""

ALL = [r for found in THREE for r in found]
PARTS = [batch(found) for found in THREE]
EDGES = [sum(map(len, PARTS[:number])) for number in range(4)]


def test_a_segment_torn_anywhere_keeps_its_intact_batches(tmp_path: Path) -> None:
    """A segment cut off at any byte gives every whole batch, and says once where the torn one begins."""
    whole = b"".join(PARTS)
    for size in range(len(whole) + 1):
        records, damage = read(segment_file(tmp_path, whole[:size]))

        complete = [edge for edge in EDGES if edge <= size]
        assert records == [r for found in THREE[: len(complete) - 1] for r in found], size
        torn = size - complete[-1]
        if torn and whole[complete[-1] : size].strip(b"\x00"):
            (found,) = damage
            assert (found.status, found.position) == (SegmentDamageStatus.TORN_TAIL, complete[-1]), size
            assert found.size_bytes == torn
            assert found.first_offset in (None, THREE[len(complete) - 1][0].offset)
        else:
            assert damage == []


DENSE = [run_of(0, 2), run_of(2, 1), run_of(3, 3)]
DENSE_PARTS = [batch(found) for found in DENSE]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_byte_costs_one_batch(number: int, tmp_path: Path) -> None:
    """Whatever byte of a batch is wrong, lengths and all, the other batches are read and the damage has its address."""
    begin = sum(map(len, DENSE_PARTS[:number]))
    others = [r for at, found in enumerate(DENSE) if at != number for r in found]
    for index in (8, 9, 10, 11, *range(16, len(DENSE_PARTS[number]))):
        for change in (0x01, 0x80, 0xFF):
            raw = bytearray(b"".join(DENSE_PARTS))
            raw[begin + index] ^= change

            records, damage = read(segment_file(tmp_path, bytes(raw)))

            assert records == others, (index, change)
            (found,) = damage
            assert (found.position, found.size_bytes) == (begin, len(DENSE_PARTS[number])), (index, change)
            assert found.status in (SegmentDamageStatus.CORRUPT_BATCH, SegmentDamageStatus.TORN_TAIL)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_wrong_offset_of_a_batch(number: int, tmp_path: Path) -> None:
    """The offset is under no checksum; where it collides with the neighbours' no record gets a wrong address, and what
    is not given is reported."""
    begin = sum(map(len, DENSE_PARTS[:number]))
    for offset in (0, 1, 2, 3, 4, 5, 6, 7, 2**40, 2**63 - 1, -1):
        raw = bytearray(b"".join(DENSE_PARTS))
        struct.pack_into(">q", raw, begin, offset)
        if offset == DENSE[number][0].offset or (number == 2 and offset > 3):
            continue  # right, or a later one that nothing contradicts

        records, damage = read(segment_file(tmp_path, bytes(raw)))

        damaged = {d.position for d in damage}
        assert begin in damaged, offset
        given = [found for at, found in enumerate(DENSE) if sum(map(len, DENSE_PARTS[:at])) not in damaged]
        assert records == [r for found in given for r in found], offset


def test_preallocated_zeros_are_no_damage(tmp_path: Path) -> None:
    """Zeros behind the last batch are no damage, and a segment of nothing has nothing."""
    assert read(segment_file(tmp_path, *PARTS, bytes(100_000))) == (ALL, [])
    assert read(segment_file(tmp_path)) == ([], [])
    assert read(segment_file(tmp_path, bytes(100))) == ([], [])


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (batch(run_of(20, 2), count=2**31 - 1), "cut off"),
        (batch(run_of(20, 2), count=1), "after the records"),
        (batch(run_of(20, 2), count=-1), "record count -1"),
        (batch(run_of(20, 2), last_offset=20), "offset delta 1"),
        (batch(run_of(20, 2), attributes=1, body=b"no gzip"), "gzip data is damaged"),
        (batch(run_of(20, 2), attributes=2, body=b"\xff\x7fno snappy"), "snappy data is damaged"),
        (batch(run_of(20, 2), attributes=2, body=b"\x82SNAPPY\x00" + bytes(8) + b"\x7f\xff"), "block length"),
        (batch(run_of(20, 2), attributes=2, body=b"\x82SNAPPY\x00" + bytes(8) + b"\x7f\xff\xff\xff"), "announced"),
        (batch(run_of(20, 2), attributes=3, body=b"no lz4"), "lz4 data is damaged"),
        (batch(run_of(20, 2), attributes=4, body=b"no zstd"), "zstd data is damaged"),
        (batch(run_of(20, 2), attributes=7, body=b""), "unknown compression 7"),
    ],
)
def test_impossible_content_with_a_valid_checksum_is_damage(part: bytes, reason: str, tmp_path: Path) -> None:
    """A batch that its writer spoilt gives what can be read of it, an address for the rest, and harms no other."""
    records, damage = read(segment_file(tmp_path, PARTS[0], part, batch(run_of(30, 1))))

    (found,) = damage
    assert reason in found.reason
    assert (found.position, found.size_bytes, found.status) == (len(PARTS[0]), len(part), "corrupt_batch")
    told = [r.offset for r in records if 20 <= r.offset < 30]
    assert told == list(range(20, found.first_offset or 0))
    assert [r for r in records if r.offset not in told] == [*THREE[0], record(30)]


def test_wrong_lengths_are_damage(tmp_path: Path) -> None:
    """A batch that announces 2 GB, or more than there is, is passed over without reading that much."""
    for length in (2**31 - 1, 100_000, 49, 48, 0, -1):
        lying = PARTS[1][:8] + struct.pack(">i", length) + PARTS[1][12:]

        records, damage = read(segment_file(tmp_path, PARTS[0], lying, PARTS[2]))

        assert records == [*THREE[0], *THREE[2]], length
        assert [(d.position, d.size_bytes) for d in damage] == [(EDGES[1], len(PARTS[1]))], length


@pytest.mark.parametrize("codec", ["gzip", "snappy", "snappy without frames", "lz4", "zstd"])
def test_decompression_bombs_are_not_unpacked(codec: str) -> None:
    """Data that unpacks to more than the bound is refused; what just fits is not."""
    number, compress = COMPRESSORS[codec]
    packed = compress(bytes(100_000))

    assert unpacked(Compression(number), packed, most=100_000) == bytes(100_000)
    with pytest.raises(MalformedRecord, match="more than 99999 bytes"):
        unpacked(Compression(number), packed, most=99_999)


def test_a_file_full_of_headers_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file made to look like batches all over is given up after a bounded search, with one address for the rest."""
    header = bytearray(PARTS[2][:61])
    header[8:12] = struct.pack(">i", 20_000)
    reads: list[int] = []
    known = log_batches.is_intact
    monkeypatch.setattr(log_batches, "is_intact", lambda header, raw: reads.append(len(raw)) or known(header, raw))

    file = segment_file(tmp_path, *([bytes(header)] * 1_000))
    records, damage = read(file)

    assert records == []
    assert sum(reads) < 40 * file.stat().st_size
    assert damage


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A log of another kind, an index, an old message format and a missing file are named, in one error."""
    for content in (b"[2026-08-01 12:00:00,000] INFO started (kafka.server.KafkaServer)\n" * 9, b"\xff" * 500):
        with pytest.raises(MalformedFile, match="not a log segment"):
            read(segment_file(tmp_path, content))
    with pytest.raises(MalformedFile, match="not a log segment"):
        read(segment_file(tmp_path, struct.pack(">qiibb", 0, 60, zlib.crc32(b""), 1, 0) + bytes(100)))
    with pytest.raises(UnknownName):
        read(tmp_path / "none.log")


def test_the_state_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It comes from the folder's name, else from the option; where nobody says it, it is -1 and the command says so."""
    for folder, named in ((FOLDER, 3), ("__share_group_state-12.0aF-delete", None), ("__consumer_offsets-0", 0)):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "0.log"
        file.write_bytes(PARTS[0])
        reading = ReadReport()
        assert {r.state_partition for r in read_segment(file, reading)} == {-1 if named is None else named}
        assert reading.nameless == ([str(file)] if named is None else [])
    plain = tmp_path / "0.log"
    plain.write_bytes(PARTS[0])
    assert {r.state_partition for r in read_segment(plain, ReadReport(state_partition=7))} == {7}
    with pytest.raises(InputError, match="state partition 3, not 7"):
        list(read_segment(tmp_path / FOLDER / "0.log", ReadReport(state_partition=7)))
    said = run(capsys, "record", "decode", plain)
    assert {row["state_partition"] for row in said.rows} == {-1}
    assert "--state-partition" in said.stderr


def state_batches(count: int) -> list[RawRecord]:
    key, value = wire("W-4x-snapshot-key"), wire("W-42-snapshot-value")
    return [RawRecord(state_partition=3, offset=o, timestamp_ms=9, key=key, value=value) for o in range(count)]


def test_damage_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """decode prints a row for each damaged piece with its address, replay a line on stderr; both give the rest, which
    is what a dump of the same records gives."""
    records = state_batches(4)
    parts = [batch([r]) for r in records]
    parts[1] = parts[1][:-1] + b"\x55"
    file = segment_file(tmp_path, *parts[:3], parts[3][:70])
    dump = write_dump([records[0], records[2]], tmp_path / "same.jsonl")

    decoded, replayed = run(capsys, "record", "decode", file), run(capsys, "record", "replay", file)

    rows = decoded.rows
    assert [row["decode_status"] for row in rows] == ["decoded", "corrupt_batch", "decoded", "torn_tail"]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert [row["position"] for row in rows if "position" in row] == [len(parts[0]), sum(map(len, parts[:3]))]
    assert decoded.stderr == "4 read, 2 decoded, 2 not readable\n"
    assert [row for row in rows if row["decode_status"] == "decoded"] == run(capsys, "record", "decode", dump).rows
    assert replayed.rows == run(capsys, "record", "replay", dump).rows
    assert "corrupt batch: " in replayed.stderr
    assert f"byte {len(parts[0])}, offsets 1 to 1: the CRC-32C is wrong" in replayed.stderr
    assert "torn tail: " in replayed.stderr
    assert replayed.stderr.endswith("4 read, 2 replayed, 2 not readable\n")


def test_segments_in_any_order_are_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several segments, a packed one and a dump of one log replay as that log, in whatever order they are named."""
    key = KAFKA_4_2.decode(wire("W-4x-snapshot-key"), None).key
    records = state_batches(6)
    first = segment_file(tmp_path, batch(records[:3]))
    second = segment_file(tmp_path, gzip.compress(batch(records[3:5])), name="3.log.gz")
    dump = write_dump(records[4:], tmp_path / "rest.jsonl")

    done = [run(capsys, "record", "replay", *files) for files in ((first, second, dump), (dump, second, first))]

    assert done[0] == done[1]
    assert [row["group"] for row in done[0].rows] == [key.group_id]
    assert done[0].stderr.startswith("6 read, 6 replayed, 0 not readable")
