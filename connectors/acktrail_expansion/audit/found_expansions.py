"""Expansions with their fences: those that looks show, and those that only the tables have any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from acktrail.columnar.schemas.schema_types import INT64
from acktrail.tables.delta.store import Tables
from acktrail_expansion.audit.asked_expansions import Change
from acktrail_expansion.audit.topic_looks import Logs, LookPlace, TopicLooks, observation
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.law.partition_ledger import FenceGap, PartitionExpansion, read_ledger

EXPANSIONS: Final = "partition_expansions"
FENCES: Final = "expansion_fences"
MappingOf = Callable[[str], KeyMapping]
"""The key mapping of a topic, by its name."""
Row = dict[str, Any]
_VOID: Final = (FenceGap.TRUNCATED.value, FenceGap.LEADERS_CHANGED.value)
_INSTANTS: Final = ("last_seen_old_at", "first_seen_new_at", "settles_at")
_BY_KEYS: Final = (
    *("fence_exact", "keys_read_at", "keys_reason", "last_record_offset"),
    *("old_records", "late_records", "elsewhere_records"),
)
"""The columns of a fence that come from keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExpansion:
    """One expansion: rows of ``partition_expansions`` (instants in microseconds) and of ``expansion_fences``, by
    partition. `is_gapless`: every offset is a record's. `settled_at`: the first look with every log since then, in
    microseconds; None: there is none."""

    row: Row
    fences: tuple[Row, ...]
    is_gapless: bool
    settled_at: int | None

    @property
    def old_count(self) -> int:
        """Partitions before."""
        return int(self.row["old_count"])

    @property
    def new_count(self) -> int:
        """Partitions after."""
        return int(self.row["new_count"])

    @property
    def mapping(self) -> KeyMapping:
        """How keys are mapped."""
        return KeyMapping(self.row["key_mapping"])

    def ends(self, partition: int) -> tuple[int | None, int | None]:
        """The low and the high end of a partition's fence, which ends with its last record where that is known."""
        fence = self.fences[partition]
        exact, last = fence["fence_exact"], fence["last_record_offset"]
        if exact is None:
            return fence["fence_low"], fence["fence_high"]
        return (exact, exact) if last is None else (last + 1, last + 1)

    def last_record(self, partition: int) -> int:
        """The newest offset below the low end that is a record's for certain; -1: none is known."""
        low, _ = self.ends(partition)
        known = self.fences[partition]["last_record_offset"]
        return -1 if low is None else low - 1 if self.is_gapless else -1 if known is None else int(known)

    def begins(self, partition: int) -> tuple[int | None, int | None]:
        """From which offset on records of a destination are perhaps, and for certain, from after the expansion."""
        return self.ends(partition) if partition < self.old_count else (0, 0)


