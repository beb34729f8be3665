"""Objects of Kafka Connect's S3 sink, as its documents and sources describe them, of records that brokers wrote."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from drivers.command_line import run
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import snapshots, updates

from acktrail.config import TablesConfig
from acktrail.errors import InputError, MalformedFile
from acktrail.format.wire.dialects.released import VALUE_ENDS, encode
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.state_key import key_end
from acktrail.offline.read.copied_files import read_dump, read_file
from acktrail.offline.read.read_report import ReadReport, SegmentDamage, SegmentDamageStatus
from acktrail.tables.delta.store import Tables

TOPIC = "__share_group_state"
GOLDEN = Path(__file__).parents[1] / "support/golden/state_topic"
CLUSTER = ("--cluster", "c1")


def captured(version: str = "4.4.0") -> list[RawRecord]:
    """The records of the busiest state partition that a broker wrote, tombstones left out, offsets from 0 on."""
    records = sorted(read_dump(GOLDEN / f"{version}.jsonl.gz"), key=lambda record: record.offset)
    numbers = [record.state_partition for record in records]
    busiest = max(set(numbers), key=numbers.count)
    own = [record for record in records if record.state_partition == busiest and record.value is not None]
    return [
        RawRecord(state_partition=3, offset=offset, timestamp_ms=-1, key=record.key, value=record.value)
        for offset, record in enumerate(own)
    ]


def object_of(
    folder: Path, records: Sequence[RawRecord], *, keys: bool = True, separator: bytes = b"\n", tombstones: bool = False
) -> Path:
    """What the sink writes of `records`: an object of values, and one of keys."""
    first = records[0]
    parent = folder / "topics" / TOPIC / ("tombstone" if tombstones else f"partition={first.state_partition}")
    parent.mkdir(parents=True, exist_ok=True)
    stem = f"{TOPIC}+{first.state_partition}+{first.offset:010d}"
    if keys:
        (parent / f"{stem}.keys.bin").write_bytes(b"".join((each.key or b"") + separator for each in records))
    if tombstones:
        return parent / f"{stem}.keys.bin"
    (parent / f"{stem}.bin").write_bytes(b"".join((each.value or b"") + separator for each in records))
    return parent / f"{stem}.bin"


def read(file: Path, **options: bytes) -> tuple[list[RawRecord], list[SegmentDamage], ReadReport]:
    damage: list[SegmentDamage] = []
    report = ReadReport(on_damage=damage.append, **options)
    return list(read_file(file, report)), damage, report


@pytest.mark.parametrize("version", ["4.1.2", "4.2.1", "4.3.1", "4.4.0"])
@pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\0"])
def test_what_brokers_wrote_comes_back(version: str, separator: bytes, tmp_path: Path) -> None:
    """Keys, values and offsets of two objects that follow each other, with separators inside of values."""
    records = captured(version)
    assert separator != b"\0" or any(separator in (each.value or b"") for each in records)
    half = len(records) // 2
    files = [object_of(tmp_path, part, separator=separator) for part in (records[:half], records[half:])]

    found = [read(file, separator=separator) for file in files]

    assert [record for own, _, _ in found for record in own] == records
    assert [damage for _, damage, _ in found] == [[], []]
    assert [report.unchecked for _, _, report in found] == [[], [str(files[1])]]
    assert read(files[0].with_name(files[0].name.replace(".bin", ".keys.bin")))[0] == []
    packed = files[1].with_name(files[1].name + ".gz")
    packed.write_bytes(gzip.compress(files[1].read_bytes()))
    keys = files[1].with_name(files[1].name.replace(".bin", ".keys.bin"))
    keys.with_name(keys.name + ".gz").write_bytes(gzip.compress(keys.read_bytes()))
    assert read(packed, separator=separator)[0] == records[half:]


@given(st.one_of(snapshots(), updates()), st.binary(max_size=40))
def test_keys_and_values_end_where_their_fields_end(record: object, rest: bytes) -> None:
    """Any bytes may follow them, also those that look like more of the same."""
    key, value = encode(record)
    assert key_end(key + rest, 0) == len(key)
    assert VALUE_ENDS[0](key[1], b"?" + (value or b"") + rest, 1) == 1 + len(value or b"")


def test_without_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every record is a row that could not be decoded, with its bytes; nothing is guessed, and counts add up."""
    records = captured()[:40]
    file = object_of(tmp_path, records, keys=False)

    done = run(capsys, "tables", "import", file, "--tables", tmp_path / "tables", *CLUSTER, "--json")

    summary = json.loads(done.stdout)
    assert (summary["records_new"], summary["records_quarantined"], summary["records_decoded"]) == (40, 40, 0)
    assert "store.kafka.keys" in done.stderr
    rows = Tables(TablesConfig(uri=str(tmp_path / "tables"))).read("state_records").sort_by("offset").to_pylist()
    assert [row["value"] for row in rows] == [record.value for record in records]
    assert {row["decode_status"] for row in rows} == {"null_key"}


