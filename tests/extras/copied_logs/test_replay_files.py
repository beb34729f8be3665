"""``acktrail record decode`` and ``replay`` on files of every release's dialect, at any moment; the sweep gives what
the plain fold gives, or nothing."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, loaded, run
from drivers.own_process import finished
from extras.copied_logs.dialect_dumps import KEY, ODD, ODD_KEY, as_log, dump, snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.dump_lines import dump_line, write_dump
from samples.golden_vectors import wire
from samples.random_records import keys, records
from state_topics.segment_bytes import batch, segment_file

from acktrail.errors import InputError
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import Tombstone
from acktrail.model.replay import replay
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs import copied_log_commands as command
from acktrail_copied_logs.dialects import KAFKA_4_2, RELEASED, Policy, state_json
from acktrail_copied_logs.log_segment import ReadReport
from acktrail_copied_logs.replay_files import LogCut, parse_log_point, replay_records, replay_sorted, up_to

GOLDEN = Path(__file__).parents[2] / "support/golden/state_topic/4.2.1.jsonl.gz"
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.lists(records(), max_size=6))
def test_released_records_are_replayed_as_by_a_broker(found: list[Any]) -> None:
    """Policy broker is the plain fold, ordered by its keys."""
    replayed = replay_records(KAFKA_4_2, as_log(found), Policy.BROKER, audited=False)

    assert replayed.states == [state_json(state) for _, state in sorted(replay(found).items())]
    assert (replayed.findings, replayed.differences) == ((), ())


@pytest.mark.parametrize("policy", list(Policy))
def test_any_moment(policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--at an offset or a time equals the replay of a dump that ends there."""
    replayed = partial(run, capsys, "record", "replay", "--policy", policy.value)
    whole = dump(tmp_path / "log.jsonl", KAFKA_4_2.encode, ODD)
    for end in range(1, len(ODD) + 1):
        part = replayed(dump(tmp_path / "part.jsonl", KAFKA_4_2.encode, ODD[:end]))
        for moment in (f"0:{end - 1}", f"1970-01-01T00:00:00.{10 * (end - 1):03d}Z"):
            then = replayed(whole, "--at", moment)
            assert then.stdout == part.stdout, moment
            assert f"{len(ODD) - end} later records left out" in then.stderr


def test_the_dialect_is_found_and_never_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-45: a dump of 4.0 is read as 4.0, one of 4.1 or 4.2 as 4.2; two dialects in one call are refused,
    unless one is named; there is no other name."""
    old = replace(snapshot(3, 10), create_timestamp_ms=None, write_timestamp_ms=None, delivery_complete_count=None)
    four = dump(tmp_path / "4.0.jsonl", RELEASED["4.0"].encode, as_log([old, Tombstone(key=ODD_KEY)]))
    later = dump(tmp_path / "4.2.jsonl", RELEASED["4.2"].encode, as_log([snapshot(3, 10)]))

    assert run(capsys, "record", "replay", four).rows[0]["start_offset"] == 10
    assert run(capsys, "record", "replay", four).rows == run(capsys, "record", "replay", four, "--dialect", "4.0").rows
    assert (
        run(capsys, "record", "replay", later).rows == run(capsys, "record", "replay", later, "--dialect", "4.4").rows
    )
    line = run(capsys, "record", "decode", four, later).complaint(3)
    assert "of two dialects, 4.0 and 4.2" in line
    wrong = run(capsys, "record", "decode", later, "--dialect", "4.0").rows
    assert wrong[0]["decode_status"] == "malformed_value"
    assert "'4.2'" in run(capsys, "record", "decode", later, "--dialect", "4.22").complaint(2)


def test_tombstones_alone_need_no_dialect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty dump, tombstones and damage alone are read: every shipped dialect says the same of them."""
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    damaged = tmp_path / "damaged.jsonl"
    raw = RawRecord(state_partition=0, offset=0, timestamp_ms=0, key=wire("W-4x-update-key"), value=b"\x00\x00\x01")
    damaged.write_text(dump_line(raw) + "\n")

    assert run(capsys, "record", "decode", empty).rows == []
    tombstone = dump(tmp_path / "gone.jsonl", RELEASED["4.2"].encode, as_log([Tombstone(key=KEY)]))
    assert [row["type"] for row in run(capsys, "record", "decode", tombstone).rows] == ["tombstone"]
    assert [row["decode_status"] for row in run(capsys, "record", "decode", damaged).rows] == ["malformed_value"]


@st.composite
def sweepable_logs(draw: st.DrawFn) -> list[RawRecord]:
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
@given(sweepable_logs())
def test_the_same_as_record_by_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[RawRecord]
) -> None:
    """Of a log in order the command prints the same states and the same counts both ways."""
    file = write_dump(found, tmp_path / "a.jsonl")

    assert replay_sorted([file], ReadReport()) is not None
    assert run(capsys, "record", "replay", file, "--dialect", "4.2") == folded(capsys, file)


