"""Record dumps: what is written is read, and what is no dump is refused with its place."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.dump_lines import dump_line

from acktrail.errors import InputError, MalformedFile, UnknownName
from acktrail.format.wire.raw_record import RawRecord
from acktrail.offline.copied_files import in_log_order, read_dump

raw_records = st.builds(
    RawRecord,
    state_partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    key=st.one_of(st.none(), st.binary(max_size=30)),
    value=st.one_of(st.none(), st.binary(max_size=30)),
)


def _plain(path: Path, text: str) -> Path:
    file = path / "dump.jsonl"
    file.write_text(text, encoding="utf-8")
    return file


def _gzip(path: Path, text: str) -> Path:
    file = path / "dump.jsonl.gz"
    file.write_bytes(gzip.compress(text.encode()))
    return file


def _zstd(path: Path, text: str) -> Path:
    file = path / "dump.jsonl.zst"
    with pa.CompressedOutputStream(str(file), "zstd") as stream:
        stream.write(text.encode())
    return file


WRITERS = [_plain, _gzip, _zstd]


@pytest.mark.parametrize("write", WRITERS)
@given(st.lists(raw_records, max_size=8))
def test_round_trip(
    write: Callable[[Path, str], Path], tmp_path_factory: pytest.TempPathFactory, records: list[RawRecord]
) -> None:
    """A dump gives back exactly the records written to it, compressed or not."""
    file = write(tmp_path_factory.mktemp("dump"), "".join(dump_line(r) + "\n" for r in records))

    assert list(read_dump(file)) == records


GOOD = dump_line(RawRecord(state_partition=1, offset=2, timestamp_ms=3, key=b"k", value=None))


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("not json", "not JSON"),
        (GOOD[:-5], "not JSON"),
        ("[1,2]", "not a JSON object"),
        ("{}", "'partition' is no integer"),
        (GOOD.replace("2", '"2"'), "'offset' is no integer"),
        (GOOD.replace(":2,", ":true,"), "'offset' is no integer"),
        (GOOD.replace(":1,", ":99999999999,"), "'partition' is out of range"),
        (GOOD.replace('"aw=="', '"a"'), "'key' is no base64"),
        (GOOD.replace('"aw=="', "7"), "'key' is no base64"),
        (GOOD.replace(',"value":null', ""), "'value' is missing"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, part: str) -> None:
    """A line that is no record stops the reading and says file, line and what is wrong."""
    file = _plain(tmp_path, f"{GOOD}\n{line}\n")

    with pytest.raises(MalformedFile, match=part) as caught:
        list(read_dump(file))

    assert (caught.value.file, caught.value.line) == (str(file), 2)


@pytest.mark.parametrize("write", WRITERS[1:])
def test_a_cut_off_archive_is_refused(write: Callable[[Path, str], Path], tmp_path: Path) -> None:
    """A compressed dump that ends early is an error, never a shorter dump."""
    file = write(tmp_path, (GOOD + "\n") * 2_000)
    file.write_bytes(file.read_bytes()[:-9])

    with pytest.raises(MalformedFile):
        list(read_dump(file))


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


@given(st.lists(raw_records, max_size=12), st.randoms())
def test_log_order(records: list[RawRecord], random: object) -> None:
    """The order in the files does not matter and a record given twice counts once."""
    unique = {(r.state_partition, r.offset): r for r in records}
    shuffled = [*unique.values(), *unique.values()]
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert list(in_log_order(shuffled)) == [unique[address] for address in sorted(unique)]


def test_two_logs_are_not_mixed() -> None:
    """Two different records at one address are refused: they come from different logs."""
    one = RawRecord(state_partition=0, offset=5, timestamp_ms=1, key=b"a", value=None)
    other = RawRecord(state_partition=0, offset=5, timestamp_ms=1, key=b"b", value=None)

    with pytest.raises(InputError, match="offset 5"):
        list(in_log_order([one, other]))
