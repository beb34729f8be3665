"""What an audit writes stays true when looks are gone, and says what it cannot know."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from samples.audited_ledger import SETTLE, applied_rows, audit, filled
from samples.expansion_world import BEGIN, CLUSTER, MINUTE, ExpansionRows, look
from samples.plain_audit import ms_of

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, ForeignCluster
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import OrderingReason
from acktrail.model.expansion.partition_ledger import FenceGap
from acktrail.tables.delta.store import Tables
from acktrail.tables.upkeep.retention import drop_rows


def expanded(
    group: tuple[str, str] = ("g", "consumer"), new: tuple[int | None, int | None] = (None, 3)
) -> ExpansionRows:
    """From two to four partitions; the group is past both fences before it begins the new ones."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {0: 5, 1: 5}, group=group)
    look(rows, 1, [11, 12, 0, 0], {0: 6, 1: 5, 2: new[0]}, group=group)
    look(rows, 10, [20, 20, 4, 4], {0: 20, 1: 20, 2: new[0]}, group=group)
    look(rows, 11, [21, 21, 8, 8], {0: 21, 1: 21, 2: new[1]}, group=group)
    look(rows, 12, [21, 21, 9, 9], {0: 21, 1: 21, 2: 9}, group=group)
    return rows


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["event_id"], row.get("partition"), row.get("group_id")


def contents(config: TablesConfig) -> dict[str, list[dict[str, Any]]]:
    names = ("partition_expansions", "expansion_fences", "partition_dependencies", "ordering_audits", "start_audits")
    return {name: sorted(Tables(config).read(name).to_pylist(), key=_place) for name in names}


def test_one_expansion_in_all_tables(tmp_path: Path) -> None:
    """R003-09, R003-01: an expansion, its fences with their epochs, what depends on what, and what a group did."""
    config = filled(tmp_path, expanded(), [("t", 2, 4)])
    summary = audit(config, KeyMapping.MURMUR2)
    found = contents(config)
    [event] = found["partition_expansions"]

    assert (event["sequence"], event["status"], event["is_single"], event["run_id"]) == (1, "settled", True, "run-012")
    assert event["settles_at"] - event["first_seen_new_at"] == SETTLE
    ends = [(row["fence_low"], row["fence_high"], row["confidence"]) for row in found["expansion_fences"]]
    assert ends == [(10, 20, "bracketed")] * 2
    assert {(row["leader_epoch_low"], row["leader_epoch_high"]) for row in found["expansion_fences"]} == {(3, 3)}
    needs = [
        (row["partition"], row["kind"], row["source_step"], row["sources"]) for row in found["partition_dependencies"]
    ]
    assert needs == [(2, "new_partition", 2, 1), (3, "new_partition", 2, 1)]
    verdicts = {row["partition"]: row for row in found["ordering_audits"]}
    assert (verdicts[2]["verdict"], verdicts[3]["verdict"]) == ("safe", "not_started")
    assert (verdicts[2]["source_before"], verdicts[2]["before_at"]) == (20, BEGIN + 10 * MINUTE)
    assert (verdicts[2]["destination_at"], verdicts[2]["at"], verdicts[2]["remaining"]) == (9, BEGIN + 12 * MINUTE, 0)
    assert summary.verdicts == {"not_started": 1, "safe": 1}
    assert (summary.expansions, summary.groups, summary.topics, summary.settling) == (1, 1, 1, 0)
    audit(config, KeyMapping.MURMUR2)
    assert contents(config) == found


def test_only_what_acktrail_did_is_known_as_one_step(tmp_path: Path) -> None:
    """R003-02: without the audit of an apply that led from this count to that one, and was answered, another count can
    have been in between: nothing is safe. What an audit found stays found."""
    for name, asked in (("none", []), ("other", [("t", 3, 4)]), ("topic", [("u", 2, 4)])):
        config = filled(tmp_path / name, expanded(), asked)
        assert audit(config, KeyMapping.MURMUR2).verdicts == {"indeterminate": 1, "not_started": 1}
        found = contents(config)
        assert [row["is_single"] for row in found["partition_expansions"]] == [False]
        assert {row["sources_safe"] for row in found["ordering_audits"]} == {0}
    config = filled(tmp_path / "answered", expanded())
    for row, verdict in zip(applied_rows(0, ("t", 2, 4)), ("indeterminate", "safe"), strict=True):
        Tables(config).append("reset_audit", [row])
        assert audit(config, KeyMapping.MURMUR2).verdicts == {verdict: 1, "not_started": 1}
    shutil.rmtree(tmp_path / "answered" / "reset_audit")
    assert audit(config, KeyMapping.MURMUR2).verdicts == {"safe": 1, "not_started": 1}