@in_one_folder
@given(sweepable_logs(), st.data())
def test_any_other_order_is_left_to_the_fold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: list[RawRecord], data: st.DataObject
) -> None:
    """Records out of order, twice, or spread over files: swept to the same states, or not at all. They replay as the
    log does, and are decoded as they stand."""
    shuffled = data.draw(st.permutations([*found, *data.draw(st.lists(st.sampled_from(found or [None]), max_size=2))]))
    lines = [record for record in shuffled if record is not None]
    cut = data.draw(st.integers(0, len(lines)))
    files = [write_dump(lines[:cut], tmp_path / "a.jsonl"), write_dump(lines[cut:], tmp_path / "b.jsonl")]

    swept = replay_sorted(files, ReadReport())

    states = folded(capsys, *files).rows
    assert swept is None or list(swept[0].states) == states
    assert states == folded(capsys, write_dump(found, tmp_path / "log.jsonl")).rows
    decoded = run(capsys, "record", "decode", *files, "--dialect", "4.2").rows
    assert [row["offset"] for row in decoded] == [record.offset for record in lines]


ANY_KEY, ANY_VALUE = b"\x00\x00\x00\x01g" + bytes(20), b"\x00\x00" + bytes(36) + b"\x01\x00"


def test_one_key_in_two_state_partitions_is_left_to_the_fold(tmp_path: Path) -> None:
    """A share partition in two state partitions is two states for the sweep, and one for the fold."""
    found = [RawRecord(state_partition=p, offset=5, timestamp_ms=0, key=ANY_KEY, value=ANY_VALUE) for p in (0, 1)]

    assert replay_sorted([write_dump(found[:1], tmp_path / "a.jsonl")], ReadReport()) is not None
    assert replay_sorted([write_dump(found, tmp_path / "a.jsonl")], ReadReport()) is None


def test_two_logs_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two different records at one address are refused, whether their keys differ or their values."""
    one = RawRecord(state_partition=3, offset=5, timestamp_ms=0, key=ANY_KEY, value=ANY_VALUE)
    for other in (replace(one, value=ANY_VALUE[:-3] + b"\x01\x01\x00"), replace(one, key=ANY_KEY[:-1] + b"\x01")):
        line = run(capsys, "record", "replay", write_dump([one, other], tmp_path / "a.jsonl")).complaint(2)
        assert "two different records at state partition 3, offset 5" in line


def test_damage_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever way a segment is replayed, its damage is said and counted once."""
    found = [RawRecord(state_partition=3, offset=o, timestamp_ms=0, key=ANY_KEY, value=ANY_VALUE) for o in range(3)]
    parts = [batch([record]) for record in found]
    file = segment_file(tmp_path, parts[0], parts[1][:-1], b"\x99", parts[2])
    again = write_dump(found[:1], tmp_path / "again.jsonl")
    said = [folded(capsys, file), *(run(capsys, "record", "replay", file, *more) for more in ([], [again]))]

    assert said[0] == said[1]
    assert said[2].stdout == said[0].stdout
    assert [done.stderr.count("corrupt batch") for done in said] == [1, 1, 1]
    assert said[0].stderr.endswith("3 read, 2 replayed, 1 not readable\n")


@st.composite
def timed_logs(draw: st.DrawFn) -> list[RawRecord]:
    """Records of up to three state partitions in log order; a new leader's clock may be behind."""
    found = []
    for partition in draw(st.sets(st.integers(0, 5), min_size=1, max_size=3)):
        offset = draw(st.integers(0, 5))
        for _ in range(draw(st.integers(1, 8))):
            found.append(
                RawRecord(
                    state_partition=partition,
                    offset=offset,
                    timestamp_ms=draw(st.integers(0, 20)),
                    key=None,
                    value=None,
                )
            )
            offset += draw(st.integers(1, 3))
    return sorted(found, key=lambda r: (r.state_partition, r.offset))


def of(records: list[RawRecord], partition: int) -> list[RawRecord]:
    return [record for record in records if record.state_partition == partition]


@given(timed_logs(), st.data())
def test_offsets_take_a_prefix_of_each_named_partition(records: list[RawRecord], data: st.DataObject) -> None:
    """Of a named state partition exactly the records up to and with its offset, of others none; all are counted."""
    there = sorted({record.state_partition for record in records})
    named = data.draw(st.sets(st.sampled_from(there), min_size=1))
    offsets = {partition: data.draw(st.integers(0, 30)) for partition in named}
    cut = LogCut()

    taken = list(up_to(records, offsets, cut))

    assert taken == [r for r in records if r.offset <= offsets.get(r.state_partition, -1)]
    assert cut.last_offsets == {p: of(taken, p)[-1].offset for p in there if of(taken, p)}
    assert len(taken) + cut.later + sum(cut.unnamed.values()) == len(records)


