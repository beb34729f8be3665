"""A run as the demo workload leaves it: every kind of group, and what a cluster may get wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from definitions.batch_laws import terminal_count

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.batches import StateBatch
from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.tables.delta.store import Tables
from acktrail.view.run_summary import RunTables
from acktrail_dashboard.web.web_page import report_sections

RUN = "reconcile-2026-11-21T04:46:00Z"
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
SEEN = datetime(2026, 11, 21, 4, 46, 12, tzinfo=UTC)
TOPIC_IDS = {
    "clickstream": "2bK0gQy9TnuMZ0lM0QxTng",
    "invoices": "sD9aXJ3MQn6yFvZ1c5mC4w",
    "orders": "Jx0nqVdIQm2c7dP0m8fK5A",
    "payments": "w3hQpTgaR9uT0bqYF1k2Lw",
    "shipments": "U9x2mQeYQ0KkVh8n7sPz1g",
}
HOSTILE = (
    "<script>document.title='owned'</script>",
    "</title></style></svg><img src=//evil.example/x onerror=alert(1)>",
    "\"onmouseover='alert(1)' style=\"background:url(https://evil.example/)",
    "two\nlines\r\tand a tab",
    "evil\u202egnp.exe\u2066",
    "zero\u200bwidth",
    "\x1b[31mred\x9b0m\x00",
    "\N{CJK UNIFIED IDEOGRAPH-754C}" * 85,
    "x" * 255,
    "&lt;already&gt; &amp; escaped",
)
NAMED = (
    "rule", "severity", "subject", "detail", "suite", "expectation", "observed_value", "topic", "topic_id", "status",
    "group_id", "group_state", "assignor", "error", "completeness_reason",
)  # fmt: skip
"""Columns whose text comes from a cluster, or from tables that somebody else may write."""
Batch = tuple[int, int, int, int]
BATCH = ("first_offset", "last_offset", "delivery_state", "delivery_count")


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows with the run's own columns filled in; columns not named are null."""
    schema = TABLES[name]
    own = {"cluster_id": CLUSTER, "run_id": RUN, "observed_at": SEEN}
    full = [{**own, **row} for row in rows]
    return pa.Table.from_pylist([{c: row.get(c) for c in schema.names} for row in full], schema=schema)


