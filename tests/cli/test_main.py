"""The command line as a person and a program meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples.dump_lines import dump_line

from acktrail.cli import main as command_line
from acktrail.format.wire.dialects.released import encode
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import ShareSnapshot, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

ACKTRAIL = Path(sys.executable).with_name("acktrail")
TOPIC_ID = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")


def acktrail(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ACKTRAIL), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )


def write_dump(path: Path, *records: ShareSnapshot | Tombstone) -> Path:
    lines = []
    for offset, record in enumerate(records):
        key, value = encode(record)
        lines.append(dump_line(RawRecord(state_partition=3, offset=offset, timestamp_ms=9, key=key, value=value)))
    lines.append(dump_line(RawRecord(state_partition=3, offset=len(records), timestamp_ms=9, key=b"\x00", value=b"")))
    path.write_text("\n".join(lines) + "\n")
    return path


def snapshot(group: str, start: int | None) -> ShareSnapshot:
    return ShareSnapshot(
        key=SharePartition(group_id=GroupId(group), topic_id=TOPIC_ID, partition=7),
        snapshot_epoch=3,
        state_epoch=4,
        leader_epoch=5,
        start_offset=start,
        delivery_complete_count=None,
        create_timestamp_ms=1,
        write_timestamp_ms=2,
        batches=(),
    )


def test_help_names_every_command() -> None:
    """Every command that is registered can be loaded and is listed with a line of help."""
    shown = acktrail("--help")

    assert shown.returncode == 0
    for path in command_line.CommandGroup.targets():
        *group, name = path.split(".")
        assert f"\n  {name} " in acktrail(*group, "--help").stdout, path
        assert acktrail(*group, name, "--help").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"],
        ["bogus"],
        ["record", "decode"],
        ["record", "decode", "--bogus"],
        ["record", "replay", "x.jsonl", "--policy", "mine"],
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    """A wrong call ends with exit code 2 and one line on stderr that names the help."""
    done = acktrail(*arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "--help" in done.stderr


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    """A missing, foreign or cut-off file ends with one line, exit code 2 and no traceback."""
    cut = tmp_path / "cut.jsonl"
    cut.write_text('{"partition":0,"off')
    foreign = tmp_path / "a.png"
    foreign.write_bytes(b"\x89PNG")
    for file in (tmp_path / "none.jsonl", cut, foreign, tmp_path):
        for command in ("decode", "replay"):
            done = acktrail("record", command, file)
            assert done.returncode == 2, (command, file, done.stderr)
            assert len(done.stderr.splitlines()) == 1
            assert str(file) in done.stderr


def test_decode_keeps_what_it_cannot_read(tmp_path: Path) -> None:
    """Every record of the dump is a line on stdout; the unreadable one says why; the counts add up on stderr."""
    file = write_dump(tmp_path / "d.jsonl", snapshot("g", None), Tombstone(key=snapshot("g", None).key))

    done = acktrail("record", "decode", file)
    rows = [json.loads(line) for line in done.stdout.splitlines()]

    assert [row["decode_status"] for row in rows] == ["decoded", "decoded", "malformed_key"]
    assert [row.get("type") for row in rows] == ["snapshot", "tombstone", None]
    assert rows[0]["start_offset"] == -1
    assert "byte" in rows[2]["decode_error"]
    assert done.stderr.strip() == "3 read, 2 decoded, 1 not readable"


def test_replay_prints_the_contract(tmp_path: Path) -> None:
    """One JSON object a live share partition, with exactly the fields of the offline contract."""
    gone = snapshot("gone", 1)
    file = write_dump(tmp_path / "d.jsonl", snapshot("böse 'gruppe'", 12), gone, Tombstone(key=gone.key))

    done = acktrail("record", "replay", file)
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]

    assert row == {
        "group": "böse 'gruppe'",
        "topic_id": TOPIC_ID,
        "partition": 7,
        "state_epoch": 4,
        "snapshot_epoch": 3,
        "leader_epoch": 5,
        "start_offset": 12,
        "delivery_complete_count": None,
        "batches": [],
    }


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """`acktrail record decode ... | head -1` ends quietly."""
    file = write_dump(tmp_path / "d.jsonl", *[snapshot(f"g{n}", n) for n in range(3_000)])

    done = subprocess.run(
        f"{ACKTRAIL} record decode {file} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_start_loads_nothing_heavy() -> None:
    """Neither the help nor an offline command imports an engine, a client or a table library."""
    code = (
        "import sys\n"
        "sys.argv = ['acktrail', '--help']\n"
        "from acktrail.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyspark', 'great_expectations', 'deltalake', 'pyarrow', 'kafka', 'confluent_kafka', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stderr.strip() == "[]"
