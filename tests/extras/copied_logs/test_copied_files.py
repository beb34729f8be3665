"""Record dumps, Parquet and Arrow files: what is written is read, and what is none is refused with its place. Records
that are none, in files of every format: a row with a reason each, and never more than that."""

from __future__ import annotations

import datetime as dt
import gzip
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers.command_line import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather
from samples.dump_lines import dump_line, raw_table, write_dump
from samples.golden_vectors import wire
from state_topics.segment_bytes import batch, segment_file

from acktrail.errors import MalformedFile, UnknownName
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.raw_record import RawRecord
from acktrail_copied_logs.copied_files import read_column_batches, read_columns, read_dump

raw_records = st.builds(
    RawRecord,
    state_partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    key=st.one_of(st.none(), st.binary(max_size=30)),
    value=st.one_of(st.none(), st.binary(max_size=30)),
)


def dump(folder: Path, text: str, suffix: str = "") -> Path:
    """A dump of this text, packed as its name says."""
    file = folder / f"dump.jsonl{suffix}"
    with pa.output_stream(str(file), compression="detect") as stream:
        stream.write(text.encode())
    return file


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@given(st.lists(raw_records, max_size=8))
def test_a_dump_gives_back_its_records(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, records: list[RawRecord]
) -> None:
    """A dump gives back exactly the records written to it, compressed or not."""
    file = dump(tmp_path_factory.mktemp("dump"), "".join(dump_line(r) + "\n" for r in records), suffix)

    assert list(read_dump(file)) == records


GOOD_LINE = dump_line(RawRecord(state_partition=1, offset=2, timestamp_ms=3, key=b"k", value=None))


def test_a_byte_order_mark_is_no_part_of_a_dump(tmp_path: Path) -> None:
    """Editors of some systems begin a text file with one."""
    assert len(list(read_dump(dump(tmp_path, f"\ufeff{GOOD_LINE}\n{GOOD_LINE}\n")))) == 2


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("not json", "not JSON"),
        (GOOD_LINE[:-5], "not JSON"),
        ("[1,2]", "not a JSON object"),
        ("{}", "'partition' is not an integer"),
        (GOOD_LINE.replace("2", '"2"'), "'offset' is not an integer"),
        (GOOD_LINE.replace(":2,", ":true,"), "'offset' is not an integer"),
        (GOOD_LINE.replace(":1,", ":99999999999,"), "'partition' is out of range"),
        (GOOD_LINE.replace('"aw=="', '"a"'), "'key' is not base64"),
        (GOOD_LINE.replace('"aw=="', "7"), "'key' is not base64"),
        (GOOD_LINE.replace(',"value":null', ""), "'value' is missing"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, part: str) -> None:
    """A line that is no record stops the reading and says file, line and what is wrong."""
    file = dump(tmp_path, f"{GOOD_LINE}\n{line}\n")

    with pytest.raises(MalformedFile, match=part) as caught:
        list(read_dump(file))

    assert (caught.value.file, caught.value.line) == (str(file), 2)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_cut_off_archive_is_refused(suffix: str, tmp_path: Path) -> None:
    """A compressed dump that ends early, or is damaged, is an error, never a shorter dump."""
    file = dump(tmp_path, (GOOD_LINE + "\n") * 2_000, suffix)
    whole = file.read_bytes()
    for damaged in (whole[:-9], whole[:20] + bytes(9) + whole[29:], whole + b"more"):
        file.write_bytes(damaged)
        with pytest.raises(MalformedFile, match="damaged or cut off"):
            list(read_dump(file))
    if suffix == ".gz":  # a copy by blocks ends at the edge of a block
        file.write_bytes(whole + bytes(512))
        assert len(list(read_dump(file))) == 2_000


def test_other_file_formats_are_refused(tmp_path: Path) -> None:
    """A missing file and a file of another kind are refused by name."""
    with pytest.raises(UnknownName):
        list(read_dump(tmp_path / "none.jsonl"))
    image = tmp_path / "picture.png"
    image.write_bytes(b"\x89PNG")
    with pytest.raises(MalformedFile):
        list(read_dump(image))
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MalformedFile):
        list(read_dump(binary))


in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def table(count: int) -> pa.Table:
    """So many records of one state partition."""
    long = {"key": b"k" * 50, "value": b"v" * 50}
    return raw_table(RawRecord(state_partition=0, offset=offset, timestamp_ms=0, **long) for offset in range(count))


def _parquet(file: Path, content: pa.Table) -> None:
    pq.write_table(content, file, row_group_size=3)


def _arrow(file: Path, content: pa.Table) -> None:
    with pa.ipc.new_file(file, content.schema) as sink:
        sink.write_table(content, max_chunksize=3)


def _stream(file: Path, content: pa.Table) -> None:
    with pa.ipc.new_stream(str(file), content.schema) as sink:
        sink.write_table(content, max_chunksize=3)


def _feather(file: Path, content: pa.Table) -> None:
    feather.write_feather(content, str(file))


def _packed(file: Path, content: pa.Table) -> None:
    plain = file.with_suffix("")
    _parquet(plain, content)
    file.write_bytes(gzip.compress(plain.read_bytes()))


WRITERS = [
    pytest.param(_parquet, "state.parquet", id="parquet"),
    pytest.param(_arrow, "state.arrow", id="arrow"),
    pytest.param(_stream, "state.arrow", id="arrow stream"),
    pytest.param(_feather, "state.feather", id="feather"),
    pytest.param(_packed, "state.parquet.gz", id="packed"),
]
Writer = Callable[[Path, pa.Table], None]


