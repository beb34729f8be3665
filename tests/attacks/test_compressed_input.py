"""Files and batches of a few kB that unpack to gigabytes, measured in processes of their own."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers.own_process import finished
from samples.dump_lines import write_dump
from state_topics.segment_bytes import COMPRESSORS, batch, segment_file

from acktrail.errors import MalformedFile, MalformedRecord
from acktrail.format.columns.decoding.compression import unpacked
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import Compression
from acktrail_copied_logs import copied_files, unpacking
from acktrail_copied_logs.copied_files import raw_batches, read_file
from acktrail_copied_logs.log_segment import ReadReport

MIB: Final = 1 << 20
HUGE: Final = 300 * MIB
MEASURED: Final = """
import resource, sys, tempfile
from pathlib import Path
from acktrail.errors import AcktrailError
from acktrail_copied_logs.copied_files import raw_batches, read_file
from acktrail_copied_logs.log_segment import ReadReport

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

file, reader = Path(sys.argv[1]), sys.argv[2]
before, count, said = used(), 0, ""
try:
    if reader == "list":
        count = len([*read_file(file, ReadReport())])
    else:
        count = sum(len(batch) for batch in raw_batches(file, ReadReport()))
except AcktrailError as error:
    said = error.with_hint
print(used() - before, count, said, sep="|")
"""


def zeros(size: int) -> Iterator[bytes]:
    yield from (bytes(MIB) for _ in range(size // MIB))


def packed(file: Path, pieces: Iterator[bytes]) -> Path:
    """`pieces` in a compressed file, by its name."""
    with file.open("wb") as raw:
        if file.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="wb") as out:
                for piece in pieces:
                    out.write(piece)
        else:
            with pa.CompressedOutputStream(pa.PythonFile(raw), "zstd") as out:
                for piece in pieces:
                    out.write(piece)
    return file


def measured(file: Path, reader: str = "list") -> tuple[int, int, str]:
    """MiB that reading the file took at most, the number of its records, and the error."""
    done = finished(sys.executable, "-c", MEASURED, file, reader, env={**os.environ, "PYTHONPATH": "extras"})
    assert done.returncode == 0, done.stderr
    mib, count, said = done.stdout.strip().split("|", 2)
    return int(mib), int(count), said


def line(offset: int, more: str = "") -> bytes:
    record = {"partition": 0, "offset": offset, "timestamp": 0, "key": None, "value": None, "more": more}
    return json.dumps(record).encode() + b"\n"


def one_line(size: int) -> Iterator[bytes]:
    yield b'{"more": "'
    yield from (b"x" * MIB for _ in range(size // MIB))


def alike(size: int) -> Iterator[bytes]:
    yield from (b"\x01" * MIB for _ in range(size // MIB))


HOSTILE: Final[dict[str, tuple[str, Callable[[int], Iterator[bytes]], str]]] = {
    "a dump of one line": ("dump.jsonl.gz", one_line, "a line of more than 8 MiB"),
    "a dump of one line of zeros": ("dump.jsonl.zst", zeros, "a line of more than 8 MiB"),
    "a dump of an empty object in a list, again and again": (
        "dump.jsonl.zst",
        lambda size: (b"[" + b"{}," * MIB for _ in range(size // MIB)),
        "a line of more than 8 MiB",
    ),
    "a dump of blank lines": (
        "dump.jsonl.zst",
        lambda size: ((b" " * 8_191 + b"\n") * 128 for _ in range(size // MIB)),
        "unpacks to more than 64 MiB",
    ),
    "a segment of one byte": ("0.log.zst", alike, "unpacks to more than 64 MiB"),
    "a segment of 3 GiB": ("0.log.zst", lambda _: zeros(2_049 * MIB), "unpacks to more than 2 GiB"),
    "Parquet of zeros": ("x.parquet.zst", zeros, "no parquet file: it begins otherwise"),
    "Arrow of zeros": ("x.arrow.gz", zeros, "unpacks to more than"),
}


@pytest.mark.parametrize(("name", "pieces", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_bomb_is_one_line_and_little_memory(
    name: str, pieces: Callable[[int], Iterator[bytes]], said: str, tmp_path: Path
) -> None:
    """Who hands a copied log to an operator makes it unpack to gigabytes: reading it takes at most 250 MiB, ends with
    one line, and leaves nothing behind."""
    file = packed(tmp_path / name, pieces(HUGE))
    assert file.stat().st_size < 5 * MIB

    mib, count, error = measured(file)

    assert (count, len(error.splitlines())) == (0, 1)
    assert said in error
    assert mib < 250


def test_a_dump_of_very_many_records_is_not_taken(tmp_path: Path) -> None:
    """Who hands a dump of 1 MB to an operator fills it with records without content, which in memory would be many
    times what they are in the file: reading ends at 250 times the file's size."""
    file = packed(tmp_path / "dump.jsonl.zst", iter([b"".join([line(7, "x" * 900)] * 1_000)] * 80))
    assert file.stat().st_size < MIB

    mib, _, error = measured(file, "batches")

    assert "over 250 times its size" in error
    assert mib < 250