@given(timed_logs(), st.integers(-1, 21))
def test_a_time_takes_what_lay_before_the_first_later_record(records: list[RawRecord], time: int) -> None:
    """Each state partition is cut before its first record with a later timestamp, whatever comes behind it."""
    cut = LogCut()

    taken = list(up_to(records, time, cut))

    for partition in {record.state_partition for record in records}:
        own, rest = of(taken, partition), of(records, partition)
        assert own == rest[: len(own)]
        assert all(record.timestamp_ms <= time for record in own)
        assert len(own) == len(rest) or rest[len(own)].timestamp_ms > time
    assert len(taken) + cut.later == len(records)


def test_what_the_files_cannot_tell_is_refused() -> None:
    """A state partition without a record, and a time for a record without timestamp."""
    record = RawRecord(state_partition=3, offset=7, timestamp_ms=-1, key=None, value=None)

    with pytest.raises(InputError, match="state partition 5"):
        list(up_to([record], {3: 7, 5: 0}, LogCut()))
    with pytest.raises(InputError, match="offset 7 has no timestamp"):
        list(up_to([record], 5, LogCut()))


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_offsets_as_text(offsets: dict[int, int]) -> None:
    """Pairs are read as they are written, spaces or not."""
    pairs = [f"{partition}:{offset}" for partition, offset in offsets.items()]

    assert parse_log_point(",".join(pairs)) == offsets
    assert parse_log_point(" , ".join(pairs)) == offsets


@given(st.integers(100_000_000_000_000, 7_000_000_000_000_000), st.integers(-14 * 60, 14 * 60))
def test_times_as_text(microseconds: int, shift: int) -> None:
    """A time with its offset from UTC is that instant, and so is a number of ms; what is below a ms is cut off."""
    zone = dt.timezone(dt.timedelta(minutes=shift))
    time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)

    assert parse_log_point(time.astimezone(zone).isoformat()) == microseconds // 1_000
    assert parse_log_point(str(microseconds // 1_000)) == microseconds // 1_000


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is not a moment"),
        ("0", "an offset needs its state partition"),
        ("99999999999", "an offset needs its state partition"),
        ("yesterday", "is not a moment"),
        ("2026-08-01T12:00:00", "no time zone"),
        ("2026-08-01", "no time zone"),
        ("2026-13-01T12:00:00Z", "is not a moment"),
        ("-5", "is not a moment"),
        ("3:", "is not a moment"),
        ("3:4,,5:6", "is not a moment"),
        ("3:4,3:5", "two offsets"),
        ("9223372036854775808", "out of range"),
        ("0:9223372036854775808", "out of range"),
        ("\u0663:\u0664", "is not a moment"),
        ("3:-1", "is not a moment"),
    ],
)
def test_no_moment(text: str, part: str) -> None:
    """What is is not a moment is refused with a reason."""
    with pytest.raises(InputError, match=part):
        parse_log_point(text)


def test_replay_prints_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a live share partition, with exactly the fields of the offline contract."""
    named = replace(KEY, group_id=GroupId("böse 'gruppe'"))
    log = as_log((replace(snapshot(3, 12), key=named), snapshot(1, 1), Tombstone(key=KEY)))
    done = run(capsys, "record", "replay", dump(tmp_path / "d.jsonl", KAFKA_4_2.encode, log))

    assert "böse" in done.stdout, "letters of any language are printed as they are"
    assert done.answer == {
        "group": "böse 'gruppe'",
        "topic_id": KEY.topic_id,
        "partition": 0,
        "state_epoch": 1,
        "snapshot_epoch": 3,
        "leader_epoch": 1,
        "start_offset": 12,
        "first_unfinished_offset": 12,
        "end_offset": 12,
        "delivery_complete_count": 0,
        "batches": [],
    }


def test_a_closed_pipe_is_no_error() -> None:
    """`acktrail record decode ... | head -1` ends quietly."""
    acktrail = Path(sys.executable).with_name("acktrail")
    done = finished("sh", "-c", f"{acktrail} record decode {GOLDEN} | head -n 1")

    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_copied_records_are_read_without_pandas() -> None:
    """Neither what is read of files nor what comes of it needs it."""
    codes, modules = loaded(f"record decode {GOLDEN}", f"record replay {GOLDEN}")
    assert (codes, modules & {"pyarrow", "pandas"}) == ([0, 0], {"pyarrow"})
