"""Rows of a ledger as tables, and the audit of them beside the plain one."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Container
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from samples.expansion_world import ExpansionRows
from samples.plain_audit import PlainVerdict, ledgers, ms_of, plain_audit

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.executors import InProcess, OpenExecutors
from acktrail.expansions.asked_expansions import Change
from acktrail.expansions.audit_run import ExpansionSummary, audit_expansions
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.partition_ledger import PartitionExpansion
from acktrail.tables.delta.store import Tables

SETTLE: Final = dt.timedelta(seconds=2)
OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"


def in_process(rows: int) -> Any:
    return nullcontext(InProcess())


def filled(folder: Path, world: ExpansionRows, asked: Collection[Change] = ()) -> TablesConfig:
    """Tables with the rows, in several commits. `asked`: changes of counts that acktrail made."""
    config = TablesConfig(uri=str(folder))
    tables = Tables(config)
    for name, rows in ((OBSERVATIONS, world.observations), (POSITIONS, world.positions)):
        for half in (rows[::2], rows[1::2]):
            tables.append(name, pa.Table.from_pylist(_whole(name, half), schema=TABLES[name]))
    if asked:
        tables.append("reset_audit", [row for number, each in enumerate(asked) for row in applied_rows(number, each)])
    return config


def applied_rows(number: int, change: Change) -> list[dict[str, Any]]:
    """The audit of ``acktrail expand apply``."""
    detail = dict(zip(("topic_id", "from", "to"), change, strict=True))
    own = {"kind": "expand_topic", "plan_id": f"p{number}", "attempt": 1, "detail": "{}"}
    rows = [{**own, "event": "before_call", "detail": json.dumps(detail)}, {**own, "event": "after_call"}]
    rows[1]["outcome"] = "done"
    return _whole("reset_audit", rows)


def _whole(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{column: row.get(column) for column in TABLES[name].names} for row in rows]


def audit(
    config: TablesConfig,
    mapping: KeyMapping,
    open_executors: OpenExecutors = in_process,
    settle: dt.timedelta = SETTLE,
    ordered: Container[str] = (),
) -> ExpansionSummary:
    return audit_expansions(config, open_executors, settle=settle, mapping_of=lambda topic: mapping, ordered=ordered)


def check(folder: Path, world: ExpansionRows, mapping: KeyMapping, open_executors: OpenExecutors = in_process) -> int:
    """Audit the world in both ways, and compare all of it; gives how many verdicts there were."""
    found = ledgers(_whole(OBSERVATIONS, world.observations), SETTLE // dt.timedelta(milliseconds=1))
    changes = [(name, each.old_count, each.new_count) for name, own in found.items() for each in own.expansions]
    asked = changes[::2]
    config = filled(folder, world, asked)
    summary = audit(config, mapping, open_executors)
    observations, positions = _whole(OBSERVATIONS, world.observations), _whole(POSITIONS, world.positions)
    settle_ms = SETTLE // dt.timedelta(milliseconds=1)
    known, expected = plain_audit(observations, positions, settle_ms, lambda _: mapping, asked)
    tables = Tables(config)
    _check_expansions(tables, {each.event_id: each for own in known.values() for each in own.expansions})
    names = {row["topic_id"]: row["topic"] for row in world.observations}
    assert set(summary.fallen) == {names[topic_id] for topic_id, own in known.items() if own.anomalies}
    rows = {
        (r["group_id"], r["group_type"] == "share", r["event_id"], r["source_event_id"], r["partition"]): r
        for r in tables.read("ordering_audits").to_pylist()
    }
    assert rows.keys() == expected.keys()
    for key, verdict in expected.items():
        assert PlainVerdict(**{name: rows[key][name] for name in PlainVerdict.__annotations__}) == verdict, key
    dependencies = {
        (row["event_id"], row["source_event_id"], row["partition"]): row["sources"]
        for row in tables.read("partition_dependencies").to_pylist()
    }
    assert {key[2:]: verdict.sources for key, verdict in expected.items()}.items() <= dependencies.items()
    return len(expected)


def _check_expansions(tables: Tables, plain: dict[str, PartitionExpansion]) -> None:
    found = {row["event_id"]: row for row in tables.read("partition_expansions").to_pylist()}
    assert found.keys() == plain.keys()
    fences = {(row["event_id"], row["partition"]): row for row in tables.read("expansion_fences").to_pylist()}
    for event_id, own in plain.items():
        row = found[event_id]
        assert (row["old_count"], row["new_count"], row["status"]) == (own.old_count, own.new_count, own.status.value)
        assert row["is_single"] is own.is_single
        seen = [row[name] for name in ("last_seen_old_at", "first_seen_new_at", "settles_at")]
        times = [None if each is None else ms_of(each) for each in seen]
        assert times == [own.last_seen_old_at_ms, own.first_seen_new_at_ms, own.settles_at_ms]
        for number, (fence, gap) in enumerate(zip(own.fences, own.gaps, strict=True)):
            each = fences.pop((event_id, number))
            assert (each["fence_low"], each["fence_high"]) == (fence.low, fence.high)
            assert each["reason"] == (None if gap is None else gap.value)
    assert not fences