def find_expansions(
    cluster_id: str,
    looks: Mapping[str, TopicLooks],
    read: Callable[[Collection[LookPlace]], Mapping[LookPlace, Logs]],
    settle_us: int,
    asked: Collection[Change],
) -> dict[str, tuple[PartitionExpansion, ...]]:
    """The expansions that looks show, by topic id; `read` gives the logs of looks; `asked`: what acktrail made."""
    wanted = {topic_id: sorted(own.wanted(settle_us)) for topic_id, own in looks.items()}
    logs = read([(topic_id, int(looks[topic_id].at[each])) for topic_id, own in wanted.items() for each in own])
    found = {}
    for topic_id, numbers in wanted.items():
        own = looks[topic_id]
        seen = [observation(own, each, logs.get((topic_id, int(own.at[each])), {})) for each in numbers]
        at_once = {(old, new) for name, old, new in asked if name == topic_id}
        if seen:
            found[topic_id] = read_ledger(cluster_id, topic_id, seen, settle_us // 1_000, at_once=at_once)
    return found


def with_stored(
    cluster_id: str,
    looks: Mapping[str, TopicLooks],
    found: Mapping[str, Sequence[PartitionExpansion]],
    newest: Mapping[str, Logs],
    stored: Mapping[str, tuple[Row, list[Row]]],
) -> list[tuple[Row, list[Row]]]:
    """`found` as rows, and the `stored` ones that are older than every look at their topic that is left, by topic id
    and time. `newest`: the logs in the newest look of each topic. What keys showed is kept, and so are the fences of an
    expansion whose looks from before it are gone. Where a log lost records since, neither is."""
    rows = []
    for topic_id, expansions in found.items():
        for each in expansions:
            named = {"cluster_id": cluster_id, "event_id": each.event_id, "topic_id": topic_id}
            rows.append(_rows({**named, "topic": looks[topic_id].topic}, each, stored.get(each.event_id)))
            for fence in rows[-1][1]:
                fence["log_start_offset"] = newest.get(topic_id, {}).get(fence["partition"], {}).get("log_start_offset")
    known = {row["event_id"] for row, _ in rows}
    rows += [own for event_id, own in stored.items() if event_id not in known and _is_older(own[0], looks)]
    return sorted(rows, key=lambda own: (own[0]["topic_id"], own[0]["first_seen_new_at"]))


def _is_older(row: Row, looks: Mapping[str, TopicLooks]) -> bool:
    own = looks.get(row["topic_id"])
    return own is None or bool(own.at[0] > row["last_seen_old_at"])


def _rows(named: Row, found: PartitionExpansion, stored: tuple[Row, list[Row]] | None) -> tuple[Row, list[Row]]:
    row = {
        **named,
        "old_count": found.old_count,
        "new_count": found.new_count,
        "last_seen_old_at": found.last_seen_old_at_ms * 1_000,
        "first_seen_new_at": found.first_seen_new_at_ms * 1_000,
        "settles_at": None if found.settles_at_ms is None else found.settles_at_ms * 1_000,
        "status": found.status.value,
        "is_single": found.is_single or (stored is not None and bool(stored[0]["is_single"])),
    }
    before = {} if stored is None else {each["partition"]: each for each in stored[1]}
    fences = [
        _fence(
            {
                **named,
                "partition": partition,
                "fence_low": fence.low,
                "fence_high": fence.high,
                "reason": None if gap is None else gap.value,
            },
            before.get(partition),
        )
        for partition, (fence, gap) in enumerate(zip(found.fences, found.gaps, strict=True))
    ]
    return row, fences


def _fence(own: Row, before: Row | None) -> Row:
    is_void = own["reason"] in _VOID or (before is not None and before["reason"] in _VOID)
    keys = {name: None if before is None or is_void else before[name] for name in _BY_KEYS}
    if before is not None and own["reason"] == FenceGap.NOT_SEEN_BEFORE:
        own |= {name: before[name] for name in ("fence_low", "fence_high", "reason")}
    return {**own, **keys}


def as_expansions(
    rows: Iterable[tuple[Row, list[Row]]], looks: Mapping[str, TopicLooks], run_id: str, mapping_of: MappingOf
) -> list[TopicExpansion]:
    """Rows with what the newest looks and the settings say, numbered in each topic."""
    found = []
    for topic_id, every in groupby(rows, key=lambda own: own[0]["topic_id"]):
        own = looks.get(topic_id)
        for number, (row, fences) in enumerate(every, start=1):
            settled = None if own is None or row["settles_at"] is None else own.first_whole(row["settles_at"])
            row |= {"sequence": number, "run_id": run_id, "key_mapping": mapping_of(row["topic"]).value}
            found.append(
                TopicExpansion(
                    row=row,
                    fences=tuple(sorted(fences, key=itemgetter("partition"))),
                    is_gapless=own is not None and own.is_gapless,
                    settled_at=None if own is None or settled is None else int(own.at[settled]),
                )
            )
    return found


def stored_expansions(tables: Tables) -> dict[str, tuple[Row, list[Row]]]:
    """The rows of each expansion that the run before wrote, by event id. One that lacks a fence is left out."""
    fences: dict[str, list[Row]] = {}
    for fence in tables.read(FENCES).to_pylist():
        fences.setdefault(fence["event_id"], []).append(fence)
    rows = tables.read(EXPANSIONS)
    for name in _INSTANTS:
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(INT64))
    pairs = ((row, fences.get(row["event_id"], [])) for row in rows.to_pylist())
    return {row["event_id"]: (row, own) for row, own in pairs if len(own) == row["old_count"]}
