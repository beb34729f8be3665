"""Topics that gained partitions, and groups that kept the order of keys across that or broke it: the tables of the
ledger and of its audit, made by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from definitions.dependencies import dependencies

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.tables.delta.store import Tables

__all__ = ["CLUSTER", "LOOK", "LOOKS", "NOW", "Rows", "SampleExpansion", "expansion_rows", "run_id", "write_rows"]

NOW = datetime(2026, 11, 23, 3, 4, 5, tzinfo=UTC)
CLUSTER = "5L6g3nShT-eMCtK--X86sw"
LOOK = timedelta(minutes=10)
LOOKS = 19
"""Looks at all topics, the newest three minutes before `NOW`."""
SETTLE = timedelta(minutes=7)
_A_LOOK = 600
"""Records that come to a partition between two looks."""

Rows = dict[str, list[dict[str, Any]]]
"""Rows by table."""


def at(look: int) -> datetime:
    """The instant of a look; the newest is `LOOKS` - 1."""
    return NOW - timedelta(minutes=3) - LOOK * (LOOKS - 1 - look)


def run_id(look: int) -> str:
    return f"look-{look:05d}"


@dataclass(frozen=True, kw_only=True)
class SampleExpansion:
    """A topic that gained partitions just before `look`. `verdicts`: of each group in each destination it has one for;
    `types`: of groups that are not of type consumer. `skipped`: records that a group skipped in the first new
    partition."""

    topic: str = "orders"
    topic_id: str = "000000MCtK-X86swAAAAAA"
    old_count: int = 2
    new_count: int = 3
    look: int = 8
    sequence: int = 1
    mapping: KeyMapping = KeyMapping.MURMUR2
    verdicts: Mapping[str, str] = field(default_factory=lambda: {"billing-workers": "safe"})
    types: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int | None] = field(default_factory=dict)
    most_destinations: int = 100

    @property
    def event_id(self) -> str:
        return f"{sum(self.topic_id.encode()):08x}{self.old_count:04x}{self.new_count:04x}"

    @property
    def is_settled(self) -> bool:
        return self.look < LOOKS - 1

    def low(self, partition: int) -> int:
        """The log end before the expansion."""
        return self.look * _A_LOOK + partition

    def high(self, partition: int) -> int | None:
        """The log end at the look after it."""
        return self.low(partition) + 2 * _A_LOOK if self.is_settled else None


def expansion_rows(samples: Sequence[SampleExpansion] = ()) -> Rows:
    """Rows of all tables, by default of one expansion after which everything is well."""
    rows: Rows = defaultdict(list)
    for sample in samples or [SampleExpansion()]:
        _observe(rows, sample)
        _expand(rows, sample)
        for group, verdict in sample.verdicts.items():
            _audit(rows, sample, group, verdict)
    return rows


def write_rows(tables: Tables, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Each table's rows as one commit; what an audit replaces is replaced."""
    for name, own in rows.items():
        table = pa.Table.from_pylist([{"cluster_id": CLUSTER, **row} for row in own], schema=TABLES[name])
        if name in {"partition_observations", "group_positions"}:
            tables.append(name, table)
        else:
            tables.replace(name, table)


def _observe(rows: Rows, sample: SampleExpansion) -> None:
    for look in range(LOOKS):
        count = sample.old_count if look < sample.look else sample.new_count
        rows["partition_observations"] += [
            {
                **_of_topic(sample), "run_id": run_id(look), "observed_at": at(look), "partition": partition,
                "partition_count": count, "consistency": "consistent", "leader_id": 1, "leader_epoch": look // 6,
                "isr_count": 3, "is_gapless": True, "log_start_offset": 0,
                "log_end_offset": (look + 1) * _A_LOOK + partition,
                "error_code": 0, **_ended(look, partition),
            }
            for partition in range(count)
        ]  # fmt: skip


def _ended(look: int, partition: int) -> dict[str, int]:
    """The epoch before the leader's own, and where it ended."""
    epoch = look // 6
    return {"ended_epoch": epoch - 1, "epoch_end_offset": epoch * 6 * _A_LOOK + partition} if epoch else {}


def _of_topic(sample: SampleExpansion) -> dict[str, Any]:
    return {"topic": sample.topic, "topic_id": sample.topic_id}


def _expand(rows: Rows, sample: SampleExpansion) -> None:
    own = {**_of_topic(sample), "event_id": sample.event_id}
    rows["partition_expansions"].append(
        {
            **own, "sequence": sample.sequence, "old_count": sample.old_count, "new_count": sample.new_count,
            "last_seen_old_at": at(sample.look - 1), "first_seen_new_at": at(sample.look),
            "settles_at": at(sample.look) + SETTLE, "status": "settled" if sample.is_settled else "settling",
            "is_single": sample.new_count == sample.old_count + 1, "key_mapping": sample.mapping.value,
            "run_id": run_id(LOOKS - 1),
        }
    )  # fmt: skip
    rows["expansion_fences"] += [
        {
            **own, "partition": partition, "fence_low": sample.low(partition), "fence_high": sample.high(partition),
            "leader_epoch_low": sample.look // 6, "leader_epoch_high": sample.look // 6, "log_start_offset": 0,
            "confidence": "bracketed" if sample.is_settled else "unknown",
            "reason": None if sample.is_settled else "not observed since the settle time",
        }
        for partition in range(sample.old_count)
    ]  # fmt: skip
    rows["partition_dependencies"] += [
        {
            **own, "source_event_id": sample.event_id, "partition": destination, "source_step": _step(sample),
            "kind": "new_partition" if destination >= sample.old_count else "existing_move",
            "source_count": sample.old_count, "sources": len(sources),
            "begins_low": 0 if destination >= sample.old_count else sample.low(destination),
            "begins_high": 0 if destination >= sample.old_count else sample.high(destination),
        }
        for destination, sources in _destinations(sample).items()
    ]  # fmt: skip