def test_looks_in_files_of_their_own(tmp_path: Path) -> None:
    """R003-08: a file with one look is read at any microsecond: a log's statistics end at the millisecond."""
    rows, config = expanded(), TablesConfig(uri=str(tmp_path / "apart"))
    for name, own in (("partition_observations", rows.observations), ("group_positions", rows.positions)):
        for row in own:
            row["observed_at"] += dt.timedelta(microseconds=957)
        for run_id in sorted({row["run_id"] for row in own}):
            Tables(config).append(name, [row for row in own if row["run_id"] == run_id])
    audit(config, KeyMapping.MURMUR2)
    together = filled(tmp_path / "together", rows)
    audit(together, KeyMapping.MURMUR2)

    assert contents(config) == contents(together)
    assert {row["confidence"] for row in contents(config)["expansion_fences"]} == {"bracketed"}


def audited_with_exact_fences(folder: Path, rows: ExpansionRows) -> Tables:
    """Tables of an audit, and of the key audit that came after it."""
    config = filled(folder, rows)
    audit(config, KeyMapping.MURMUR2)
    tables = Tables(config)
    fences = tables.read("expansion_fences")
    place = fences.column_names.index("fence_exact")
    tables.replace("expansion_fences", fences.set_column(place, "fence_exact", pa.array([15, 16], pa.int64())))
    return tables


def test_expansions_outlive_the_looks_that_showed_them(tmp_path: Path) -> None:
    """R003-09: after the retention dropped the looks from before an expansion it stays with its fences, its sequence
    and what a key audit found; one that came later follows it, and keys that moved through both are seen."""
    rows = expanded()
    tables = audited_with_exact_fences(tmp_path, rows)
    assert drop_rows(tables, "partition_observations", ms_of(BEGIN + 11 * MINUTE), "r", BEGIN).total() > 0
    later = ExpansionRows()
    look(later, 20, [30, 30, 10, 10, 0, 0, 0], {0: 21})
    for name, own in (("partition_observations", later.observations), ("group_positions", later.positions)):
        tables.append(name, [{column: row.get(column) for column in TABLES[name].names} for row in own])
    summary = audit(tables.config, KeyMapping.MURMUR2)
    found = contents(tables.config)

    assert (summary.expansions, summary.carried) == (2, 1)
    events = {row["event_id"]: row for row in found["partition_expansions"]}
    assert sorted((row["sequence"], row["old_count"], row["new_count"]) for row in events.values()) == [
        (1, 2, 4),
        (2, 4, 7),
    ]
    kept = {row["partition"]: row for row in found["expansion_fences"] if events[row["event_id"]]["sequence"] == 1}
    assert [kept[each]["fence_exact"] for each in (0, 1)] == [15, 16]
    assert [kept[each]["fence_low"] for each in (0, 1)] == [10, 10]
    assert {row["confidence"] for row in kept.values()} == {"exact"}


@pytest.mark.parametrize("is_late", [False, True])
def test_records_that_were_lost_void_what_was_known(tmp_path: Path, is_late: bool) -> None:
    """R003-09: a look that is stored late shows that partition 0 lost records. Neither its interval nor what a key
    audit found there counts any more, and that outlives the looks; partition 1 keeps what is known of it. `is_late`:
    the look from before the expansion is gone by then."""
    rows, straddling, late = expanded(), ExpansionRows(), ExpansionRows()
    look(straddling, 1, [10, 11], {})
    rows.observations += [
        {**row, "observed_at": row["observed_at"] - MINUTE / 2, "run_id": "run-half", "consistency": "straddles"}
        for row in straddling.observations
    ]
    tables = audited_with_exact_fences(tmp_path, rows)
    if is_late:
        drop_rows(tables, "partition_observations", ms_of(BEGIN + MINUTE / 4), "r", BEGIN)
    look(late, 5, [12, 17, 1, 1], {})
    late.observations[0] |= {"leader_epoch": 4, "ended_epoch": 3, "epoch_end_offset": 7}
    tables.append("partition_observations", late.observations)
    for minute in (0.0, 0.25, 7.0):
        drop_rows(tables, "partition_observations", ms_of(BEGIN + minute * MINUTE), "r", BEGIN)
        audit(tables.config, KeyMapping.MURMUR2)
        found = {row["partition"]: row for row in tables.read("expansion_fences").to_pylist()}
        numbers = ("fence_low", "fence_high", "fence_exact", "epoch_end_offset")
        assert [found[0][name] for name in numbers] == [None, None, None, None if is_late else 7]
        assert (found[0]["confidence"], found[0]["reason"]) == ("unknown", FenceGap.TRUNCATED.value)
        assert [found[1][name] for name in numbers] == [10, 20 if is_late else 17, 16, None]
        assert {row["partition"]: row["verdict"] for row in contents(tables.config)["ordering_audits"]}[
            2
        ] == "unknown_fence"


