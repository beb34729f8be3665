"""What the looks that are stored in the tables say about one topic."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.model.expansion.partition_ledger import LogEpochs, PartitionExpansion, TopicObservation, read_ledger
from acktrail.times import now_ms
from acktrail.topic_expansion.expansion_plan import ExpansionPlan

_PACE_MS: Final = 3_600_000
"""How far back the pace of a group is looked for."""
_BEFORE_MS: Final = 3_600_000
"""Looks from so long before a plan count for its fences."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_STRADDLES: Final = "straddles"
_SEEN: Final = ("run_id", "observed_at", "listed_at", "partition", "partition_count", "consistency")
_EPOCHS: Final = ("leader_epoch", "ended_epoch", "epoch_end_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsLeft:
    """What a group has, by the newest looks, of the records that may be from before an expansion: those below the high
    fences. `unknown` counts partitions without a known fence or position."""

    group_id: str
    group_type: str
    records: int
    unknown: int


def stored_expansion(tables: TablesConfig, plan: ExpansionPlan) -> PartitionExpansion | None:
    """The expansion that `plan` is about, as the looks since shortly before the plan show it; None: no look shows it
    yet, or another count lay in between."""
    rows = _rows(
        tables,
        "partition_observations",
        {"cluster_id": plan.cluster_id, "topic_id": plan.topic_id},
        since_ms=plan.created_at_ms - _BEFORE_MS,
        columns=[*_SEEN, *_EPOCHS, "log_start_offset", "log_end_offset"],
    )
    ledger = read_ledger(plan.cluster_id, plan.topic_id, observations(rows), plan.settle_ms)
    counts = (plan.old_count, plan.new_count)
    return next((each for each in ledger.expansions if (each.old_count, each.new_count) == counts), None)


def records_left(
    tables: TablesConfig, plan: ExpansionPlan, high_fences: Mapping[int, int | None]
) -> tuple[RecordsLeft, ...]:
    """What every group that the looks since the plan saw in the topic has not finished, by group id."""
    rows = _rows(
        tables,
        "group_positions",
        {"cluster_id": plan.cluster_id, "topic_id": plan.topic_id},
        since_ms=plan.created_at_ms,
        columns=["observed_at", "group_id", "group_type", "partition", "position"],
    )
    newest: dict[tuple[str, str], dict[int, int | None]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["observed_at"]):
        if row["partition"] is not None:
            newest[row["group_id"], row["group_type"]][row["partition"]] = row["position"]
    return tuple(
        _left(group_id, group_type, positions, high_fences)
        for (group_id, group_type), positions in sorted(newest.items())
    )


def verdicts(tables: TablesConfig, event_id: str | None) -> list[tuple[str, str, int]]:
    """Group, verdict, and of how many partitions the newest audit gave it for this expansion, by group and verdict;
    none where no audit has the expansion."""
    from acktrail.tables.delta.store import Tables

    rows = Tables(tables).rows("ordering_audits", {"event_id": event_id or ""}, columns=["group_id", "verdict"])
    counted = Counter((row["group_id"], row["verdict"]) for row in rows)
    return [(group_id, verdict, count) for (group_id, verdict), count in sorted(counted.items())]


def _left(
    group_id: str, group_type: str, positions: Mapping[int, int | None], high_fences: Mapping[int, int | None]
) -> RecordsLeft:
    pairs = [(high, positions.get(number)) for number, high in high_fences.items()]
    known = [max(0, high - position) for high, position in pairs if high is not None and position is not None]
    return RecordsLeft(group_id=group_id, group_type=group_type, records=sum(known), unknown=len(pairs) - len(known))


def observations(rows: Iterable[Mapping[str, Any]]) -> list[TopicObservation]:
    """Rows of ``partition_observations`` of one topic id as observations; a look that lacks partitions is left out."""
    by_look: dict[tuple[str, dt.datetime], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["partition"] is not None:
            by_look[row["run_id"], row["observed_at"]].append(row)
    found = []
    for (_, at), own in sorted(by_look.items(), key=lambda item: item[0][1]):
        ordered = sorted(own, key=lambda row: row["partition"])
        if [row["partition"] for row in ordered] == list(range(ordered[0]["partition_count"])):
            one = TopicObservation(
                observed_at_ms=(at - _EPOCH) // dt.timedelta(milliseconds=1),
                log_ends=tuple(row["log_end_offset"] for row in ordered),
                log_starts=tuple(row["log_start_offset"] for row in ordered),
                epochs=tuple(
                    LogEpochs(leader=row["leader_epoch"], ended=row["ended_epoch"], ended_at=row["epoch_end_offset"])
                    for row in ordered
                ),
                is_consistent=ordered[0]["consistency"] != _STRADDLES,
                listed_at_ms=_ms_up(ordered[0]["listed_at"]),
            )
            found.append(one)
    return found


def _ms_up(at: dt.datetime | None) -> int | None:
    return None if at is None else -((_EPOCH - at) // dt.timedelta(milliseconds=1))


def paces(tables: TablesConfig, cluster_id: str, topic_id: str) -> dict[str, int]:
    """How many records a second each group finished of a topic, by the first and the last look of the last hour, in
    partitions that both have; groups with one look, or that did not come forward, are left out."""
    rows = _rows(
        tables,
        "group_positions",
        {"cluster_id": cluster_id, "topic_id": topic_id},
        since_ms=now_ms() - _PACE_MS,
        columns=["observed_at", "group_id", "partition", "position"],
    )
    by_group: dict[str, dict[dt.datetime, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["partition"] is not None and row["position"] is not None:
            by_group[row["group_id"]][row["observed_at"]][row["partition"]] = row["position"]
    found = {group_id: _pace(looks) for group_id, looks in by_group.items()}
    return {group_id: pace for group_id, pace in found.items() if pace > 0}


def _pace(looks: Mapping[dt.datetime, Mapping[int, int]]) -> int:
    first, last = min(looks), max(looks)
    both = looks[first].keys() & looks[last].keys()
    records = sum(looks[last][number] - looks[first][number] for number in both)
    seconds = (last - first).total_seconds()
    return int(records / seconds) if seconds > 0 else 0


def _rows(
    tables: TablesConfig, name: str, equal: Mapping[str, object], *, since_ms: int, columns: list[str]
) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    from acktrail.tables.delta.store import Tables

    since = _EPOCH + dt.timedelta(milliseconds=max(0, since_ms))
    where = pc.field("observed_at") >= since
    for column, value in equal.items():
        where &= pc.field(column) == value
    found: list[dict[str, Any]] = Tables(tables).read(name, columns=columns, where=where).to_pylist()
    return found