@pytest.mark.parametrize(("write", "name"), WRITERS)
@in_one_folder
@given(st.lists(raw_records, max_size=8))
def test_round_trip(write: Writer, name: str, tmp_path: Path, found: list[RawRecord]) -> None:
    """A file gives back exactly the records written to it; a null timestamp is not known."""
    write(tmp_path / name, raw_table(found))

    assert list(read_columns(tmp_path / name)) == found


def test_equivalent_column_types_are_cast(tmp_path: Path) -> None:
    """Wider or narrower integers, times, large, fixed-size and dictionary binaries, other columns and another order."""
    instant = dt.datetime(2026, 8, 1, 12, 0, 0, 123_999, tzinfo=dt.UTC)
    content = pa.table(
        {
            "value": pa.array([b"v", None], pa.large_binary()),
            "topic": ["__share_group_state"] * 2,
            "key": pa.array([b"k", b"l"], pa.binary()).dictionary_encode(),
            "offset": pa.array([1, 2], pa.uint64()),
            "timestamp": pa.array([instant, None], pa.timestamp("us", "UTC")),
            "partition": pa.array([3, 4], pa.int8()),
        }
    )
    _arrow(tmp_path / "a.arrow", content)

    assert list(read_columns(tmp_path / "a.arrow")) == [
        RawRecord(state_partition=3, offset=1, timestamp_ms=1_785_585_600_123, key=b"k", value=b"v"),
        RawRecord(state_partition=4, offset=2, timestamp_ms=-1, key=b"l", value=None),
    ]


def test_one_row_group_at_a_time(tmp_path: Path) -> None:
    """A file is not read as a whole: what lies before a damaged part is given before the damage is met."""
    file = tmp_path / "a.arrow"
    _stream(file, table(10))
    file.write_bytes(file.read_bytes()[:-200])

    batches = read_column_batches(file)

    first = next(batches)
    assert (first.schema, first.column("offset").to_pylist()) == (RAW_RECORDS, [0, 1, 2])
    with pytest.raises(MalformedFile):
        list(batches)


GOOD = table(1)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (GOOD.drop_columns(["key"]), "column 'key' is missing"),
        (GOOD.set_column(1, "offset", pa.array(["1"])), "column 'offset' is string"),
        (GOOD.set_column(4, "value", pa.array(["text"])), "column 'value' is string"),
        (GOOD.set_column(2, "timestamp", pa.array([1.5])), "column 'timestamp' is double"),
        (GOOD.set_column(0, "partition", pa.array([None], pa.int32())), "'partition' is null"),
        (GOOD.set_column(1, "offset", pa.array([-7])), "'offset' is null or negative"),
        (GOOD.set_column(0, "partition", pa.array([2**40])), "batch 1 of its rows"),
        (GOOD.set_column(1, "offset", pa.array([2**63], pa.uint64())), "batch 1 of its rows"),
        (GOOD.append_column("key", pa.array([b"other"])), "'key' is present twice"),
        (GOOD.drop_columns(["partition"]).slice(0, 0), "column 'partition' is missing"),
    ],
)
def test_wrong_columns(content: pa.Table, part: str, tmp_path: Path) -> None:
    """A column that is missing, of another type, or without an address in a row is named."""
    file = tmp_path / "a.arrow"
    _arrow(file, content)

    with pytest.raises(MalformedFile, match=part) as caught:
        list(read_columns(file))

    assert caught.value.file == str(file)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    """What is no such file, cut off, empty or missing is refused by name."""
    with pytest.raises(UnknownName):
        list(read_columns(tmp_path / name))
    whole = tmp_path / "whole.arrow"
    _arrow(whole, table(50))
    for content in (b"", b"PAR1", b"no table at all" * 20, whole.read_bytes()[:-200], whole.read_bytes()[:300]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(MalformedFile):
            list(read_columns(tmp_path / name))


@in_one_folder
@given(st.data())
def test_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """A file with changed bytes is read or refused in one error."""
    write, name = data.draw(st.sampled_from([(_parquet, "a.parquet"), (_arrow, "a.arrow"), (_stream, "b.arrow")]))
    write(tmp_path / name, table(5))
    raw = bytearray((tmp_path / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / name).write_bytes(raw)

    try:
        found = list(read_columns(tmp_path / name))
    except MalformedFile:
        return
    assert all(record.offset >= 0 for record in found)


def test_column_files_decode_as_dumps_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """decode and replay give of a Parquet file what they give of a dump with the same records."""
    key, value = wire("W-4x-snapshot-key"), wire("W-42-snapshot-value")
    records = as_records([(key, value if offset % 2 else value[:-1]) for offset in range(4)])
    as_parquet(tmp_path, records)
    as_dump(tmp_path, records)

    for command in ("decode", "replay"):
        assert run(capsys, "record", command, tmp_path / "a.parquet") == run(
            capsys, "record", command, tmp_path / "a.jsonl"
        )
    _parquet(tmp_path / "b.parquet", GOOD.drop_columns(["key"]))
    assert "column" in run(capsys, "record", "replay", tmp_path / "b.parquet").complaint(2)


Pair = tuple[bytes | None, bytes | None]


def as_records(pairs: Sequence[Pair]) -> list[RawRecord]:
    return [
        RawRecord(state_partition=3, offset=offset, timestamp_ms=offset, key=key, value=value)
        for offset, (key, value) in enumerate(pairs)
    ]


def as_dump(folder: Path, records: Sequence[RawRecord]) -> Path:
    return write_dump(records, folder / "a.jsonl")


def as_parquet(folder: Path, records: Sequence[RawRecord]) -> Path:
    _parquet(folder / "a.parquet", raw_table(records))
    return folder / "a.parquet"


def as_segment(folder: Path, records: Sequence[RawRecord]) -> Path:
    return segment_file(folder, *(batch([record]) for record in records))


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
