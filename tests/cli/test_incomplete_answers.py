"""Counts after a gap or an unreadable record: never smaller than the truth without saying so. What the history no
longer has: an answer names it, and never passes for the whole. On any log commands answer, and agree on what is not
known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs.world import WRITTEN_MS, Topic, World, batch, key_of, snapshot, topic_id, update
from samples.coordinator_random_logs import coordinator_logs
from samples.history_tables import build

from acktrail.history.history_reader import HistoryReader
from acktrail.model.offset_changes import UnknownReason
from acktrail.model.records import StateRecord, Tombstone
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, maintain
from acktrail.times import instant_text

KEY = key_of("g")
FOR_EVER = "36500d"
DROPPED_KEY = key_of("fraud", 2)
KEEP_MS = 1_000
AT_ONCE = MaintenancePolicy(keep_ms=KEEP_MS, vacuum_after_ms=0)


def world_with(folder: Path, *, gap: bool = False, unreadable: bool = False) -> World:
    """Archived: 5 before, 6 and 7 within the gap or by the unreadable record, 20 after it."""
    found = World(folder / "tables", state_partitions=1)
    found.write(snapshot(KEY, 0, snapshot_epoch=0), update(KEY, 0, 0, (batch(5, 5, 4, 5),)))
    found.export("r1")
    if unreadable:
        found.damage(KEY)
    else:
        found.write(update(KEY, 0, 0, (batch(6, 7, 4, 5),)))
    found.write(update(KEY, 10, 0, ()), snapshot(KEY, 10), update(KEY, 10, 0, (batch(20, 20, 4, 5),)))
    found.export("r2", lost={0: 3} if gap else None)
    build(found.tables)
    return found


def asked(world: World, capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    return run(capsys, *arguments, "--tables", world.config.uri)


def test_a_whole_history_gives_exact_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No "at least", nothing missing."""
    world = world_with(tmp_path)
    found = asked(world, capsys, "record", "archived", "g", "--json").answer
    assert (found["records"], found["at_least"], found["completeness"]["missing"]) == (4, False, [])
    (row,) = asked(world, capsys, "record", "rates", "g", "--every", FOR_EVER, "--json").answer["rates"]
    assert (row["counts"]["archived"], row["counts"]["undated"], row["at_least"]) == (4, 0, False)
    assert "at least" not in asked(world, capsys, "record", "archived", "g").stdout
    assert "at least" not in asked(world, capsys, "record", "rates", "g").stdout


@pytest.mark.parametrize("reason", ["gap", "unreadable"])
def test_counts_are_least_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str) -> None:
    """2 of 4 archived records are known: "at least 2", with the state records that are missing. How many got a state at
    an unknown time is not known, and not 0. After a record that shows the whole state again the list is complete."""
    world = world_with(tmp_path, **{reason: True})
    found = asked(world, capsys, "record", "archived", "g", "--json").answer
    assert (found["records"], found["at_least"]) == (2, True)
    (missing,) = found["completeness"]["missing"]
    assert (missing["reason"], missing["first_record"], missing["last_record"]) == (reason, 2, 2)
    assert (missing["until"]["offset"], missing["share_partitions"]) == (4, 1)
    text = asked(world, capsys, "record", "archived", "g").stdout
    assert text.startswith("group g: at least 2 records archived\n")
    assert "state record 0:2" in text
    (row,) = asked(world, capsys, "record", "rates", "g", "--every", FOR_EVER, "--json").answer["rates"]
    assert (row["counts"]["archived"], row["counts"]["undated"], row["at_least"]) == (2, None, True)
    assert row["per_second"]["undated"] is None
    lines = asked(world, capsys, "record", "rates", "g").stdout.splitlines()
    assert lines[1].endswith("at least")
    assert any("state record 0:2" in line for line in lines)
    found = asked(world, capsys, "record", "archived", "g", "--since", str(WRITTEN_MS + 5), "--json").answer
    assert (found["records"], found["at_least"]) == (1, False)


def test_a_record_beside_a_gap_with_nothing_behind_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record's fate names the gap although no state record has come after it."""
    world = world_with(tmp_path)
    world.write(update(KEY, 30, 0, ()))
    world.export("r3", lost={0: 7})
    done = asked(world, capsys, "record", "show", "g", KEY.topic_id, "0", "20")
    assert "state record 0:6, from" in done.stdout
    found = asked(world, capsys, "record", "show", "g", KEY.topic_id, "0", "20", "--json").answer
    assert [each["reason"] for each in found["completeness"]["missing"]] == ["gap"]


