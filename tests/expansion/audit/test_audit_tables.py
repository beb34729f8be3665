"""What an audit writes stays true when looks are gone, and says what it cannot know."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from expansion.audit.test_random_histories import audited, single_steps
from expansion.support.random_histories import SETTLE as SETTLE_STEPS
from expansion.support.random_histories import STEP_US, TOPIC, exported, random_world
from expansion.support.seen_looks import BEGIN, MINUTE, SETTLE, Looks, applied_rows, audit, put

from acktrail.columnar.model_values import change_table
from acktrail.columnar.schemas.table_schemas import DELIVERY_HISTORY
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, ForeignCluster
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep.retention import drop_rows
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.law.partition_ledger import FenceGap
from acktrail_expansion.law.verdict import NotProven

ASKED = [("t", 2, 4)]


def expanded(group: tuple[str, str] = ("g", "consumer"), new: int | None = 3) -> Looks:
    """From two to four partitions; the group is past both fences before it begins the new ones."""
    rows = Looks()
    rows.look(0, [10, 10], {0: 5, 1: 5}, group=group)
    rows.look(1, [11, 12, 0, 0], {0: 6, 1: 5, 2: None}, group=group)
    rows.look(10, [20, 20, 4, 4], {0: 20, 1: 20, 2: None}, group=group)
    rows.look(11, [21, 21, 8, 8], {0: 21, 1: 21, 2: new}, group=group)
    rows.look(12, [21, 21, 9, 9], {0: 21, 1: 21, 2: 9}, group=group)
    return rows


def contents(config: TablesConfig) -> dict[str, list[dict[str, Any]]]:
    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["event_id"], row.get("partition"), row.get("group_id")

    names = ("partition_expansions", "expansion_fences", "expansion_verdicts")
    return {name: sorted(Tables(config).read(name).to_pylist(), key=place) for name in names}


def ms(at: dt.datetime) -> int:
    return int(at.timestamp() * 1_000)


def test_one_expansion_in_all_tables(tmp_path: Path) -> None:
    """R003-09, R003-01: an expansion, its fences, and what a group did, with the looks that prove it. The same looks
    again change nothing."""
    config = expanded().filled(tmp_path, ASKED)
    summary = audit(config)
    found = contents(config)
    [event] = found["partition_expansions"]

    assert (event["sequence"], event["status"], event["is_single"]) == (1, "settled", True)
    assert (event["run_id"], event["key_mapping"]) == ("run-012.00", "murmur2")
    assert event["settles_at"] - event["first_seen_new_at"] == SETTLE
    assert [(row["fence_low"], row["fence_high"], row["reason"]) for row in found["expansion_fences"]] == [
        (10, 20, None)
    ] * 2
    safe, idle = found["expansion_verdicts"]
    assert (safe["partition"], safe["verdict"], safe["evidence"], safe["source_partition"]) == (2, "safe", "commits", 0)
    assert (safe["source_shown_at"], safe["begun_at"]) == (BEGIN + 10 * MINUTE, BEGIN + 12 * MINUTE)
    assert (idle["partition"], idle["verdict"]) == (3, "safe"), "all is finished, whenever it begins"
    assert (summary.verdicts, summary.expansions, summary.topics) == ({"safe": 2}, 1, 1)
    audit(config)
    assert contents(config) == found


@pytest.mark.parametrize("seed", range(4))
def test_tables_say_what_the_laws_say(tmp_path: Path, seed: int) -> None:
    """The verdicts on a random life are the same from tables with any files as from its rows in memory, where
    all of its state records are in the history."""
    world = random_world(seed)
    rows = Looks(positions=world.positions)
    for each in world.looks:
        at = dt.datetime.fromtimestamp(each["at"] / 1_000_000, dt.UTC)
        minute = (at - BEGIN) / MINUTE
        rows.look(minute, each["ends"], {}, starts=each["starts"], is_gapless=world.is_gapless)
    config = rows.filled(tmp_path, [(TOPIC, *pair) for pair in single_steps(world)])
    tables = Tables(config)
    for changes in exported(world).values():
        own = change_table(changes)
        whole = pa.table({n: own[n] if n in own.column_names else pa.nulls(len(own), t) for n, t in _fields()})
        tables.append("delivery_history", whole.cast(DELIVERY_HISTORY))
    audit(config, KeyMapping.CRC32, settle=dt.timedelta(microseconds=SETTLE_STEPS * STEP_US))
    _, expected = audited(world, {})

    def said(every: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        names = (
            "event_id",
            "group_id",
            "partition",
            "verdict",
            "reason",
            "source_partition",
            "open_records",
            "evidence",
        )
        return sorted(tuple(str(row[name]) for name in names) for row in every)

    assert said(contents(config)["expansion_verdicts"]) == said(expected)


def _fields() -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in DELIVERY_HISTORY]


def test_only_what_acktrail_did_is_known_as_one_step(tmp_path: Path) -> None:
    """R003-02: without the audit of an apply that led from this count to that one, and was answered, another count can
    have been in between: nothing is safe. What an audit found stays found."""
    for name, asked in (("none", []), ("other", [("t", 3, 4)]), ("topic", [("u", 2, 4)])):
        config = expanded().filled(tmp_path / name, asked)
        assert audit(config).verdicts == {"not_proven": 2}
        found = contents(config)
        assert [row["is_single"] for row in found["partition_expansions"]] == [False]
        assert {row["reason"] for row in found["expansion_verdicts"]} == {NotProven.SEVERAL_EXPANSIONS.value}
    for row, verdict in zip(applied_rows(0, ("t", 2, 4)), ("not_proven", "safe"), strict=True):
        put(Tables(config), "reset_audit", [row | {"plan_id": "answered"}])
        assert audit(config).verdicts == {verdict: 2}
    shutil.rmtree(Path(config.uri) / "reset_audit")
    assert audit(config).verdicts == {"safe": 2}


def with_exact_fences(folder: Path, rows: Looks, *exact: int | None) -> Tables:
    """Tables of an audit, and of keys that were read after it."""
    config = rows.filled(folder, ASKED)
    audit(config)
    tables = Tables(config)
    fences = tables.read("expansion_fences").sort_by("partition")
    place = fences.column_names.index("fence_exact")
    tables.replace("expansion_fences", fences.set_column(place, "fence_exact", pa.array(exact, pa.int64())))
    return tables


def test_expansions_outlive_the_looks_that_showed_them(tmp_path: Path) -> None:
    """R003-09: after the retention dropped the looks from before an expansion it stays with its fences, its sequence
    and what keys showed; one that came later follows it."""
    tables = with_exact_fences(tmp_path, expanded(), 15, 16)
    assert drop_rows(tables, "partition_observations", ms(BEGIN + 11 * MINUTE), "r", BEGIN).total() > 0
    later = Looks()
    later.look(20, [30, 30, 10, 10, 0, 0, 0], {0: 21})
    put(tables, "partition_observations", later.observations)
    summary = audit(tables.config)
    found = contents(tables.config)

    assert (summary.expansions, summary.carried) == (2, 1)
    events = {row["event_id"]: row for row in found["partition_expansions"]}
    assert sorted((row["sequence"], row["old_count"], row["new_count"]) for row in events.values()) == [
        *((1, 2, 4), (2, 4, 7)),
    ]
    kept = {row["partition"]: row for row in found["expansion_fences"] if events[row["event_id"]]["sequence"] == 1}
    assert [(kept[each]["fence_low"], kept[each]["fence_exact"]) for each in (0, 1)] == [(10, 15), (10, 16)]


@pytest.mark.parametrize("is_late", [False, True])
def test_records_that_were_lost_void_what_was_known(tmp_path: Path, is_late: bool) -> None:
    """R003-09: a look that is stored late shows that partition 0 lost records. Neither its interval nor what keys
    showed there counts any more, and that outlives the looks; partition 1 keeps what is known of it. `is_late`: the
    look from before the expansion is gone by then."""
    rows, late = expanded(), Looks()
    rows.look(0.5, [10, 11], {}, consistency="straddles")
    tables = with_exact_fences(tmp_path, rows, 15, 16)
    if is_late:
        drop_rows(tables, "partition_observations", ms(BEGIN + MINUTE / 4), "r", BEGIN)
    late.look(5, [12, 17, 1, 1], {})
    late.observations[0] |= {"leader_epoch": 4, "ended_epoch": 3, "epoch_end_offset": 7}
    put(tables, "partition_observations", late.observations)
    for minute in (0.0, 0.25, 7.0):
        drop_rows(tables, "partition_observations", ms(BEGIN + minute * MINUTE), "r", BEGIN)
        audit(tables.config)
        found = {row["partition"]: row for row in tables.read("expansion_fences").to_pylist()}
        numbers = ("fence_low", "fence_high", "fence_exact")
        assert [found[0][name] for name in numbers] == [None, None, None]
        assert found[0]["reason"] == FenceGap.TRUNCATED.value
        assert [found[1][name] for name in numbers] == [10, 20 if is_late else 17, 16]
        assert contents(tables.config)["expansion_verdicts"][0]["reason"] == NotProven.NO_FENCE.value


def test_what_keys_showed_of_a_group_is_kept_while_it_is_true(tmp_path: Path) -> None:
    """Keys at risk stay with a verdict that names the same open records, and go with another one."""
    rows = Looks()
    for minute, positions in ((0, {0: 5}), (1, {0: 5, 1: 0}), (10, {0: 5, 1: 3})):
        rows.look(minute, [10, 4][: 1 + (minute > 0)], positions)
    config = rows.filled(tmp_path)
    audit(config)
    tables = Tables(config)
    [row] = tables.rows("expansion_verdicts")
    put(tables, "expansion_verdicts", [{**row, "keys_at_risk": 2, "keys": []}], replaces=True)
    assert audit(config).verdicts == {"broken": 1}
    assert contents(config)["expansion_verdicts"][0]["keys_at_risk"] == 2
    later = Looks()
    later.look(20, [10, 4], {0: 8, 1: 4})
    put(tables, "group_positions", later.positions)
    put(tables, "partition_observations", later.observations)
    audit(config)
    [row] = tables.rows("expansion_verdicts")
    assert (row["source_offset"], row["keys_at_risk"]) == (8, None)


def test_tables_without_looks_and_of_two_clusters(tmp_path: Path) -> None:
    """Nothing observed, no topic described, and looks at two clusters are one clear line each; a topic without an
    expansion leaves empty tables."""
    with pytest.raises(ConfigurationError, match="no looks at partitions"):
        audit(TablesConfig(uri=str(tmp_path / "empty")))
    silent = Looks(observations=[{"run_id": "r", "observed_at": BEGIN, "topic": "x", "error_code": 3}])
    with pytest.raises(ConfigurationError, match="no topic was described"):
        audit(silent.filled(tmp_path / "silent"))
    rows = expanded()
    rows.observations[0]["cluster_id"] = "other"
    with pytest.raises(ForeignCluster, match="are of 2 clusters"):
        audit(rows.filled(tmp_path / "two"))
    plain = Looks()
    plain.look(0, [10, 10], {})
    config = plain.filled(tmp_path / "plain")
    assert audit(config).verdicts == {}
    assert not any(contents(config).values())


BROKEN, NO_RECORD, EXPIRED = ("broken", None), ("not_proven", "no_record_known"), ("not_proven", "expired")


@pytest.mark.parametrize(
    ("is_gapless", "fence", "expected"),
    [
        ([True, True], {}, BROKEN),
        ([None, True], {}, BROKEN),
        ([True, None], {}, NO_RECORD),
        ([False, True], {}, NO_RECORD),
        ([None, None], {"last_record_offset": 7, "fence_exact": 10}, BROKEN),
        ([None, None], {"last_record_offset": 4, "fence_exact": 10}, ("safe", None)),
        ([None, None], {"fence_exact": 10}, NO_RECORD),
    ],
)
def test_what_is_left_below_a_fence_may_be_no_record(
    tmp_path: Path, is_gapless: list[bool | None], fence: dict[str, int], expected: tuple[str, str | None]
) -> None:
    """R003-01: a group stands below the fence when it has begun with the new partition. The order is broken where looks
    say that each offset is a record's, or keys were read of one there; and safe where the last record is before it."""
    rows = Looks()
    rows.look(0, [10], {0: 5}, is_gapless=is_gapless[0])
    rows.look(1, [12, 0], {0: 6, 1: 0}, is_gapless=is_gapless[1])
    rows.look(10, [20, 4], {0: 6, 1: 3}, is_gapless=is_gapless[1])
    config = rows.filled(tmp_path)
    audit(config)
    tables = Tables(config)
    [own] = tables.rows("expansion_fences")
    put(tables, "expansion_fences", [{**own, **fence}], replaces=True)
    audit(config)

    [row] = tables.rows("expansion_verdicts")
    assert (row["verdict"], row["reason"]) == expected


