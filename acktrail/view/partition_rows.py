"""Share partitions and groups of a run, a row each, the worst first: what was replayed, what the cluster answered, and
what they add up to.

Where two sources have a number the replayed one is shown, and the cluster's beside it where it differs. A number that
neither has is not known, and has a reason.

Which offsets a group archived, and after how many deliveries, is known from two sources. The state of the run has what
is archived in it now. ``delivery_history`` has what was archived before and has left the state since: the start offset
moved past it, or a reset or a deletion took it away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches, covered
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.record_history import ArchivedRange
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.commit_order import in_order
from acktrail.text_tables import KnownSum, known_lag, printable
from acktrail.view import wording

TableRow = Mapping[str, Any]
PartitionKey = tuple[str, str, int]
"""Group id, topic id, partition (-1 where a row names none): one share partition."""
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
        by_verdict = wording.TONES.index(wording.verdict_tone(self.verdict))
        tone = (
            by_verdict
            if self.status is None
            else min(by_verdict, wording.TONES.index(wording.status_tone(self.status)))
        )
        return tone, wording.status_rank(self.status), by_verdict, -(self.lag.value or 0)


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
    latest = {str(row["group_id"]): row for row in in_order(observations).to_pylist()}
    shared = sorted(name for name, row in latest.items() if (row["group_type"] or "share").lower() == "share")
    own = {name: [*rows] for name, rows in groupby(partitions, lambda row: row.group_id)}
    names = [*own, *(name for name in shared if name not in own)]
    nothing = {**dict.fromkeys(observations.column_names), "error": _NOT_LISTED}
    return tuple(_group_row(name, latest.get(name, nothing), own.get(name, [])) for name in names)


def _group_row(group_id: str, observed: TableRow, rows: Sequence[PartitionRow]) -> GroupRow:
    known = [row for row in rows if row.status is not None]
    worst = min(known, key=lambda row: (wording.status_rank(row.status), row.rank), default=None)
    alike = [row.status_since for row in known if worst is not None and row.status == worst.status]
    added: dict[str, Any] = {
        "group_id": group_id,
        "configs": dict(sorted(observed["configs"] or ())),
        "reason": observed["error"] or "not reported by the cluster",
        "status": worst.status if worst else None,
        "status_since": min((since for since in alike if since is not None), default=None),
        "status_reason": worst.status_reason if worst else "",
        "share_partitions": len(rows),
        "statuses": wording.tally((row.status for row in known if row.status), wording.STATUSES),
        "verdicts": wording.tally((row.verdict for row in rows), wording.VERDICT_MEANINGS),
        "lag": KnownSum.of(row.lag.value for row in rows),
        "archived": KnownSum.of(row.archived.value for row in rows),
    }
    return GroupRow(**{own.name: observed[own.name] for own in fields(GroupRow) if own.name not in added}, **added)


def group_line(group: GroupRow) -> str:
    """What the share partitions of a group add up to, in one line."""
    return f"{wording.counts_text(group.statuses or group.verdicts)}; lag {group.lag}"


def notes(row: PartitionRow) -> tuple[str, ...]:
    """Notes beside the numbers of a share partition: since when it is in trouble, why and what to do; why the verdict;
    what is unknown and why."""
    unknown: dict[str, list[str]] = {}
    for name, figure in (("start offset", row.start_offset), ("lag", row.lag), ("archived", row.archived)):
        if figure.value is None:
            unknown.setdefault(figure.reason or "not reported", []).append(name)
    why = f" ({row.completeness_reason})" if row.completeness_reason else ""
    says_more = row.reason and (row.moved or wording.verdict_tone(row.verdict) != "ok")
    found = (
        *(
            [
                f"since {wording.instant(row.status_since)}",
                wording.trouble_text(row.status, row.status_reason, row.group_id, row.topic),
            ]
            if row.status is not None and wording.is_trouble(row.status)
            else ()
        ),
        *([row.reason] if says_more else ()),
        *([] if row.completeness == "complete" else [f"replayed state: {row.completeness.replace('_', ' ')}{why}"]),
        *(f"{' and '.join(names)} unknown: {reason}" for reason, names in unknown.items()),
    )
    return tuple(map(printable, found))


def _partition_row(key: PartitionKey, state: TableRow, verdict: TableRow, status: TableRow) -> PartitionRow:
    start_reason = "the state is incomplete" if state else "no state record"
    if wording.canonical(state.get("completeness")) == "complete":
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
        verdict=wording.canonical(verdict.get("verdict")),
        reason=verdict.get("reason") or ("" if verdict else "this run reached no verdict on it"),
        moved=verdict.get("moved"),
        completeness=wording.canonical(state.get("completeness") or verdict.get("completeness")),
        completeness_reason=state.get("completeness_reason") or "",
        status=wording.canonical(status["status"]) if status.get("status") else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRow:
    """A run of offsets that a group archived with one delivery count.

    `retained`: the replayed state holds it; else the start offset moved past it, or a reset took it away since.
    """

    group_id: str
    topic_id: str
    topic: str | None
    partition: int | None
    first_offset: int
    last_offset: int
    delivery_count: int
    retained: bool

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


def partition_key(group_id: str | None, topic_id: str | None, partition: int | None) -> PartitionKey:
    """The key of a row; sortable also where a column is null."""
    return (group_id or "", topic_id or "", -1 if partition is None else partition)


def row_key(row: TableRow) -> PartitionKey:
    """Return the key of the share partition that a row is about."""
    return partition_key(row["group_id"], row["topic_id"], row["partition"])


def archived_rows(
    states: pa.Table, history: Iterable[ArchivedRange], looked: pa.Table | None = None
) -> tuple[ArchivedRow, ...]:
    """Disjoint runs of archived offsets per share partition, ascending.

    An offset that was archived twice (a reset in between) is listed once, with its highest delivery count.
    `states` are those of one run, `history` is what is known of their groups, `looked` are rows of
    ``archived_offsets``: offsets that are no records are left out. Left out, too, is what a record after the run
    shows, and what another state partition than the state's has of the same key.
    """
    columns = [*KEY_COLUMNS, "topic", "state_partition", "last_record_offset"]
    heads = {row_key(row): row for row in states.select(columns).to_pylist()}
    now, before = _in_state(states, looked), _in_history(history, heads)
    keys = sorted(now.keys() | before.keys())
    return tuple(row for key in keys for row in _rows(key, heads[key], now[key], before[key]))


def groups_with_more(states: pa.Table, looked: pa.Table | None = None) -> tuple[str, ...]:
    """Groups that archived more than their state shows: only the history has those offsets."""
    listed = {key: sum(covered(batch, None) for batch in batches) for key, batches in _in_state(states, looked).items()}
    seen = states.select([*KEY_COLUMNS, "archived_seen"]).to_pylist()
    return tuple(sorted({row["group_id"] for row in seen if (row["archived_seen"] or 0) > listed.get(row_key(row), 0)}))


def _in_state(states: pa.Table, looked: pa.Table | None) -> defaultdict[PartitionKey, tuple[StateBatch, ...]]:
    """The archived batches of every state that has one, disjoint and ascending, without offsets that are no records."""
    column = states["batches"].combine_chunks()
    batches = pc.list_flatten(column)
    is_archived = pc.equal(pc.struct_field(batches, "delivery_state"), int(DeliveryState.ARCHIVED))
    owners = states.select(list(KEY_COLUMNS)).take(pc.list_parent_indices(column).filter(is_archived))
    archived = (StateBatch(**batch) for batch in batches.filter(is_archived).to_pylist())
    none: defaultdict[PartitionKey, OffsetRanges] = defaultdict(OffsetRanges)
    for row in [] if looked is None else looked.filter(~pc.field("is_record")).to_pylist():
        none[row_key(row)].add(row["first_offset"], row["last_offset"])
    return _combined(
        (key, replace(batch, first_offset=first, last_offset=last))
        for key, batch in zip(map(row_key, owners.to_pylist()), archived, strict=True)
        for first, last in none[key].outside(batch.first_offset, batch.last_offset)
    )


def _in_history(
    history: Iterable[ArchivedRange], heads: Mapping[PartitionKey, TableRow]
) -> defaultdict[PartitionKey, tuple[StateBatch, ...]]:
    """The ranges that were archived by a record from which a state was replayed, as batches."""
    own = []
    for each in history:
        key = partition_key(each.key.group_id, each.key.topic_id, each.key.partition)
        head = heads.get(key)
        if head is None or each.at.state_partition != head["state_partition"]:
            continue
        if head["last_record_offset"] is None or each.at.offset <= head["last_record_offset"]:
            batch = StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=DeliveryState.ARCHIVED,
                delivery_count=each.delivery_count or 0,
            )
            own.append((key, batch))
    return _combined(own)


def _combined(archived: Iterable[tuple[PartitionKey, StateBatch]]) -> defaultdict[PartitionKey, tuple[StateBatch, ...]]:
    found: defaultdict[PartitionKey, list[StateBatch]] = defaultdict(list)
    for key, batch in archived:
        if batch.first_offset <= batch.last_offset:
            found[key].append(batch)
    return defaultdict(tuple, {key: combine_state_batches((), batches, None) for key, batches in found.items()})


def _rows(
    key: PartitionKey, head: TableRow, now: tuple[StateBatch, ...], before: tuple[StateBatch, ...]
) -> Iterator[ArchivedRow]:
    """`now` as it is, and of `before` the offsets that `now` does not have."""
    retained = OffsetRanges()
    for batch in now:
        retained.add(batch.first_offset, batch.last_offset)
    runs = [(batch.first_offset, batch.last_offset, batch.delivery_count, True) for batch in now]
    for batch in before:
        parts = retained.outside(batch.first_offset, batch.last_offset)
        runs += [(first, last, batch.delivery_count, False) for first, last in parts]
    for first, last, count, is_retained in sorted(runs):
        yield ArchivedRow(
            group_id=key[0],
            topic_id=key[1],
            topic=head["topic"],
            partition=head["partition"],
            first_offset=first,
            last_offset=last,
            delivery_count=count,
            retained=is_retained,
        )