@settings(max_examples=5)
@given(coordinator_logs(), st.integers(1, 12), st.integers(1, 4))
def test_what_is_not_marked_is_true(
    tmp_path_factory: pytest.TempPathFactory, log: list[StateRecord], first: int, length: int
) -> None:
    """Any loss: intervals that are not marked count what a whole export counts."""
    folder = tmp_path_factory.mktemp("lives")
    whole, torn = (World(folder / name, state_partitions=1) for name in ("whole", "torn"))
    for world in (whole, torn):
        for number, record in enumerate(log):
            if number == first:
                world.export("r1")
            world.write(record, on=0)
        lost = {0: min(first + length, len(log))} if world is torn and first < len(log) else None
        world.export("r2", lost=lost)
        build(world.tables)
    truth, found = (_archived_by_ms(world) for world in (whole, torn))
    completeness = HistoryReader(torn.tables).completeness()
    for key, at_ms in truth.keys() | found.keys():
        if completeness.of(key).within(at_ms, at_ms + 1).is_complete:
            assert found.get((key, at_ms)) == truth.get((key, at_ms))
    for key in {key for key, _ in truth}:
        if completeness.of(key).is_complete:
            assert _total(found, key) == _total(truth, key)


def _archived_by_ms(world: World) -> dict[tuple[Any, int], int]:
    from acktrail.format.columns.record_columns import share_partition_of

    rows = HistoryReader(world.tables).rates(1).to_pylist()
    return {(share_partition_of(row), row["interval_start_ms"]): row["archived"] for row in rows if row["archived"]}


def _total(counts: dict[tuple[Any, int], int], key: Any) -> int:
    return sum(number for (own, _), number in counts.items() if own == key)


class CountedWorld(World):
    """Its ranges have every count, as an exporter's."""

    def _range(self, *arguments: Any) -> dict[str, Any]:
        found = super()._range(*arguments)
        return {**found, "records_decoded": found["records_read"], "records_quarantined": 0}


@pytest.fixture
def kept(tmp_path: Path) -> World:
    """Eight records of one share partition, a ms apart: 0 creates it, 1 to 5 acknowledge its offsets one by one, 5
    archives offset 7 as well, 6 is a snapshot that starts at 3, 7 acknowledges offset 9."""
    found = CountedWorld(tmp_path / "tables", state_partitions=1)
    found.topics[topic_id(2)] = Topic(name="payments", partitions={0: (0, 50)})
    found.write(snapshot(DROPPED_KEY, 0, snapshot_epoch=0))
    for offset in range(4):
        found.write(update(DROPPED_KEY, 0, 0, (batch(offset, offset, 2, 1),)))
    found.write(update(DROPPED_KEY, 0, 0, (batch(4, 4, 2, 1), batch(7, 7, 4, 5))))
    found.write(snapshot(DROPPED_KEY, 3, (batch(3, 4, 2, 1), batch(7, 7, 4, 5))))
    found.write(update(DROPPED_KEY, 3, 0, (batch(9, 9, 2, 1),)))
    found.observe("r1")
    return found


def drop(kept: World, before: int) -> None:
    """Drop what is older than state record `before`."""
    maintain(kept.config, AT_ONCE, now_ms=WRITTEN_MS + before + KEEP_MS)


def told(kept: World, capsys: pytest.CaptureFixture[str], *arguments: str | int) -> dict[str, Any]:
    return asked(kept, capsys, *map(str, arguments), "--json").answer


def life(kept: World, capsys: pytest.CaptureFixture[str], offset: int) -> dict[str, Any]:
    (found,) = told(kept, capsys, "record", "show", "fraud", "payments", 0, offset)["lives"]
    return dict(found)


def reasons(of: dict[str, Any]) -> list[str]:
    return [each["reason"] for each in of["not_known"]]


