"""What an audit of expansions finds lies in ``findings`` beside what reconciliations find, opened and closed by audits
alone."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import run
from samples.audited_ledger import audit, filled
from samples.expansion_world import BEGIN, CLUSTER, MINUTE, ExpansionRows, look
from samples.health_tables import HOSTILE
from samples.plain_audit import ms_of

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import OrderedGroups, TablesConfig
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.delta.store import Tables
from acktrail.tables.health.cluster_health import cluster_health
from acktrail.tables.health.open_findings import open_findings
from acktrail.tables.open_runs import newest_audit, open_runs
from acktrail.tables.upkeep.retention import drop_rows

SUBJECT = "g:t:2-3"


def broken_order() -> ExpansionRows:
    """From two partitions to three; the group begins with the new one while it has 5 of 10 records left in 0."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {0: 5, 1: 10})
    look(rows, 1, [10, 10, 4], {0: 5, 1: 10, 2: None})
    look(rows, 10, [20, 20, 4], {0: 5, 1: 20, 2: 3})
    look(rows, 11, [21, 21, 8], {0: 5, 1: 21, 2: 8})
    return rows


def judged(config: TablesConfig, ordered: Container[str] = ()) -> dict[str, int]:
    return audit(config, KeyMapping.NONE, ordered=ordered).findings


def add(config: TablesConfig, rows: ExpansionRows) -> None:
    for name, own in (("partition_observations", rows.observations), ("group_positions", rows.positions)):
        Tables(config).append(name, [{column: row.get(column) for column in TABLES[name].names} for row in own])


def stored(config: TablesConfig) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["rule"], row["subject"]): row for row in Tables(config).read("findings").to_pylist()}


def opened(config: TablesConfig) -> set[str]:
    tables = Tables(config)
    return {each.rule for each in open_findings(tables, open_runs(tables)) if each.is_open}


def test_broken_order_is_opened_once_and_stays_open(tmp_path: Path) -> None:
    """One finding with the catalogue's severity; the same looks again change nothing, later ones move when it was seen
    last and how often."""
    config = filled(tmp_path, broken_order())

    assert judged(config) == {"group_kept_order": 1}
    [row] = stored(config).values()
    assert (row["rule"], row["subject"], row["cluster_id"]) == ("group_kept_order", SUBJECT, CLUSTER)
    assert (row["group_id"], row["topic_id"], row["topic"]) == ("g", "t", "topic")
    assert row["severity"] == RULE_BY_ID["group_kept_order"].severity.value
    assert row["detail"] == (
        "expansion from 2 to 3 partitions: it began with partition 2 while records of partition 0 from before the "
        "expansion were unfinished: 5 offsets were left"
    )
    assert (row["first_seen_at"], row["last_seen_at"], row["times_seen"]) == (BEGIN + 11 * MINUTE,) * 2 + (1,)
    before, version = stored(config), Tables(config).create("findings").version
    judged(config)
    assert (stored(config), Tables(config).create("findings").version) == (before, version)

    for number in (20, 21):
        later = ExpansionRows()
        look(later, number, [30, 30, 9], {0: 30, 1: 30, 2: 9})
        add(config, later)
        judged(config)
    [row] = stored(config).values()
    assert (row["first_seen_at"], row["last_seen_at"]) == (BEGIN + 11 * MINUTE, BEGIN + 21 * MINUTE)
    assert (row["times_seen"], opened(config)) == (3, {"group_kept_order"})


def test_an_audit_alone_closes(tmp_path: Path) -> None:
    """A reconciliation and a validation leave it open; the audit that does not find it any more closes it, also on the
    same looks; and opens it again."""
    config = filled(tmp_path, broken_order())
    judged(config)
    tables = Tables(config)
    tables.append("reconcile_checks", [{"run_id": "run-7", "reconciled_at": BEGIN, "decision": "run"}])
    other = {"rule": "unknown", "run_id": "run-7", "severity": "warning", "subject": "s", "cluster_id": CLUSTER}
    found = pa.Table.from_pylist([{**other, "first_seen_at": BEGIN, "last_seen_at": BEGIN}], TABLES["findings"])
    tables.upsert("findings", found)
    assert opened(config) == {"group_kept_order", "unknown"}

    assert judged(config, OrderedGroups(("g*",))) == {"ordered_group_kept_order": 1}
    assert opened(config) == {"ordered_group_kept_order", "unknown"}
    health = cluster_health(tables, BEGIN)
    assert {each.rule for each in health.findings or ()} == opened(config)
    assert health.overview.findings == {"critical": 1, "warning": 1}
    assert audit(config, KeyMapping.CRC32).findings == {"group_kept_order": 1}
    assert drop_rows(tables, "group_positions", ms_of(BEGIN + 30 * MINUTE), "r", BEGIN).total() > 0
    assert judged(config) == {}
    assert opened(config) == {"unknown"}
    assert {each.rule for each in open_findings(tables, open_runs(tables), closed_too=True)} == {
        *("group_kept_order", "ordered_group_kept_order", "unknown")
    }
    newest = newest_audit(tables)
    judged(config)
    assert newest_audit(tables) == newest


