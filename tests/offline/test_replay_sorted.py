"""Replay of whole files by the sweep: what the plain fold gives, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import Done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.dump_lines import write_dump
from samples.random_records import keys, records
from state_topics.segment_bytes import batch

from acktrail.cli.commands import copied_logs as command
from acktrail.format.wire.dialects import KAFKA_4_2
from acktrail.format.wire.raw_record import RawRecord
from acktrail.offline.log_segment import ReadReport
from acktrail.offline.replay_files import replay_sorted

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def logs(draw: st.DrawFn) -> list[RawRecord]:
    """Few share partitions, each in a state partition of its own; some records damaged, holes in the offsets."""
    owned = draw(st.lists(keys, min_size=1, max_size=3, unique=True))
    found, offset = [], 0
    for _ in range(draw(st.integers(0, 12))):
        home = draw(st.integers(0, len(owned) - 1))
        key, value = KAFKA_4_2.encode(draw(records(st.just(owned[home]))))
        if draw(st.integers(0, 9)) == 0:
            value = (value or b"xyz")[:-3]
        found.append(RawRecord(state_partition=home, offset=offset, timestamp_ms=0, key=key, value=value))
        offset += draw(st.integers(1, 3))
    return found


def folded(capsys: pytest.CaptureFixture[str], *files: Path) -> Done:
    """What the command prints where the sweep gives no answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_replay_sorted", lambda *_: None)
        return run(capsys, "record", "replay", *files, "--dialect", "4.2")


@in_one_folder
@given(logs())
def test_the_same_as_record_by_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[RawRecord]
) -> None:
    """Of a log in order the command prints the same states and the same counts both ways."""
    file = write_dump(found, tmp_path / "a.jsonl")

    assert replay_sorted([file], ReadReport()) is not None
    assert run(capsys, "record", "replay", file, "--dialect", "4.2") == folded(capsys, file)


@in_one_folder
@given(logs(), st.data())
def test_any_other_order_is_left_to_the_fold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[RawRecord], data: st.DataObject
) -> None:
    """Records out of order, twice, or spread over files: swept to the same states, or not at all."""
    shuffled = data.draw(st.permutations([*found, *data.draw(st.lists(st.sampled_from(found or [None]), max_size=2))]))
    lines = [record for record in shuffled if record is not None]
    cut = data.draw(st.integers(0, len(lines)))
    files = [write_dump(lines[:cut], tmp_path / "a.jsonl"), write_dump(lines[cut:], tmp_path / "b.jsonl")]

    swept = replay_sorted(files, ReadReport())

    if swept is not None:
        assert list(swept[0].states) == folded(capsys, *files).rows


def test_one_key_in_two_state_partitions_is_left_to_the_fold(tmp_path: Path) -> None:
    """A share partition in two state partitions is two states for the sweep, and one for the fold."""
    key, value = b"\x00\x00\x00\x01g" + bytes(20), b"\x00\x00" + bytes(36) + b"\x01\x00"
    found = [RawRecord(state_partition=p, offset=5, timestamp_ms=0, key=key, value=value) for p in (0, 1)]

    assert replay_sorted([write_dump(found[:1], tmp_path / "a.jsonl")], ReadReport()) is not None
    assert replay_sorted([write_dump(found, tmp_path / "a.jsonl")], ReadReport()) is None


def test_two_logs_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two different records at one address are refused."""
    key = b"\x00\x00\x00\x01g" + bytes(20)
    found = [
        RawRecord(state_partition=3, offset=5, timestamp_ms=0, key=key, value=b"\x00\x00" + bytes(35) + end)
        for end in (b"\x00\x01\x00", b"\x01\x01\x00")
    ]

    line = run(capsys, "record", "replay", write_dump(found, tmp_path / "a.jsonl")).complaint(2)

    assert "two different records at state partition 3, offset 5" in line


def test_damage_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever way a segment is replayed, its damage is said and counted once."""
    key, value = b"\x00\x00\x00\x01g" + bytes(20), b"\x00\x00" + bytes(36) + b"\x01\x00"
    found = [RawRecord(state_partition=3, offset=o, timestamp_ms=0, key=key, value=value) for o in range(3)]
    folder = tmp_path / "__share_group_state-3"
    folder.mkdir()
    parts = [batch([record]) for record in found]
    (folder / "0.log").write_bytes(parts[0] + parts[1][:-1] + b"\x99" + parts[2])
    again = write_dump(found[:1], tmp_path / "again.jsonl")
    said = [folded(capsys, folder / "0.log"), run(capsys, "record", "replay", folder / "0.log")]
    said.append(run(capsys, "record", "replay", folder / "0.log", again))

    assert said[0] == said[1]
    assert said[2].stdout == said[0].stdout
    assert [done.stderr.count("corrupt batch") for done in said] == [1, 1, 1]
    assert said[0].stderr.endswith("3 read, 2 replayed, 1 not readable\n")