DROPPED: list[tuple[int, tuple[str, str | None], str]] = [
    (0, ("below_start", None), "below the start offset"),  # acknowledged, dropped; passed, kept
    (4, ("recorded", "acknowledged"), "acknowledged, delivery count 1"),  # all its changes are dropped
    (7, ("recorded", "archived"), "archived, delivery count 5"),
    (9, ("recorded", "acknowledged"), "acknowledged, delivery count 1, since state record 0:7"),
    (20, ("unrecorded", None), "nothing recorded; what happened before"),
]
"""Offsets of records, their status and what is concluded."""


def test_records_whose_history_was_dropped(kept: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has the status that it had before the maintenance, and the time before which changes are not kept; it is
    neither "never seen" nor "never in scope"."""
    build(kept.tables)
    before = {offset: life(kept, capsys, offset)["intervals"] for offset, _, _ in DROPPED}
    drop(kept, 6)
    for offset, status, conclusion in DROPPED:
        found = life(kept, capsys, offset)
        (then,) = (each for each in before[offset] if each["until"] is None)
        now = found["intervals"][-1]
        assert (now["standing"], now["delivery_state"]) == status == (then["standing"], then["delivery_state"])
        assert conclusion in found["conclusion"]
        assert reasons(found)[:2] == [UnknownReason.DELIVERIES, UnknownReason.DROPPED]
        assert {UnknownReason.NEVER_IN_SCOPE, UnknownReason.EARLIER}.isdisjoint(reasons(found))
        assert found["not_known"][1]["before"] == instant_text(WRITTEN_MS + 6)
    text = asked(kept, capsys, "record", "show", "fraud", "payments", "0", "4").stdout
    assert f"anything before {instant_text(WRITTEN_MS + 6)}: older changes are not kept" in text


def test_counts_without_old_changes_are_at_least(kept: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A list or a rate that begins before that time is a lower bound and says so; one that begins later is exact."""
    build(kept.tables)
    assert told(kept, capsys, "record", "archived", "fraud")["at_least"] is False
    drop(kept, 6)
    found = told(kept, capsys, "record", "archived", "fraud")
    assert (found["records"], found["at_least"]) == (0, True)
    assert found["completeness"]["kept_from"] == instant_text(WRITTEN_MS + 6)
    assert told(kept, capsys, "record", "archived", "fraud", "--since", WRITTEN_MS + 6)["at_least"] is False
    (rate,) = told(kept, capsys, "record", "rates", "fraud")["rates"]
    assert (rate["counts"]["acknowledged"], rate["at_least"]) == (1, True)
    (rate,) = told(kept, capsys, "record", "rates", "fraud", "--every", "1s", "--since", WRITTEN_MS + 6)["rates"]
    assert rate["counts"]["acknowledged"] == 1


def test_a_history_that_is_built_after_the_records_were_dropped(
    kept: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing at its beginning was exported and is not kept: nobody says that Kafka pruned it, or that the
    export began later."""
    drop(kept, 3)
    build(kept.tables)
    found = life(kept, capsys, 20)
    assert UnknownReason.DROPPED in reasons(found)
    assert {UnknownReason.GAP, UnknownReason.EARLIER}.isdisjoint(reasons(found))
    (missing,) = HistoryReader(kept.tables).completeness("fraud").missing
    assert (missing.reason, missing.first_record, missing.last_record) == (UnknownReason.DROPPED, 0, 2)
    text = asked(kept, capsys, "record", "archived", "fraud").stdout
    assert "state records 0:0 to 0:2" in text
    assert "not kept" in text


def test_records_dropped_before_the_history_had_them(kept: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The history ended before them: they are missing from there on, dropped, also before it is built again."""
    build(kept.tables)
    kept.write(*(update(DROPPED_KEY, 3, 0, (batch(n, n, 2, 1),)) for n in range(10, 14)))
    kept.observe("r2")
    history = shutil.copytree(Path(kept.config.uri, "delivery_history"), Path(kept.config.uri).parent / "history")
    drop(kept, 10)
    shutil.rmtree(Path(kept.config.uri, "delivery_history"))  # only the records' retention is looked at here
    shutil.move(history, Path(kept.config.uri, "delivery_history"))
    for _ in range(2):
        (missing,) = HistoryReader(kept.tables).completeness("fraud").missing
        assert (missing.reason, missing.first_record, missing.last_record) == (UnknownReason.DROPPED, 8, 9)
        build(kept.tables)
    assert reasons(life(kept, capsys, 20)) == ["deliveries", UnknownReason.DROPPED]


OTHER = key_of("g", 1, 1)
UNNAMED = (b"\x00", b"\x00")
"""A record whose key cannot be read."""

Entry = StateRecord | tuple[bytes, bytes] | str
"""A record, one that names no share partition, one that cannot be read otherwise, or an export that loses some."""


def entries(number: int) -> st.SearchStrategy[Entry]:
    key = KEY if number == 0 else OTHER
    starts = st.integers(0, 12)
    batches = st.builds(batch, st.integers(0, 9), st.integers(10, 14), st.sampled_from([0, 2, 4]), st.integers(1, 4))
    few = st.lists(batches, max_size=1).map(tuple)
    return st.one_of(
        st.builds(lambda start, own: update(key, start, 0, own), starts, few),
        st.builds(
            lambda start, own, epoch: snapshot(key, start, own, snapshot_epoch=epoch), starts, few, st.integers(0, 2)
        ),
        st.just(Tombstone(key=key)),
        st.sampled_from([UNNAMED, "damaged", "export", "lost", "built"]),
    )


def write(world: World, entry: Entry) -> None:
    if isinstance(entry, tuple):
        world.write_bytes(0, *entry)
    elif entry == "damaged":
        world.damage(KEY)
    elif entry == "built":
        build(world.tables)
    elif isinstance(entry, str):
        behind = len(world.logs[0]) - world.exported[0]
        world.export(
            f"r{len(world.logs[0])}", lost={0: world.exported[0] + (behind + 1) // 2} if entry == "lost" else None
        )
    else:
        world.write(entry)


def answers(world: World, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Every command that reads; the states that `state` has."""
    found: dict[str, list[dict[str, Any]]] = {}
    for command in (
        "record archived g",
        "record rates g",
        "record dead-letters g",
        "record show g orders 0 5",
        "record state",
    ):
        done = asked(world, capsys, *command.split(), "--json")
        assert done.code in (0, 2), (command, done.stderr)  # 2: nothing is known of the group, or of the partition
        found[command] = done.rows if done.code == 0 else []
        text = asked(world, capsys, *command.split())
        assert text.code == done.code, (command, text.stderr)
    return found["record state"]


@settings(
    max_examples=settings.default.max_examples // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(log=st.lists(st.integers(0, 1).flatmap(entries), min_size=1, max_size=14))
def test_they_answer_on_any_log(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], log: list[Entry]
) -> None:
    """Gaps, damaged keys, unreadable records and tombstones anywhere, updates without a snapshot: every command
    answers, and what `state` calls complete is what the history lacks nothing of now."""
    world = World(tmp_path_factory.mktemp("tables") / "t", state_partitions=1)
    world.write(update(KEY, 3, 0, ()))
    world.export("first")
    for entry in log:
        write(world, entry)
    world.sample("last", "before")
    world.export("last")
    build(world.tables)
    states = answers(world, capsys)
    completeness = HistoryReader(world.tables).completeness("g")
    for state in states:
        key = key_of(state["group"], 1, state["partition"])
        open_now = [each for each in completeness.of(key).missing if each.until is None]
        assert (state["completeness"] == "complete") == (not open_now), (state, open_now)


@pytest.mark.parametrize(
    "log",
    [
        (update(KEY, 100, 0, ()), update(KEY, 50, 0, ())),
        (snapshot(KEY), Tombstone(key=KEY), UNNAMED, update(KEY, 3, 0, (batch(3, 4, 4, 1),))),
        (snapshot(KEY), Tombstone(key=KEY), update(KEY, 3, 0, (batch(3, 4, 4, 1),))),
    ],
    ids=["start goes back", "damaged key of a snapshot", "after a tombstone"],
)
def test_an_update_without_its_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: tuple[Entry, ...]
) -> None:
    """Offsets become unknown by an update alone: commands say that something is missing."""
    world = World(tmp_path / "tables", state_partitions=1)
    for entry in log:
        write(world, entry)
    world.observe("r1")
    build(world.tables)
    assert asked(world, capsys, "record", "state", "--json").answer["at_least"]
    for command in ("record archived g", "record show g orders 0 80"):
        assert not asked(world, capsys, *command.split(), "--json").answer["completeness"]["is_complete"]
        assert "Not known:" in asked(world, capsys, *command.split()).stdout