def test_every_rule_of_an_audit(tmp_path: Path) -> None:
    """A count that falls, an exact fence behind the high one, skipped records: each topic, expansion, or group in one,
    is one finding with its numbers. The retention passed a fence that nothing rests on: none."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {0: 5, 1: 5}, group=("g", "share"))
    look(rows, 1, [11, 12, 3], {0: 6, 1: 5, 2: None}, group=("g", "share"))
    look(rows, 10, [20, 20, 4], {0: 20, 1: 20, 2: None}, group=("g", "share"))
    look(rows, 11, [20, 20, 4], {0: 20, 1: 20, 2: 4}, starts=[13, 0, 0], group=("g", "share"))
    look(rows, 12, [20, 20], {0: 20}, starts=[13, 0], group=("g", "share"))
    config = filled(tmp_path, rows)
    record = {
        "cluster_id": CLUSTER,
        "group_id": "g",
        "topic_id": "t",
        "state_partition": 3,
        "partition": 2,
        "offset": 8,
        "record_type": "snapshot",
        "snapshot_epoch": 0,
        "start_offset": 1,
        "decode_status": "decoded",
        "timestamp_ms": int((BEGIN + 2 * MINUTE).timestamp() * 1000),
    }
    tables = Tables(config)
    tables.append("state_records", [{name: record.get(name) for name in TABLES["state_records"].names}])
    judged(config)
    fences = tables.read("expansion_fences")
    exact = pa.array([25 if each == 0 else None for each in fences["partition"].to_pylist()], pa.int64())
    tables.replace(
        "expansion_fences", fences.set_column(fences.column_names.index("fence_exact"), "fence_exact", exact)
    )

    assert judged(config) == {
        "partition_count_not_falling": 1,
        "fence_exact_le_high": 1,
        "new_partition_records_not_skipped": 1,
    }
    details = {rule: row["detail"] for (rule, _), row in stored(config).items()}
    assert details["partition_count_not_falling"].startswith(
        "from 3 to 2 partitions in the look of 2026-05-01T00:12:00"
    )
    assert "up to 5 offsets behind the high fence of partition 0" in details["fence_exact_le_high"]
    assert details["new_partition_records_not_skipped"].endswith("it skipped 1 record, most in partition 2")
    for (rule, subject), row in stored(config).items():
        assert row["severity"] == RULE_BY_ID[rule].severity.value
        assert subject == {"partition_count_not_falling": "t", "new_partition_records_not_skipped": SUBJECT}.get(
            rule, "t:2-3"
        )


def between_fences(*, begins_at: int) -> ExpansionRows:
    """The group begins with the new partition while it is at offset `begins_at` of source 0, whose fence is 10 to 20;
    later the retention removes what is below 13."""
    rows = ExpansionRows()
    look(rows, 0, [10, 10], {0: 9, 1: 10})
    look(rows, 1, [11, 10, 4], {0: 9, 1: 10, 2: None})
    look(rows, 10, [20, 20, 4], {0: begins_at, 1: 20, 2: 3})
    look(rows, 11, [20, 20, 8], {0: begins_at, 1: 20, 2: 8})
    look(rows, 12, [21, 21, 9], {0: 21, 1: 21, 2: 9}, starts=[13, 0, 0])
    return rows


def test_expiry_is_found_where_it_leaves_a_verdict_open(tmp_path: Path) -> None:
    """Records are gone whose keys could have proven a verdict: a finding, until an exact fence is known all the same,
    or the readings are gone that it would be compared with."""
    config = filled(tmp_path, between_fences(begins_at=15))
    assert judged(config) == {"fence_not_expired": 1}
    [row] = stored(config).values()
    assert row["severity"] == "warning"
    assert row["detail"].endswith(
        "verdicts cannot be proven any more: the retention removed 3 offsets behind the low fence of partition 0, and "
        "reached the fences of 1 of 2 sources"
    )
    assert drop_rows(Tables(config), "group_positions", ms_of(BEGIN + 11 * MINUTE + MINUTE / 2), "r", BEGIN).total() > 0
    assert audit(config, KeyMapping.NONE).verdicts == {"indeterminate": 1}
    assert opened(config) == set()


def test_expiry_is_expected_where_nothing_rests_on_the_fence(tmp_path: Path) -> None:
    """A group that jumped over the whole fence between two looks is not proven by its records; a group that finished
    the source before is proven without; an exact fence is known."""
    assert judged(filled(tmp_path / "over", between_fences(begins_at=20))) == {}
    known = filled(tmp_path / "known", between_fences(begins_at=15))
    judged(known)
    tables = Tables(known)
    fences = tables.read("expansion_fences")
    exact = pa.array([12 if each == 0 else None for each in fences["partition"].to_pylist()], pa.int64())
    place = fences.column_names.index("fence_exact")
    tables.replace("expansion_fences", fences.set_column(place, "fence_exact", exact))
    assert judged(known) == {}


def test_names_of_groups_do_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group's id is kept as it is in the table, and harmless on the terminal."""
    rows = broken_order()
    for row in rows.positions:
        row["group_id"] = HOSTILE
    config = filled(tmp_path, rows)
    judged(config)

    [row] = stored(config).values()
    assert (row["group_id"], row["subject"]) == (HOSTILE, f"{HOSTILE}:t:2-3")
    lines = run(capsys, "findings", "--tables", config.uri).stdout.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