@pytest.mark.parametrize(
    ("starts", "expected", "offset"),
    [((0, 0), BROKEN, 6), ((0, 9), BROKEN, 9), ((0, 10), EXPIRED, 6), ((10, 20), EXPIRED, 6)],
)
def test_what_the_retention_took_cannot_be_overtaken(
    tmp_path: Path, starts: tuple[int, int], expected: tuple[str, str | None], offset: int
) -> None:
    """R003-01: a group stands below the fence when it begins with the new partition. Only what the log still had then
    was overtaken. What goes later changes nothing, with any number of looks since."""
    rows = Looks()
    ends = ([10], [12, 0], [20, 4], [20, 5])
    positions: list[dict[int, int | None]] = [{0: 5}, {0: 6, 1: 0}, {0: 6, 1: 0}, {0: 6, 1: 3}]
    for minute, own, start, at in zip((0, 1, 10, 11), ends, (0, 0, *starts), positions, strict=True):
        rows.look(minute, own, at, starts=[start, *[0] * (len(own) - 1)])
    for minute in range(20, 40):
        rows.look(minute, [21, 7], {0: 6, 1: 5}, starts=[20, 0])
    rows.positions += [{**row, "observed_at": row["observed_at"] - MINUTE / 60} for row in rows.positions]
    config = rows.filled(tmp_path)
    audit(config)

    [row] = Tables(config).rows("expansion_verdicts")
    assert (row["verdict"], row["reason"], row["source_offset"]) == (*expected, offset)