def test_an_import_is_whole_and_can_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read is decoded and quarantined; the tables have every record at its offset; an object again is known."""
    records = captured()
    files = [object_of(tmp_path, records[begin : begin + 30]) for begin in range(0, len(records), 30)]
    every = [*files, *(file.with_name(file.name.replace(".bin", ".keys.bin")) for file in files)]
    root = tmp_path / "tables"

    first = json.loads(run(capsys, "tables", "import", *every, "--tables", root, *CLUSTER, "--json").stdout)
    again = json.loads(run(capsys, "tables", "import", files[0], "--tables", root, *CLUSTER, "--json").stdout)

    assert first["records_new"] == first["records_decoded"] + first["records_quarantined"] == len(records)
    assert (first["gaps"], again["records_new"], again["records_known"]) == ([], 0, 30)
    rows = Tables(TablesConfig(uri=str(root))).read("state_records").sort_by("offset").to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (record.offset, record.key, record.value) for record in records
    ]
    assert {row["timestamp_ms"] for row in rows} == {None}


def _cut(data: bytes) -> bytes:
    return data[:-7]


def _no_separator(data: bytes) -> bytes:
    return data[:-1]


@pytest.mark.parametrize("damage", [_cut, _no_separator])
def test_a_file_that_is_cut_off(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """What is whole is read; the rest is a damaged piece with its bytes and the offsets up to the next object."""
    records = captured()[:30]
    file = object_of(tmp_path, records[:20])
    object_of(tmp_path, records[20:])
    file.write_bytes(damage(file.read_bytes()))

    found, (piece,), _ = read(file)

    assert found == records[:19]
    assert (piece.first_offset, piece.last_offset, piece.status) == (19, 19, SegmentDamageStatus.UNREADABLE_REST)
    assert piece.position + piece.size_bytes == len(file.read_bytes())


def test_keys_that_are_cut_off(tmp_path: Path) -> None:
    """Values whose key is lost come without one; the others have theirs."""
    records = captured()[:20]
    file = object_of(tmp_path, records)
    keys = file.with_name(file.name.replace(".bin", ".keys.bin"))
    keys.write_bytes(_cut(keys.read_bytes()))

    found, damage, report = read(file)

    assert [record.key for record in found] == [*(record.key for record in records[:19]), None]
    assert [record.value for record in found] == [record.value for record in records]
    assert ([each.status for each in damage], len(report.keyless)) == ([SegmentDamageStatus.UNREADABLE_REST], 1)


@pytest.mark.parametrize("left_out", [0, 7, 19])
def test_keys_of_another_number(left_out: int, tmp_path: Path) -> None:
    """One key less or more, all whole: which key is whose is not known, so no value has one."""
    records = captured()[:20]
    file = object_of(tmp_path, records)
    keys = file.with_name(file.name.replace(".bin", ".keys.bin"))
    whole = [(each.key or b"") + b"\n" for each in records]

    keys.write_bytes(b"".join([*whole, whole[left_out]]))
    more = read(file)[0]
    keys.write_bytes(b"".join(whole[:left_out] + whole[left_out + 1 :]))
    less = read(file)[0]

    for found in (more, less):
        assert [record.value for record in found] == [record.value for record in records]
        assert {record.key for record in found} == {None}


def test_null_values_that_the_sink_left_out(tmp_path: Path) -> None:
    """An object with fewer values than offsets up to the next one: only its first value has a certain offset."""
    records = captured()[:30]
    file = object_of(tmp_path, [*records[:5], *records[6:20]])
    object_of(tmp_path, records[20:])

    found, (piece,), _ = read(file)

    assert found == records[:1]
    assert (piece.first_offset, piece.last_offset, piece.status) == (1, 19, SegmentDamageStatus.UNKNOWN_OFFSETS)


def test_tombstones_that_the_sink_wrote(tmp_path: Path) -> None:
    """One in an object of its own has its offset, and those of the values around it are certain; of several in one
    object only the first has, and only the values before it."""
    records = captured()[:30]
    dead = [RawRecord(state_partition=3, offset=n, timestamp_ms=-1, key=records[n].key, value=None) for n in (5, 9)]
    file = object_of(tmp_path, [*records[:5], *records[6:20]])
    object_of(tmp_path, records[20:])
    tombstones = object_of(tmp_path, dead[:1], tombstones=True)

    assert read(tombstones)[0] == dead[:1]
    assert read(file)[0] == [*records[:5], *records[6:20]]
    assert read(file)[1] == []

    file = object_of(tmp_path, [*records[:5], *records[6:9], *records[10:20]])
    object_of(tmp_path, dead, tombstones=True)
    found, (piece,), _ = read(file)
    assert (found, piece.first_offset, piece.last_offset) == (records[:5], 5, 19)
    assert (read(tombstones)[0], [each.first_offset for each in read(tombstones)[1]]) == (dead[:1], [6])


def test_names(tmp_path: Path) -> None:
    """A name that is no object's, keys without their values, and another state partition than the one asked for."""
    file = object_of(tmp_path, captured()[:3])
    with pytest.raises(InputError, match="state partition 3"):
        list(read_file(file, ReadReport(state_partition=4)))
    other = file.rename(file.with_name("values.bin"))
    with pytest.raises(MalformedFile, match="not named"):
        list(read_file(other, ReadReport()))
    with pytest.raises(MalformedFile, match="values of these keys"):
        list(read_file(next(file.parent.glob("*.keys.bin")), ReadReport()))
