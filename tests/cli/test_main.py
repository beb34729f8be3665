"""The command line as a person and a program meet it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from drivers.command_line import run
from samples.dump_lines import dump_line

from acktrail.branches import load
from acktrail.cli import main as command_line
from acktrail.format.wire.dialects import encode
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import ShareSnapshot, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

ACKTRAIL = Path(sys.executable).with_name("acktrail")
TOPIC_ID = TopicId("AQIDBAUGBwgJCgsMDQ4PEA")


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


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that is registered can be loaded and is listed with a line of help. None prints a script of its own
    for completion: it would complete nothing."""
    for path in command_line.CommandGroup.targets():
        *group, name = path.split(".")
        assert f"\n  {name} " in run(capsys, *group, "--help").stdout, path
        helped = run(capsys, *group, name, "--help")
        assert (helped.code, "completion" in helped.stdout) == (0, False), path


def test_a_command_that_is_a_function_has_its_options_from_one_hand() -> None:
    """Whoever loads it spreads its classes of options; the function itself is as it was written."""
    loaded = {path: load(target) for path, target in command_line.CommandGroup.targets().items()}
    assert [path for path, found in loaded.items() if hasattr(found, "__wrapped__")] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"],
        ["bogus"],
        ["record", "decode"],
        ["record", "decode", "--bogus"],
        ["record", "replay", "x.jsonl", "--policy", "mine"],
        ["record", "decode", "/no/such.jsonl"],
        ["record", "replay", "/"],
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong call ends with exit code 2 and one line on stderr that names the help."""
    said = run(capsys, *arguments).complaint(2)
    assert "--help" in said or arguments[-1] in said


def test_a_file_of_something_else_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A foreign or cut-off file is named, without a traceback."""
    (cut := tmp_path / "cut.jsonl").write_text('{"partition":0,"off')
    (foreign := tmp_path / "a.png").write_bytes(b"\x89PNG")
    for file in (cut, foreign):
        for command in ("decode", "replay"):
            assert str(file) in run(capsys, "record", command, file).complaint(2)


def test_replay_prints_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a live share partition, with exactly the fields of the offline contract."""
    gone = snapshot("gone", 1)
    file = write_dump(tmp_path / "d.jsonl", snapshot("böse 'gruppe'", 12), gone, Tombstone(key=gone.key))

    assert run(capsys, "record", "replay", file).answer == {
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
    """Neither the help, that of a validation included, nor an offline command imports an engine, a client or a table
    library."""
    code = (
        "import sys\n"
        "from acktrail.cli.main import _run\n"
        "assert _run(['--help']) == _run(['run', 'validate', '--help']) == 0\n"
        "heavy = {'pyspark', 'great_expectations', 'deltalake', 'pyarrow', 'kafka', 'confluent_kafka', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stderr.strip() == "[]"