def share_partition(
    group: str,
    topic: str,
    partition: int,
    *,
    start: int | None,
    end: int,
    batches: Iterable[Batch] = (),
    **changes: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A state row and a reconciliation row that agree: lag as a broker computes it."""
    runs = tuple(
        StateBatch(first_offset=first, last_offset=last, delivery_state=s, delivery_count=c)
        for first, last, s, c in batches
    )
    complete = terminal_count(runs, start)
    lag = None if start is None else end - start - complete
    key = {"group_id": group, "topic": topic, "topic_id": TOPIC_IDS.get(topic, topic[:22]), "partition": partition}
    archived = sum(b.last_offset - b.first_offset + 1 for b in runs if b.delivery_state == 4)
    state = key | {
        "state_partition": hash_of(group, partition),
        "snapshot_epoch": 3,
        "state_epoch": 2,
        "leader_epoch": 0,
        "start_offset": start,
        "end_offset": max((b.last_offset + 1 for b in runs), default=start),
        "delivery_complete_count": complete,
        "archived_seen": archived,
        "batches": [dict(zip(BATCH, b, strict=True)) for b in batches],
        "completeness": "complete",
        "last_record_offset": 10_000,
    }
    verdict = key | {
        "verdict": "match",
        "moved": False,
        "durable_start_offset": start,
        "durable_lag": lag,
        "described_start_offset_after": start,
        "described_lag_after": lag,
        "log_start_offset": 0,
        "log_end_offset_before": end,
        "log_end_offset_after": end,
        "archived_seen": archived,
        "completeness": "complete",
    }
    return state | pick(changes, state), verdict | pick(changes, verdict) | {"reason": changes.get("reason")}


def pick(changes: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name in row}


def hash_of(group: str, partition: int) -> int:
    return (sum(group.encode()) + partition) % 4


def finding(
    rule: str, group: str, topic: str, partition: int, detail: str, at: tuple[int, int] | None = None
) -> dict[str, Any]:
    """A finding as a reconciliation stores it; the name of its topic is in ``topics`` alone."""
    topic_id = TOPIC_IDS.get(topic, topic)
    return {
        "rule": rule,
        "severity": RULE_BY_ID[rule].severity.value,
        "subject": f"{group}:{topic_id}:{partition}",
        "group_id": group,
        "topic_id": topic_id,
        "partition": partition,
        "detail": detail,
        "evidence_state_partition": at[0] if at else None,
        "evidence_offset": at[1] if at else None,
        "first_seen_at": SEEN - timedelta(hours=3),
        "last_seen_at": SEEN,
        "times_seen": 4,
    }


def expectation(
    suite: str,
    name: str,
    success: bool | None = True,
    unexpected: int = 0,
    count: int = 5317,
) -> dict[str, Any]:
    return {
        "suite": suite,
        "expectation": name,
        "severity": RULE_BY_ID[name].severity.value,
        "success": success,
        "state": {True: "holds", False: "fails", None: "not_evaluated"}[success],
        "element_count": count,
        "unexpected_count": unexpected,
        "evaluated_at": SEEN + timedelta(seconds=9),
        "error": None if success is not None else "the column has no value to compare",
    }


def mixed_batches(seed: int, start: int, width: int, states: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """Disjoint ascending batches from `start`, in the states and counts of `states` (weights in the first field)."""
    chance, offset, built = random.Random(seed), start, []
    while offset < start + width:
        weight = [s[0] for s in states]
        _, longest, state, count = chance.choices(states, weights=weight)[0]
        last = min(offset + chance.randint(0, longest), start + width - 1)
        if state >= 0:
            built.append((offset, last, state, count))
        offset = last + 1
    return tuple(built)


WORK: tuple[Batch, ...] = ((5, 60, 2, 1), (3, 40, 0, 1), (2, 30, -1, 0))
POISON: tuple[Batch, ...] = ((5, 50, 2, 1), (3, 25, 0, 3), (2, 16, 4, 5), (2, 30, -1, 0))


RETRIES: tuple[Batch, ...] = ((4, 9, 0, 3), (4, 12, 2, 2), (1, 4, 4, 5))

LOGS: tuple[tuple[str, str, int, int, int, int, tuple[Batch, ...]], ...] = (
    # group, topic, partition, start offset, width of the window, log end, states
    ("billing-workers", "orders", 0, 1_240_786, 724, 1_243_229, WORK),
    ("billing-workers", "orders", 1, 365_986, 395, 366_402, WORK),
    ("billing-workers", "orders", 2, 871_718, 0, 871_718, WORK),
    ("fraud-scoring", "payments", 0, 636_700, 310, 637_910, POISON),
    ("fraud-scoring", "payments", 1, 225_528, 500, 226_021, POISON),
    ("notifications-retry", "shipments", 0, 40_000, 250, 40_310, RETRIES),
    ("notifications-retry", "shipments", 1, 40_001, 250, 40_310, RETRIES),
    ("warehouse-sync", "clickstream", 0, 7_789_795, 180, 7_835_366, WORK),
    ("warehouse-sync", "clickstream", 1, 7_789_796, 180, 7_826_366, WORK),
)


def share_partitions() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What the demo's groups leave, then one of each kind of trouble."""
    well = [
        share_partition(group, topic, p, start=start, end=end, batches=mixed_batches(start + p, start, width, states))
        for group, topic, p, start, width, end, states in LOGS
    ]
    not_initialized = [share_partition("search-indexer", "invoices", p, start=None, end=812) for p in range(2)]
    return [*well, *not_initialized, _live_ahead(), _before_log_start(), _orphan()]


def _live_ahead() -> tuple[dict[str, Any], dict[str, Any]]:
    return share_partition(
        "fraud-scoring",
        "payments",
        2,
        start=360_080,
        end=362_465,
        batches=((360_080, 360_080, 3, 5), (360_081, 360_120, 0, 1), (360_121, 360_140, 4, 5)),
        verdict="live_ahead",
        moved=True,
        described_start_offset_after=360_141,
        described_lag_after=2_324,
        reason="replayed start offset 360080, described start offset 360120 to 360141",
    )


def _before_log_start() -> tuple[dict[str, Any], dict[str, Any]]:
    return share_partition(
        "warehouse-sync",
        "orders",
        0,
        start=1_200_000,
        end=1_243_229,
        verdict="before_log_start",
        log_start_offset=1_200_500,
        batches=((1_200_700, 1_200_800, 2, 1), (1_200_801, 1_200_900, 0, 1)),
        reason="start offset 1200000, the log starts at 1200500",
    )


def _orphan() -> tuple[dict[str, Any], dict[str, Any]]:
    state, verdict = share_partition(
        "ledger-v1",
        "qT5yV0aOQ3mXn8sJd1f7uw",
        0,
        start=512,
        end=900,
        completeness="no_snapshot",
        completeness_reason="only updates were seen",
        batches=((520, 560, 2, 1), (600, 640, 4, 5)),
        verdict="orphan_state",
        reason="durable state of a group that does not exist",
    )
    gone = {"described_start_offset_after": None, "described_lag_after": None, "durable_lag": None}
    return state | {"topic": None}, verdict | gone | {"topic": None, "log_end_offset_after": None}


def quality() -> list[dict[str, Any]]:
    held = {
        "share_partition_states": ("batch_first_le_last", "batches_ascending", "batches_non_overlapping",
                                   "delivery_state_allowed", "delivery_count_within_limit"),
        "state_records": ("state_epoch_monotone", "record_decoded", "start_offset_monotone"),
        "export_ranges": ("records_accounted_for",),
    }  # fmt: skip
    return [
        *(expectation(suite, name, count=13) for suite, names in held.items() for name in names),
        *(expectation("reconciliations", name, False, 1, 14) for name in ("orphan_state", "before_log_start")),
        expectation("reconciliations", "not_authorized", None, count=14),
    ]


def groups() -> list[dict[str, Any]]:
    known = (
        ("billing-workers", "STABLE", 3, 14),
        ("fraud-scoring", "STABLE", 2, 9),
        ("notifications-retry", "STABLE", 1, 6),
        ("search-indexer", "EMPTY", 0, 1),
        ("warehouse-sync", "EMPTY", 0, 4),
    )
    return [
        {"phase": phase, "group_id": name, "group_type": "share", "group_state": state, "members": members,
         "group_epoch": epoch, "assignment_epoch": epoch, "assignor": "simple", "coordinator_id": 1, "error_code": 0,
         "observed_at": SEEN - timedelta(seconds=4 if phase == "before" else 0),
         "configs": [("share.auto.offset.reset", "earliest")]}
        for phase in ("before", "after")
        for name, state, members, epoch in known
    ]  # fmt: skip


COMMITS = ((0, 0, 1310, 0, 30), (1, 0, 1420, 0, 30), (2, 40, 1281, 2, 30), (3, 0, 1339, 0, 30), (2, 1300, 1333, 0, 1))
"""State partition, first and last offset, quarantined records, age in minutes."""


def ranges() -> list[dict[str, Any]]:
    rows = [
        {"state_topic_id": "v0Uo3pDuQ8mLs6n3l9l2Zw", "state_partition": p, "first_offset": first, "last_offset": last,
         "records_read": last - first + 1, "records_decoded": last - first + 1 - bad, "records_quarantined": bad,
         "log_start_offset": first, "log_end_offset": last + 1, "gap_first": None, "gap_last": None,
         "exported_at": SEEN - timedelta(minutes=age)}
        for p, first, last, bad, age in COMMITS
    ]  # fmt: skip
    rows[-1] |= {"gap_first": 1282, "gap_last": 1299}
    return rows


def topics() -> list[dict[str, Any]]:
    return [
        {"topic_id": topic_id, "topic": name, "partition_count": 3, "is_internal": False, "status": "present",
         "first_seen_at": SEEN - timedelta(days=9), "last_seen_at": SEEN}
        for name, topic_id in TOPIC_IDS.items()
    ]  # fmt: skip


def findings() -> list[dict[str, Any]]:
    return [
        finding("one_state_partition_per_key", "billing-workers", "orders", 1,
                "its records are on state partitions 0, 1", (1, 1398)),
        finding("before_log_start", "warehouse-sync", "orders", 0, "start offset 1200000, the log starts at 1200500",
                (1, 1322)),
        finding("archiving_stale", "fraud-scoring", "payments", 2,
                "1 record(s) have been archiving for 41 minutes: the share partition is stuck or has no leader",
                (2, 1320)),
        finding("orphan_state", "ledger-v1", "qT5yV0aOQ3mXn8sJd1f7uw", 0,
                "durable state of a group that does not exist", (0, 211)),
        finding("poison_records_archived", "fraud-scoring", "payments", 2, "20 record(s) were archived"),
    ]  # fmt: skip


def build_run() -> RunTables:
    pairs = share_partitions()
    return RunTables(
        share_partition_states=table("share_partition_states", (state for state, _ in pairs)),
        reconciliations=table("reconciliations", (verdict for _, verdict in pairs)),
        findings=table("findings", findings()),
        quality_results=table("quality_results", quality()),
        export_ranges=table("export_ranges", ranges()),
        group_observations=table("group_observations", groups()),
        topics=table("topics", topics()),
    )


@cache
def sample_run() -> RunTables:
    """The tables of one run with five groups and every kind of trouble; branches have no tables."""
    none = Tables(TablesConfig(uri="/acktrail-has-no-tables-here"))
    return replace(build_run(), branches={each.name: each.read(none, None) for each in report_sections()})


def hostile_run() -> RunTables:
    """A run in which everything that has a name has a hostile one."""
    pairs = [
        share_partition(name, HOSTILE[n - 3], n, start=5, end=9, batches=((5, 6, 4, 5),), verdict=name, reason=name)
        for n, name in enumerate(HOSTILE)
    ]
    words = [
        dict.fromkeys(NAMED, name) | {"success": False, "configs": [(name, name)], "group_type": "share"}
        for name in HOSTILE
    ]
    return replace(
        sample_run(),
        share_partition_states=table("share_partition_states", [state for state, _ in pairs]),
        reconciliations=table("reconciliations", [verdict for _, verdict in pairs]),
        **{name: table(name, words) for name in ("findings", "quality_results", "topics", "group_observations")},
    )


def store(root: Path) -> TablesConfig:
    """The sample's rows in real tables, its exports in a commit each."""
    config = TablesConfig(uri=str(root))
    tables, sample = Tables(config), sample_run()
    for name in ("share_partition_states", "reconciliations", "quality_results", "group_observations"):
        tables.append(name, getattr(sample, name))
    for row in range(sample.export_ranges.num_rows):
        tables.append("export_ranges", sample.export_ranges.slice(row, 1))
    for name in ("findings", "topics"):
        tables.upsert(name, getattr(sample, name))
    return config