def _step(sample: SampleExpansion) -> int:
    from math import gcd

    return 1 if sample.mapping is KeyMapping.NONE else gcd(sample.old_count, sample.new_count)


def _destinations(sample: SampleExpansion) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for each in dependencies(sample.old_count, sample.new_count, sample.mapping):
        found[each.destination].append(each.source)
    return dict(found)


def _audit(rows: Rows, sample: SampleExpansion, group: str, verdict: str) -> None:
    own = {**_of_topic(sample), "group_id": group, "group_type": sample.types.get(group, "consumer")}
    destinations = _destinations(sample)
    for destination in sorted(destinations, reverse=True)[: sample.most_destinations]:
        sources = destinations[destination]
        rows["ordering_audits"].append(
            {
                **own, **_proof(sample, sources[0], destination, verdict), "run_id": run_id(LOOKS - 1),
                "event_id": sample.event_id, "source_event_id": sample.event_id, "partition": destination,
                "source_partition": sources[0], "verdict": verdict, "sources": len(sources),
                "sources_safe": len(sources) if verdict == "safe" else 0,
                "sources_violated": int(verdict == "violation"),
            }
        )  # fmt: skip
    rows["start_audits"].append(_start(sample, group, own, verdict))
    rows["group_positions"] += _positions(sample, own, verdict)


def _start(sample: SampleExpansion, group: str, own: Mapping[str, Any], verdict: str) -> dict[str, Any]:
    skipped = sample.skipped.get(group, 0)
    has_begun = verdict not in {"not_started", "unknown_fence"}
    return {
        **own, "run_id": run_id(LOOKS - 1), "event_id": sample.event_id, "partition": sample.old_count,
        "first_start_offset": skipped if has_begun else None, "first_seen_at": at(sample.look) if has_begun else None,
        "log_start_offset": 0, "skipped_records": skipped if has_begun else None,
        "verdict": ("skipped_records" if skipped else "ok") if has_begun else "unknown",
    }  # fmt: skip


_BEGINS = {"safe": 4, "violation": 1, "possible_violation": 2, "indeterminate": 3}
"""By verdict: how many looks after the expansion the destination was begun."""
_BEHIND = {"safe": 0, "violation": 3_000, "possible_violation": 900, "indeterminate": 900}
"""By verdict: how many records behind the log end the group is until the look before that."""


def _source(sample: SampleExpansion, source: int, verdict: str, look: int) -> int:
    """Where a group with a verdict is in a source at a look."""
    begins, end = sample.look + _BEGINS.get(verdict, LOOKS), (look + 1) * _A_LOOK + source
    is_late = look < begins + {"violation": 3, "possible_violation": 1}.get(verdict, 0)
    return max(0, end - (_BEHIND.get(verdict, 900) if is_late else 40))


def _proof(sample: SampleExpansion, source: int, destination: int, verdict: str) -> dict[str, Any]:
    low, high = sample.low(source), sample.high(source)
    fences = {"fence_low": None if verdict == "unknown_fence" else low, "fence_high": high}
    if verdict == "not_started":
        return {**fences, "at": at(LOOKS - 1), "source_at": _source(sample, source, verdict, LOOKS - 1)}
    if verdict not in _BEGINS:
        return fences
    look = min(sample.look + _BEGINS[verdict], LOOKS - 1)
    source_at = _source(sample, source, verdict, look)
    begin = 0 if destination >= sample.old_count else sample.low(destination)
    return {
        **fences, "before_at": at(look - 1), "at": at(look), "source_at": source_at,
        "source_before": _source(sample, source, verdict, look - 1), "destination_before": begin,
        "destination_at": begin + 25, "remaining": None if high is None else max(0, high - source_at),
    }  # fmt: skip


def _positions(sample: SampleExpansion, own: Mapping[str, Any], verdict: str) -> list[dict[str, Any]]:
    begins = sample.look + _BEGINS.get(verdict, LOOKS)
    found = []
    for look in range(LOOKS):
        known = {p: _source(sample, p, verdict, look) for p in range(min(sample.old_count, 20))}
        known |= {
            p: (look - begins) * 400 + 25 for p in range(sample.old_count, sample.new_count)[:20] if look >= begins
        }
        seen = {**own, "run_id": run_id(look), "observed_at": at(look) + timedelta(seconds=2), "error_code": 0}
        found += [{**seen, "partition": partition, "position": position} for partition, position in known.items()]
    return found