def test_where_a_share_group_began(tmp_path: Path) -> None:
    """Records of a new partition that a group never got are proven by the first state record with a start
    offset; without the state topic they are not known, and a group at the beginning is fine."""
    config = filled(tmp_path, expanded(("g", "share"), new=(None, 7)))
    audit(config, KeyMapping.MURMUR2)
    row, other = contents(config)["start_audits"]
    assert (row["verdict"], row["first_start_offset"], row["skipped_records"]) == ("unknown", 7, None)
    assert (other["verdict"], other["partition"]) == ("uninitialized", 3)

    record = {
        "cluster_id": CLUSTER,
        "state_partition": 3,
        "group_id": "g",
        "topic_id": "t",
        "partition": 2,
        "timestamp_ms": ms_of(BEGIN + 2 * MINUTE),
        "decode_status": "decoded",
    }
    states = [
        {**record, "offset": 8, "record_type": "snapshot", "snapshot_epoch": 0, "start_offset": None},
        {**record, "offset": 11, "record_type": "update", "snapshot_epoch": 0, "start_offset": 4},
        {**record, "offset": 12, "record_type": "update", "snapshot_epoch": 0, "start_offset": 7},
    ]
    Tables(config).append("state_records", [{n: row.get(n) for n in TABLES["state_records"].names} for row in states])
    audit(config, KeyMapping.MURMUR2)
    row, _ = contents(config)["start_audits"]
    assert (row["verdict"], row["first_start_offset"], row["skipped_records"]) == ("skipped_records", 4, 4)
    assert (row["partition"], row["log_start_offset"], row["first_seen_at"]) == (2, 0, BEGIN + 11 * MINUTE)

    gap = {"cluster_id": CLUSTER, "state_partition": 3, "gap_first": 2, "gap_last": 5, "exported_at": BEGIN + MINUTE}
    Tables(config).append("export_ranges", [{n: gap.get(n) for n in TABLES["export_ranges"].names}])
    audit(config, KeyMapping.MURMUR2)
    row, _ = contents(config)["start_audits"]
    assert row["verdict"] == "unknown"


def test_a_share_partition_without_a_state_is_uninitialized(tmp_path: Path) -> None:
    """A share group that is in the topic and has no start offset in a new partition."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {0: 5, 1: 5}, group=("g", "share"))
    look(rows, 1, [11, 12, 0], {0: 6, 1: 5, 2: None}, group=("g", "share"))
    config = filled(tmp_path, rows)
    summary = audit(config, KeyMapping.NONE)

    assert summary.starts == {"uninitialized": 1}
    [row] = contents(config)["start_audits"]
    assert (row["partition"], row["first_start_offset"], row["first_seen_at"]) == (2, None, None)


def test_who_was_not_there_before_is_no_start(tmp_path: Path) -> None:
    """A group that joins the topic after its expansion begins everywhere at once: no row. That it was away is
    known where other groups were read; where none was, its first positions prove nothing."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {})
    look(rows, 1, [11, 12, 0], {})
    look(rows, 10, [11, 12, 5], {})
    look(rows, 20, [11, 12, 5], {0: 11, 1: 12, 2: 5})
    assert audit(filled(tmp_path / "alone", rows), KeyMapping.NONE).verdicts == {"indeterminate": 1}
    for row in [row for row in rows.observations if row["partition"] == 0]:
        own = {name: row[name] for name in ("cluster_id", "run_id", "observed_at", "topic_id", "topic", "partition")}
        rows.positions.append({**own, "group_id": "h", "group_type": "consumer", "position": 0, "error_code": 0})
    config = filled(tmp_path / "beside", rows)

    assert audit(config, KeyMapping.NONE).starts == {}
    verdicts = {row["group_id"]: row["verdict"] for row in contents(config)["ordering_audits"]}
    assert verdicts == {"g": "not_applicable", "h": "not_started"}


def test_tables_without_looks_and_of_two_clusters(tmp_path: Path) -> None:
    """Nothing observed, no topic described, and looks at two clusters are one clear line each."""
    with pytest.raises(ConfigurationError, match="no observations of partitions"):
        audit(TablesConfig(uri=str(tmp_path / "empty")), KeyMapping.NONE)
    silent = ExpansionRows(observations=[{"run_id": "r", "observed_at": BEGIN, "topic": "x", "error_code": 3}])
    with pytest.raises(ConfigurationError, match="no topic was described"):
        audit(filled(tmp_path / "silent", silent), KeyMapping.NONE)
    for table in ("observations", "positions"):
        rows = expanded()
        getattr(rows, table)[-1]["cluster_id"] = "other"
        if table == "observations":
            rows.observations[-1]["partition"] = 0
        with pytest.raises(ForeignCluster, match="are of 2 clusters"):
            audit(filled(tmp_path / table, rows), KeyMapping.NONE)


