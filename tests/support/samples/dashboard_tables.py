"""Tables of many share partitions over many days, as the jobs leave them, without running any job."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from change.scenes import attempt

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.queue_status import QueueStatus
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.commit_order import number_at
from acktrail.tables.delta.store import Tables

NOW = datetime(2026, 11, 23, 3, 4, 5, tzinfo=UTC)
HOSTILE = (
    "<script>document.title='owned'</script>",
    "\"'><img src=x onerror=document.title='owned'>",
    "{{ 7 * 7 }}${7*7}%s",
    "a/../..//b?c=d&e#f",
    "'; DROP TABLE queue_statuses; --",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\u202egnp.exe\nline",
    "g" * 255,
)
"""Group ids and topic names that a client may have sent."""

CHECKS = tuple(
    (suite, rule)
    for suite in ("export_ranges", "reconciliations", "share_partition_states", "state_partitions", "state_records")
    for rule in rule_catalogue().rules
    if suite in rule.suites
)
"""What the gate of a reconciliation evaluates: suite and rule."""
_FOUND = (
    ("missing_state", "described by its coordinator, absent from the state topic"),
    ("poison_records_archived", "310 record(s) were archived"),
    (
        "archiving_stale",
        "41 record(s) have been archiving for 40 minutes: the share partition is stuck or has no leader",
    ),
)
"""Rules that findings name, and their details."""
CLUSTER = "5L6g3nShT-eMCtK--X86sw"
_TOPICS = ("orders", "payments", "clickstream", "emails", "shipments")
_GROUPS = ("billing-workers", "fraud-scoring", "email-sender", "warehouse", "search-index", "ledger")
_REASONS: dict[str, str] = json.loads(Path(__file__).with_name("dashboard_reasons.json").read_text("utf-8"))
"""Why a share partition has a status, by its name."""
_COMMON = (QueueStatus.OK, QueueStatus.OK, QueueStatus.OK, QueueStatus.IDLE, QueueStatus.OK, QueueStatus.OK)
_WINDOW = 10
_EVERY = timedelta(minutes=5)
_CHUNK = 288
_STATES = 30
_STATE_NAMES = {0: "available_records", 2: "acknowledged_records", 4: "archived_records"}
_STUCK_FOR = 30
"""Buckets of five minutes without a step."""
_A_BUCKET = 51
"""Records that come in five minutes."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much there is. `fine_days` are in buckets of five minutes, the days before them in hours. `names`
    are group ids of some groups."""

    groups: int = 24
    partitions_a_group: int = 4
    runs: int = 48
    fine_days: float = 1.0
    hourly_days: float = 7.0
    findings: int = 14
    names: tuple[str, ...] = HOSTILE


@dataclass(frozen=True, kw_only=True)
class _Queue:
    group_id: str
    topic: str
    topic_id: str
    partition: int
    status: QueueStatus
    start: int
    lag: int | None

    @property
    def place(self) -> dict[str, Any]:
        """The columns of every table that say which share partition it is."""
        return {name: getattr(self, name) for name in ("group_id", "topic_id", "topic", "partition")}


def write_dashboard_tables(root: Path, sizes: Sizes | None = None) -> Tables:
    """Tables below `root` as of `NOW`; the first groups have the names of `HOSTILE`, others are in trouble."""
    sizes = sizes or Sizes()
    tables, queues = Tables(TablesConfig(uri=str(root))), list(_queues(sizes))
    runs = [f"run-{number:05d}" for number in range(sizes.runs)]
    times = [NOW - timedelta(minutes=3) - _EVERY * (sizes.runs - 1 - number) for number in range(sizes.runs)]
    _put(tables, "queue_statuses", [_status(queue, runs[-1], times[-1]) for queue in queues])
    _put(tables, "status_changes", _changes(queues, runs, times))
    _put(
        tables,
        "run_totals",
        [_totals(queues, sizes, number, *run) for number, run in enumerate(zip(runs, times, strict=True))],
    )
    _put(tables, "reconcile_checks", [{"run_id": runs[-1], "reconciled_at": times[-1]}])
    _put(tables, "quality_results", [row for pair in zip(runs, times, strict=True) for row in results_of(*pair)])
    _put(tables, "topics", [_topic(name) for name in sorted({queue.topic for queue in queues})])
    _put(tables, "findings", _findings(queues, sizes, runs, times))
    _put(tables, "group_observations", _observations(queues, runs[-1], times[-1]))
    _put(tables, "export_ranges", [_range(number, times[-1]) for number in range(4)])
    _write_trends(tables, queues, timedelta(hours=1), sizes.fine_days, sizes.fine_days + sizes.hourly_days)
    _write_trends(tables, queues, timedelta(minutes=5), 0.0, sizes.fine_days)
    _write_states(tables, queues, runs, times)
    return tables


def topic_id_of(topic: str) -> str:
    """The topic's id, in Kafka's text form."""
    return urlsafe_b64encode(md5(topic.encode(), usedforsecurity=False).digest()).decode().rstrip("=")


def check_state(number: int, rule_id: str) -> str:
    """The result of a rule in the run `number`: most hold; a few fail in some runs, a few are never evaluated, and
    one is not in every third run."""
    if rule_id in {"update_has_base", "snapshot_cadence", "inflight_within_lock_limit"} or (
        rule_id == "nothing_pruned_before_export" and number % 3 == 0
    ):
        return "not_evaluated"
    is_broken = (rule_id in {"batches_non_overlapping", "record_decoded"} and number % 11 == 4) or (
        rule_id == "delivery_count_within_limit" and number % 48 > 43
    )
    return "fails" if is_broken else "holds"


def _put(tables: Tables, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    tables.append(name, [{"cluster_id": CLUSTER, **row} for row in rows])


def _queues(sizes: Sizes) -> Any:
    troubles = [each for each in QueueStatus if each not in {QueueStatus.OK, QueueStatus.IDLE}]
    for number in range(sizes.groups):
        plain = f"{_GROUPS[number % len(_GROUPS)]}" + ("" if number < len(_GROUPS) else f"-{number}")
        group_id = sizes.names[number - len(_GROUPS)] if 0 <= number - len(_GROUPS) < len(sizes.names) else plain
        for index in range(sizes.partitions_a_group):
            topic = _TOPICS[(number + index) % len(_TOPICS)] if group_id == plain else f"t{group_id}"[:249]
            is_first = index == 0 and number < len(troubles)
            status = troubles[number] if is_first else _COMMON[(number * 7 + index) % len(_COMMON)]
            lag = {QueueStatus.OK: 40, QueueStatus.IDLE: 0, QueueStatus.STATE_UNKNOWN: None}.get(status, 2_443 + number)
            yield _Queue(
                group_id=group_id, topic=topic, topic_id=topic_id_of(topic),
                partition=index, status=status, start=1_236_441 + 1_000 * index, lag=lag,
            )  # fmt: skip


def _status(queue: _Queue, run_id: str, at: datetime) -> dict[str, Any]:
    end = _log_end(queue)
    held = [(state, length) for state, length in _pieces(queue, 0)]
    records = {name: sum(length for state, length in held if state == number) for number, name in _STATE_NAMES.items()}
    stopped = queue.status is QueueStatus.STUCK
    return {
        **queue.place, "run_id": run_id, "observed_at": at, "status": queue.status.value,
        "status_since": at - timedelta(minutes=150 if queue.lag else 900), "reason": _REASONS[queue.status.name],
        "evidence_state_partition": 17, "evidence_offset": 90_210, "verdict": "match",
        "completeness": "gap" if queue.lag is None else "complete", "group_state": "Stable", "members": 3,
        "first_unfinished_offset": queue.start,
        "end_offset": queue.start + sum(length for _, length in _pieces(queue, 0)),
        "log_start_offset": queue.start - 500_000, "log_end_offset": end, "unfinished_records": queue.lag,
        **records, "archiving_records": 0,
        "max_delivery_count": 5, "delivery_count_limit": 5, "acknowledged": 0 if stopped else 4_000, "released": 310,
        "archived": 12,
        "delivery_counts": [{"delivery_count": n, "records": sum(records.values()) // 2**n} for n in range(1, 6)],
        "window": [
            {
                "observed_at": at - _EVERY * (_WINDOW - 1 - n), "first_unfinished_offset": queue.start,
                "log_start_offset": 0, "log_end_offset": end, "unfinished_records": queue.lag, "state_epoch": 1,
                "archiving_records": 0, "acknowledged": 400,
                "released": 31, "archived": 1,
            }
            for n in range(_WINDOW)
        ],
    }  # fmt: skip


def _pieces(queue: _Queue, age: int) -> tuple[tuple[int, int], ...]:
    """Delivery state and length of the runs past the start offset, `age` runs ago."""
    if queue.status is QueueStatus.IDLE:
        return ()
    last = 5 if queue.status is QueueStatus.OK else 700
    return ((2, 160), (0, 10), (4, 40), (2, 300), (0, 25), (2, 500), (4, 3), (0, max(1, last - 20 * min(age, 30))))


def _log_end(queue: _Queue) -> int | None:
    """Lag as a broker counts it: the records up to the log end that are neither acknowledged nor archived."""
    return None if queue.lag is None else queue.start + _finished(queue) + queue.lag


def _finished(queue: _Queue) -> int:
    return sum(length for state, length in _pieces(queue, 0) if state)


def _changes(queues: Sequence[_Queue], runs: Sequence[str], times: Sequence[datetime]) -> list[dict[str, Any]]:
    chosen = [queue for queue in queues if queue.status not in {QueueStatus.OK, QueueStatus.IDLE}]
    seen = [*zip(runs, times, strict=True)][::-1]
    rows = []
    for number, queue in enumerate(chosen[:200]):
        run_id, at = seen[number % len(seen)]
        rows.append({
            **queue.place, "run_id": run_id, "changed_at": at, "before": None if number == 3 else "ok",
            "after": queue.status.value, "reason": _REASONS[queue.status.name],
            "evidence_state_partition": 17, "evidence_offset": 90_000 + number,
        })  # fmt: skip
    return rows


def _totals(queues: Sequence[_Queue], sizes: Sizes, number: int, run_id: str, at: datetime) -> dict[str, Any]:
    def counted(statuses: Sequence[str]) -> list[tuple[str, int]]:
        return [(each, statuses.count(each)) for each in sorted(set(statuses))]

    trouble = min(number // 6, 4)
    groups = ["stuck"] * trouble + ["lagging"] * 3 + ["ok"] * max(0, sizes.groups - 3 - trouble)
    return {
        "run_id": run_id, "run_number": number_at(at), "observed_at": at,
        "groups": sizes.groups, "share_partitions": len(queues),
        "statuses": counted(groups), "group_statuses": counted(groups), "verdicts": [("match", len(queues))],
        "findings": [("critical", 1), ("warning", 4)], "new_findings": int(number % 9 == 0),
        "unfinished_records": 150_000 + 97 * number, "unfinished_unknown": 1, "archived_seen": 12_000 + number,
        "records_exported": 4_000_000 + 1_000 * number, "records_quarantined": 2, "gaps": 1, "gap_records": 310,
    }  # fmt: skip


def results_of(run_id: str, at: datetime) -> list[dict[str, Any]]:
    """The results of expectations in a run that observed at a time."""
    rows = []
    for suite, rule in CHECKS:
        state = check_state(int(run_id.split("-")[1]), rule.id)
        fails, skipped = state == "fails", state == "not_evaluated"
        rows.append(
            {
                "run_id": run_id, "suite": suite, "expectation": rule.id, "severity": rule.severity.value,
                "success": None if skipped else not fails, "state": state,
                "element_count": 0 if skipped else 50_000, "unexpected_count": 1_204 if fails else 0,
                "observed_value": f"{HOSTILE[0]}; {HOSTILE[6]}" if fails else None,
                "reason": "no row was compared" if skipped else None, "evaluated_at": at + timedelta(seconds=40),
            }
        )  # fmt: skip
    return rows


def _topic(name: str) -> dict[str, Any]:
    times = {"first_seen_at": NOW - timedelta(days=90), "last_seen_at": NOW}
    return {"topic_id": topic_id_of(name), "topic": name, "partition_count": 8, "status": "present", **times}


def _findings(
    queues: Sequence[_Queue], sizes: Sizes, runs: Sequence[str], times: Sequence[datetime]
) -> list[dict[str, Any]]:
    rows = []
    for number in range(sizes.findings):
        queue, (rule, detail) = queues[number % len(queues)], _FOUND[number % len(_FOUND)]
        subject = f"{queue.group_id}:{queue.topic_id}:{queue.partition}"
        seen = {"first_seen_at": times[0], "last_seen_at": times[-1], "times_seen": number + 1}
        rows.append({
            **queue.place, **seen, "run_id": runs[-1] if number % 4 else runs[0], "rule": rule, "detail": detail,
            "severity": rule_catalogue().by_id[rule].severity.value, "subject": subject,
            "evidence_state_partition": 17, "evidence_offset": 90_210 + number,
        })  # fmt: skip
    return rows


def _observations(queues: Sequence[_Queue], run_id: str, at: datetime) -> list[dict[str, Any]]:
    return [
        {
            "run_id": run_id, "run_number": number_at(at), "phase": phase, "observed_at": at,
            "group_id": group_id, "group_type": "share",
            "group_state": "Stable", "group_epoch": 7, "assignment_epoch": 7, "assignor": "simple", "members": 3,
            "coordinator_id": 1, "error_code": 0,
            "configs": [("share.delivery.count.limit", "5"), ("share.record.lock.duration.ms", "30000")],
        }
        for group_id in dict.fromkeys(queue.group_id for queue in queues)
        for phase in ("before", "after")
    ]  # fmt: skip


def _range(number: int, at: datetime) -> dict[str, Any]:
    return {
        "run_id": "export-1", "state_topic_id": "T0MCtK-X86swAAAAAAAAAA", "state_partition": number, "first_offset": 0,
        "last_offset": 999_999, "records_read": 1_000_000, "records_decoded": 1_000_000, "records_quarantined": 0,
        "log_start_offset": 0, "log_end_offset": 1_000_000, "exported_at": at - timedelta(seconds=50),
        "records_version": number_at(at),
    }  # fmt: skip


def _write_trends(
    tables: Tables, queues: Sequence[_Queue], length: timedelta, newest_days: float, oldest_days: float
) -> None:
    """Buckets of one length, of each share partition and of each group, ordered as a chunk is."""
    count = round(timedelta(days=oldest_days - newest_days) / length)
    if not count:
        return
    seconds = int(length.total_seconds())
    last = int((NOW - timedelta(days=newest_days)).timestamp()) // seconds * seconds
    at = (last - seconds * np.arange(count - 1, -1, -1)) * 1_000_000
    passed = round(_A_BUCKET * timedelta(days=newest_days) / _EVERY)
    by_group: dict[str, list[_Queue]] = {}
    for queue in queues:
        by_group.setdefault(queue.group_id, []).append(queue)
    for first in range(0, count, _CHUNK):
        part = slice(first, first + _CHUNK)
        pieces = []
        for group_id, own in sorted(by_group.items()):
            pieces += [_trend(group_id, queue, queue, at, length, part, passed) for queue in own]
            pieces.append(_trend(group_id, None, own[0], at, length, part, passed))
        tables.append("queue_trends", pa.concat_tables(pieces).combine_chunks())


def _write_states(tables: Tables, queues: Sequence[_Queue], runs: Sequence[str], times: Sequence[datetime]) -> None:
    """States of the newest runs, and the present one as the history holds it."""
    for run_id, at in list(zip(runs, times, strict=True))[-_STATES:]:
        age = (times[-1] - at) // _EVERY
        _put(tables, "share_partition_states", [_state(queue, run_id, at, age) for queue in queues])
    held = [_state(queue, runs[-1], times[-1], 0) for queue in queues]
    names = set(TABLES["held_states"].names)
    rows = [{**{name: row[name] for name in row.keys() & names}, "held": "state"} for row in held]
    _put(tables, "held_states", rows)


def _state(queue: _Queue, run_id: str, at: datetime, age: int) -> dict[str, Any]:
    is_stuck = queue.status is QueueStatus.STUCK
    start = queue.start - (0 if is_stuck else 90 * age)
    batches, first = [], start
    for state, length in _pieces(queue, age):
        batches.append(
            {"first_offset": first, "last_offset": first + length - 1, "delivery_state": state, "delivery_count": 1}
        )
        first += length
    return {
        **queue.place, "run_id": run_id, "observed_at": at, "state_partition": 17, "snapshot_epoch": 3,
        "state_epoch": 1, "leader_epoch": 0, "start_offset": start, "first_unfinished_offset": start,
        "end_offset": first, "batches": batches, "completeness": "complete" if queue.lag is not None else "gap",
    }  # fmt: skip


def _trend(
    group_id: str, queue: _Queue | None, like: _Queue, at: Any, length: timedelta, part: slice, passed: int
) -> pa.Table:
    """The buckets `part` of those that begin `at`, which end `passed` records before the present start offset."""
    count = len(at)
    steps = np.arange(count)
    grown = np.cumsum((np.full(count, 40) + (steps * 7919) % 23) * (length // _EVERY))
    is_stuck = like.status is QueueStatus.STUCK and not passed
    stop = max(1, count - _STUCK_FOR)
    begin = like.start - passed - (grown[stop - 1] if is_stuck else grown[-1])
    start = begin + (np.minimum(grown, grown[stop - 1]) if is_stuck else grown)
    lag = 60 + (steps * 104729) % 400 + (begin + grown - start)
    if not passed:
        lag += ((like.lag or 0) - lag[-1]) * (steps >= stop) * (steps - stop + 1) // (count - stop)
    end = start + lag + _finished(like)
    held = sum(length for _, length in _pieces(like, 0))
    done = np.diff(start, prepend=start[0])
    offsets = {
        "first_unfinished_offset": start,
        "end_offset": np.minimum(end, start + held),
        "log_start_offset": start - 10_000,
        "log_end_offset": end,
    }
    columns = {
        "cluster_id": CLUSTER,
        "chunk": int(length.total_seconds()) * 1_000 + part.start // _CHUNK,
        "group_id": group_id,
        "topic_id": None if queue is None else like.topic_id,
        "topic": None if queue is None else like.topic,
        "partition": None if queue is None else like.partition,
        "bucket_ms": round(length / timedelta(milliseconds=1)),
        "bucket_at": at,
        "observed_at": at,
        "observations": 1,
        **(dict.fromkeys(offsets) if queue is None else offsets),
        "unfinished_records": lag,
        "most_unfinished_records": lag + 20,
        "acknowledged": done,
        "released": (steps * 31) % 17,
        "archived": (steps % 13 == 0).astype("int64"),
    }
    fields = TABLES["queue_trends"]
    arrays = [_column(columns[field.name], part, len(at[part]), field.type) for field in fields]
    return pa.table(arrays, schema=fields)


def _column(value: Any, part: slice, count: int, kind: pa.DataType) -> pa.Array:
    """A column of one value, or of one for each row."""
    if isinstance(value, np.ndarray):
        return pa.array(value[part]).cast(kind)
    return pa.repeat(pa.scalar(value, kind), count)


def write_evidence_tables(tables: Tables, *, runs: int = 48) -> None:
    """What findings, checks, resets and the export show beside that: state records, results of expectations, gaps, a
    reset from plan to proof."""
    _put(tables, "state_records", _records())
    if not tables.exists("quality_results"):
        _put(tables, "quality_results", results_of(f"run-{runs - 1:05d}", NOW - timedelta(minutes=3)))
    common = {"run_id": "export-1", "records_read": 0, "records_decoded": 0, "records_quarantined": 0}
    common |= {"exported_at": NOW - timedelta(hours=2)}
    gaps = ((1, 4_000, 4_309, "pruned"), (2, 0, 99, "pruned_before_first_export"), (3, 70, 70, "log_replaced"))
    names = ("state_partition", "gap_first", "gap_last", "gap_reason")
    _put(tables, "export_ranges", [{**common, **dict(zip(names, gap, strict=True))} for gap in gaps])
    attempt(Path(tables.config.uri), 1)


def _records() -> list[dict[str, Any]]:
    """The record that findings and statuses name with those after it, and one in quarantine."""
    common = {"run_id": "export-1", "timestamp_ms": int((NOW - timedelta(minutes=8)).timestamp() * 1000)}
    batches = [
        {"first_offset": 1_236_441, "last_offset": 1_236_499, "delivery_state": 2, "delivery_count": 1},
        {"first_offset": 1_236_500, "last_offset": 1_236_500, "delivery_state": 4, "delivery_count": 5},
    ]
    good = {
        **common, "state_partition": 17, "key": b"\x00\x00\x00\x0fbilling-workers", "value": bytes(range(120)),
        "record_type": "update", "group_id": "billing-workers", "topic_id": topic_id_of("orders"), "partition": 0,
        "snapshot_epoch": 4, "leader_epoch": 7, "start_offset": 1_200_000, "delivery_complete_count": 60,
        "batches": batches, "decode_status": "decoded",
    }  # fmt: skip
    bad = {
        **common, "state_partition": 3, "offset": 41, "key": HOSTILE[0].encode(), "value": HOSTILE[6].encode() * 40,
        "decode_status": "malformed_value", "decode_error": f"string at byte 4 is too long {HOSTILE[1]}",
    }  # fmt: skip
    return [*({**good, "offset": 90_210 + number} for number in range(20)), bad]
