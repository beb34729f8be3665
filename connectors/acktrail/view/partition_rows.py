"""Share partitions and groups of a run, a row each, the worst first: what was replayed, what the cluster answered, and
what they add up to.

Where two sources have a number the replayed one is shown, and the cluster's beside it where it differs. A number that
neither has is not known, and has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.plain_tables import KnownSum, known_lag, printable
from acktrail.view.archived_rows import PartitionKey, TableRow, partition_key, row_key
from acktrail.view.wording import (
    STATUSES,
    TONES,
    VERDICT_MEANINGS,
    canonical,
    counts_text,
    instant,
    is_trouble,
    status_rank,
    status_tone,
    tally,
    trouble_text,
    verdict_tone,
)

_NOTHING: Final[TableRow] = {}
_STATE_COLUMNS: Final = (
    *(*KEY_COLUMNS, "topic", "start_offset", "delivery_complete_count", "archived_seen"),
    *("completeness", "completeness_reason"),
)
_NOT_LISTED: Final = "the cluster does not list this group"
_PAST_END: Final = "the state reaches beyond the log's end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number and where it comes from.

    `source` is ``replayed`` (from the state topic) or ``described`` (the cluster's own answer); empty when `value` is
    None, and then `reason` says why. `described` is the cluster's answer where it differs from `value`.
    """

    value: int | None
    source: str = ""
    reason: str = ""
    described: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One share partition: its replayed state, the cluster's answer, and the verdict. `topic` None: name not known.

    `status` is one of `acktrail.model.queue_status`, since `status_since`; None: the run left none.
    """

    group_id: str
    topic_id: str
    topic: str | None
    partition: int | None
    start_offset: Figure
    lag: Figure
    archived: Figure
    verdict: str
    reason: str
    moved: bool | None
    completeness: str
    completeness_reason: str
    status: str | None = None
    status_since: datetime | None = None
    status_reason: str = ""

    @property
    def key(self) -> PartitionKey:
        return partition_key(self.group_id, self.topic_id, self.partition)

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Sort key, the worst first: the worse tone of status and verdict, the status, the tone of the verdict, the
        lag."""
        by_verdict = TONES.index(verdict_tone(self.verdict))
        tone = by_verdict if self.status is None else min(by_verdict, TONES.index(status_tone(self.status)))
        return tone, status_rank(self.status), by_verdict, -(self.lag.value or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One group as last observed, and what its share partitions add up to. Where only its state records are known, what
    was observed is None, for the `reason` that stands beside it.

    `status` is the worst of its share partitions, `status_since` the earliest time since which one has it,
    `status_reason` why; None: the run left no statuses."""

    group_id: str
    group_type: str | None
    group_state: str | None
    group_epoch: int | None
    assignment_epoch: int | None
    assignor: str | None
    members: int | None
    coordinator_id: int | None
    configs: Mapping[str, str]
    observed_at: datetime | None
    reason: str
    status: str | None
    status_since: datetime | None
    status_reason: str
    share_partitions: int
    statuses: Mapping[str, int]
    verdicts: Mapping[str, int]
    lag: KnownSum
    archived: KnownSum


def partition_rows(states: pa.Table, reconciliations: pa.Table, statuses: pa.Table) -> tuple[PartitionRow, ...]:
    """One row for every share partition that either of the first two tables has, the worst first: group by group, the
    group with the worst share partition first."""
    by_state = {row_key(row): row for row in states.select(list(_STATE_COLUMNS)).to_pylist()}
    by_verdict = {row_key(row): row for row in reconciliations.to_pylist()}
    by_status = {row_key(row): row for row in statuses.to_pylist()}
    found = (by_state, by_verdict, by_status)
    keys = by_state.keys() | by_verdict.keys()
    rows = [_partition_row(key, *(each.get(key, _NOTHING) for each in found)) for key in keys]
    ranked = sorted(rows, key=lambda row: (row.rank, row.group_id, row.topic or "", row.key))
    position = {group_id: at for at, group_id in enumerate(dict.fromkeys(row.group_id for row in ranked))}
    return tuple(sorted(ranked, key=lambda row: position[row.group_id]))


def most_urgent(rows: Sequence[PartitionRow], most: int) -> tuple[PartitionRow, ...]:
    """All rows, or the `most` that need attention first, in their order."""
    chosen = {row.key for row in sorted(rows, key=lambda row: row.rank)[:most]}
    return tuple(row for row in rows if row.key in chosen)


def group_rows(observations: pa.Table, partitions: Sequence[PartitionRow]) -> tuple[GroupRow, ...]:
    """Groups in the order of `partitions`, those that only their state records still name among them; then share groups
    that have none, by name."""
    latest = {str(row["group_id"]): row for row in observations.sort_by("observed_at").to_pylist()}
    shared = sorted(name for name, row in latest.items() if (row["group_type"] or "share").lower() == "share")
    own = {name: [*rows] for name, rows in groupby(partitions, lambda row: row.group_id)}
    names = [*own, *(name for name in shared if name not in own)]
    nothing = {**dict.fromkeys(observations.column_names), "error": _NOT_LISTED}
    return tuple(_group_row(name, latest.get(name, nothing), own.get(name, [])) for name in names)


def _group_row(group_id: str, observed: TableRow, rows: Sequence[PartitionRow]) -> GroupRow:
    known = [row for row in rows if row.status is not None]
    worst = min(known, key=lambda row: (status_rank(row.status), row.rank), default=None)
    alike = [row.status_since for row in known if worst is not None and row.status == worst.status]
    added: dict[str, Any] = {
        "group_id": group_id,
        "configs": dict(sorted(observed["configs"] or ())),
        "reason": observed["error"] or "not reported by the cluster",
        "status": worst.status if worst else None,
        "status_since": min((since for since in alike if since is not None), default=None),
        "status_reason": worst.status_reason if worst else "",
        "share_partitions": len(rows),
        "statuses": tally((row.status for row in known if row.status), STATUSES),
        "verdicts": tally((row.verdict for row in rows), VERDICT_MEANINGS),
        "lag": KnownSum.of(row.lag.value for row in rows),
        "archived": KnownSum.of(row.archived.value for row in rows),
    }
    return GroupRow(**{own.name: observed[own.name] for own in fields(GroupRow) if own.name not in added}, **added)


def group_line(group: GroupRow) -> str:
    """What the share partitions of a group add up to, in one line."""
    return f"{counts_text(group.statuses or group.verdicts)}; lag {group.lag}"


def notes(row: PartitionRow) -> tuple[str, ...]:
    """Notes beside the numbers of a share partition: since when it is in trouble, why and what to do; why the verdict;
    what is unknown and why."""
    unknown: dict[str, list[str]] = {}
    for name, figure in (("start offset", row.start_offset), ("lag", row.lag), ("archived", row.archived)):
        if figure.value is None:
            unknown.setdefault(figure.reason or "not reported", []).append(name)
    why = f" ({row.completeness_reason})" if row.completeness_reason else ""
    says_more = row.reason and (row.moved or verdict_tone(row.verdict) != "ok")
    found = (
        *([f"since {instant(row.status_since)}", trouble_text(row.status, row.status_reason)] if _is_told(row) else ()),
        *([row.reason] if says_more else ()),
        *([] if row.completeness == "complete" else [f"replayed state: {row.completeness.replace('_', ' ')}{why}"]),
        *(f"{' and '.join(names)} unknown: {reason}" for reason, names in unknown.items()),
    )
    return tuple(map(printable, found))


def _is_told(row: PartitionRow) -> bool:
    return row.status is not None and is_trouble(row.status)


def _partition_row(key: PartitionKey, state: TableRow, verdict: TableRow, status: TableRow) -> PartitionRow:
    start_reason = "the state is incomplete" if state else "no state record"
    if canonical(state.get("completeness")) == "complete":
        start_reason = "not initialized yet"
    durable = _first(verdict.get("durable_start_offset"), state.get("start_offset"))
    start = _figure(durable, verdict.get("described_start_offset_after"), reason=start_reason)
    archived = _first(verdict.get("archived_seen"), state.get("archived_seen"))
    said = (verdict.get("durable_lag"), verdict.get("described_lag_after"))
    lags = tuple(map(known_lag, said))
    lag_reason = _lag_reason(start, state, verdict) if said == lags else _PAST_END
    return PartitionRow(
        group_id=key[0],
        topic_id=key[1],
        topic=verdict.get("topic") or state.get("topic"),
        partition=_first(verdict.get("partition"), state.get("partition")),
        start_offset=start,
        lag=_figure(*lags, reason=lag_reason),
        archived=_figure(archived, None, reason="not counted" if state else "no state record"),
        verdict=canonical(verdict.get("verdict")),
        reason=verdict.get("reason") or ("" if verdict else "this run reached no verdict on it"),
        moved=verdict.get("moved"),
        completeness=canonical(state.get("completeness") or verdict.get("completeness")),
        completeness_reason=state.get("completeness_reason") or "",
        status=canonical(status["status"]) if status.get("status") else None,
        status_since=status.get("status_since"),
        status_reason=status.get("reason") or "",
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _figure(durable: int | None, described: int | None, *, reason: str) -> Figure:
    if durable is not None:
        return Figure(value=durable, source="replayed", described=None if described == durable else described)
    if described is not None:
        return Figure(value=described, source="described")
    return Figure(value=None, reason=reason)


def _lag_reason(start: Figure, state: TableRow, verdict: TableRow) -> str:
    if start.value is None:
        return start.reason
    if verdict.get("log_end_offset_after") is None:
        return "log end not observed"
    if state and state.get("delivery_complete_count") is None:
        return "the record has no complete count"
    return "the cluster gave none"