def test_a_topic_without_an_expansion_leaves_empty_tables(tmp_path: Path) -> None:
    """The tables are there and have no row, whether or not positions were ever read."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {})
    config = filled(tmp_path, rows)

    assert audit(config, KeyMapping.MURMUR2).verdicts == {}
    assert not any(contents(config).values())


@pytest.mark.parametrize(
    ("is_gapless", "fence", "expected"),
    [
        ([True, True], {}, ("violation", None)),
        ([None, True], {}, ("violation", None)),
        ([True, None], {}, ("possible_violation", OrderingReason.NO_RECORD_KNOWN.value)),
        ([False, True], {}, ("possible_violation", OrderingReason.NO_RECORD_KNOWN.value)),
        ([None, None], {"last_record_offset": 7}, ("violation", None)),
        ([None, None], {"last_record_offset": 4}, ("possible_violation", OrderingReason.NO_RECORD_KNOWN.value)),
        ([None, None], {"last_record_offset": 4, "fence_exact": 10}, ("safe", None)),
        ([None, None], {"fence_exact": 10}, ("possible_violation", OrderingReason.NO_RECORD_KNOWN.value)),
        ([None, None], {"fence_exact": 11}, ("violation", None)),
    ],
)
def test_what_is_left_below_a_fence_may_be_no_record(
    tmp_path: Path, is_gapless: list[bool | None], fence: dict[str, int], expected: tuple[str, str | None]
) -> None:
    """R003-01: a group stands below the fence when it has begun with the new partition. That is a violation where looks
    say that each offset is a record's, or a key audit found one there; and none where the last record is before it."""
    rows = ExpansionRows()
    look(rows, 0, [10], {0: 5})
    look(rows, 1, [12, 0], {0: 6, 1: 0})
    look(rows, 10, [20, 4], {0: 6, 1: 3})
    for row in rows.observations:
        row["is_gapless"] = is_gapless[row["observed_at"] > BEGIN]
    config = filled(tmp_path, rows)
    audit(config, KeyMapping.MURMUR2)
    tables = Tables(config)
    found = tables.read("expansion_fences")
    for name, offset in fence.items():
        found = found.set_column(found.column_names.index(name), name, pa.array([offset], pa.int64()))
    tables.replace("expansion_fences", found)
    audit(config, KeyMapping.MURMUR2)

    [row] = tables.read("ordering_audits").to_pylist()
    assert (row["verdict"], row["reason"]) == expected
    [kept] = tables.read("expansion_fences").to_pylist()
    assert {name: kept[name] for name in fence} == fence


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ((0, 0, 0), ("violation", None)),
        ((0, 9, 9), ("violation", None)),
        ((0, 0, 10), ("possible_violation", OrderingReason.EXPIRED.value)),
        ((0, 10, 20), ("possible_violation", OrderingReason.EXPIRED.value)),
        ((0, 20, 20), ("safe", OrderingReason.EXPIRED.value)),
    ],
)
def test_what_the_retention_took_cannot_be_overtaken(
    tmp_path: Path, starts: tuple[int, int, int], expected: tuple[str, str | None]
) -> None:
    """R003-01: a group stands below the fence when it begins with the new partition. With the records below the fence
    gone by then that is no violation; with all of them gone before, nothing could be overtaken. What goes later changes
    nothing, with any number of looks since."""
    rows = ExpansionRows()
    ends = ([10], [12, 0], [20, 4], [20, 5], [20, 6])
    positions = ({0: 5}, {0: 6, 1: 0}, {0: 6, 1: 0}, {0: 6, 1: 3}, {0: 6, 1: 4})
    begins = (0, 0, *starts[1:], 20)
    for number, minute in enumerate((0, 1, 10, 11, 12)):
        own = [begins[number], *[0] * (len(ends[number]) - 1)]
        look(rows, minute, ends[number], dict(positions[number]), starts=own)
    for minute in range(20, 60):
        look(rows, minute, [21, 7], {0: 6, 1: 5}, starts=[20, 0])
    config = filled(tmp_path, rows)
    audit(config, KeyMapping.MURMUR2)

    [row] = Tables(config).read("ordering_audits").to_pylist()
    assert (row["verdict"], row["reason"]) == expected