def test_a_segment_with_room_taken_in_advance_is_read(tmp_path: Path) -> None:
    """A copy of a segment that a broker took room for has a gigabyte of zeros behind its records: they cost neither
    memory nor disk, and the records are read."""
    records = [RawRecord(state_partition=3, offset=at, timestamp_ms=1, key=b"k", value=b"v") for at in range(3)]
    content = segment_file(tmp_path, batch(records)).read_bytes()
    folder = tmp_path / "__share_group_state-3"
    folder.mkdir(exist_ok=True)
    file = packed(folder / "0.log.zst", iter((content, *zeros(HUGE))))
    assert file.stat().st_size < MIB

    mib, count, error = measured(file)

    assert (count, error) == (3, "")
    assert mib < 100
    with unpacking.open_file(file) as raw:
        found = os.fstat(raw.fileno())
    assert found.st_blocks * 512 < 10 * MIB < HUGE < found.st_size


@pytest.mark.parametrize("column", ["value", "rows"])
def test_parquet_that_stands_for_gigabytes_is_not_read(column: str, tmp_path: Path) -> None:
    """Who hands a Parquet file to an operator has values, or rows, in it that Arrow would make gigabytes of."""
    file = tmp_path / "x.parquet"
    count = 30 if column == "value" else 30_000_000
    value = pa.array([bytes(10 * MIB)] * 30, pa.binary()) if column == "value" else pa.nulls(count, pa.binary())
    ones = pa.array(np.ones(count, np.int64))
    key = pa.nulls(count, pa.binary())
    columns = {"partition": ones, "offset": ones, "timestamp": ones, "key": key, "value": value}
    pq.write_table(pa.table(columns), file, compression="zstd", use_dictionary=column == "rows")
    assert file.stat().st_size < MIB

    mib, found, error = measured(file, "batches")

    assert found == 0
    assert "unpack to more than 64 MiB" in error if column == "value" else f"{count} rows in" in error
    assert mib < 150


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("is_dictionary", [True, False])
def test_arrow_that_stands_for_gigabytes_is_not_read(is_file: bool, is_dictionary: bool, tmp_path: Path) -> None:
    """Who hands an Arrow file or stream to an operator has a buffer in it that Arrow would make hundreds of MB of, in
    the rows or in a dictionary; with an honest one nothing is lost."""
    for count, size in ((30, 10 * MIB), (30, 100)):
        values = pa.array([bytes(size)] * count, pa.binary())
        if is_dictionary:
            values = pa.DictionaryArray.from_arrays(pa.array(range(count), pa.int32()), values)
        ones = pa.array(np.ones(count, np.int64))
        columns = {"partition": ones, "offset": ones, "timestamp": ones, "key": pa.nulls(count, pa.binary())}
        rows = pa.record_batch({**columns, "value": values})
        file = tmp_path / f"{size}.arrow"
        make = pa.ipc.new_file if is_file else pa.ipc.new_stream
        with make(str(file), rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
            out.write_batch(rows)

        mib, found, error = measured(file, "batches")

        assert (found, error) == (30, "") if size == 100 else found == 0
        assert size == 100 or "unpack to more than 64 MiB" in error
        assert mib < 150


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_a_batch_unpacks_to_no_more_than_a_batch_has(codec: Compression) -> None:
    """Who can write to a topic that is read, or hands over a segment, has one batch of some kB stand for hundreds of
    MB: it becomes a row with this reason, and is not unpacked."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, codec.name.lower()) as stream:
        for piece in zeros(200 * MIB):
            stream.write(piece)

    with pytest.raises(MalformedRecord, match="bytes unpacked"):
        unpacked(codec, out.getvalue().to_pybytes())


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_an_honest_batch_is_unpacked(codec: str) -> None:
    """Thirty MB of the same byte are no attack."""
    (code, compress), body = COMPRESSORS[codec], bytes(30 * MIB)

    assert unpacked(Compression(code), compress(body)) == body


def test_an_honest_dump_is_read_as_before(tmp_path: Path) -> None:
    """A line may have 8 MiB, a dump any number of lines, and blank ones, with every end of a line."""
    records = [RawRecord(state_partition=0, offset=at, timestamp_ms=0, key=b"k", value=b"v" * 90) for at in range(999)]
    plain = write_dump(records, tmp_path / "dump.jsonl")
    text = plain.read_bytes().replace(b"\n", b"\r\n\r\n") + line(999, "x" * (copied_files._LONGEST_LINE - 200))
    plain.write_bytes(text)
    last = RawRecord(state_partition=0, offset=999, timestamp_ms=0, key=None, value=None)

    assert [*read_file(plain, ReadReport())] == [*records, last]
    plain.write_bytes(text + line(1_000, "x" * copied_files._LONGEST_LINE))
    with pytest.raises(MalformedFile, match=r"line 2000: a line of more than 8 MiB"):
        [*raw_batches(plain, ReadReport())]
