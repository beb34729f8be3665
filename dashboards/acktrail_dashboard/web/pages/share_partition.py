"""One share partition: status and evidence, offsets, lag and rates over time, state bands, the fate of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.errors import AcktrailError, InputError, UnknownName
from acktrail.model.batches import DeliveryState
from acktrail.plain_tables import printable
from acktrail.reconcile.past.dead_letter_reader import DeadLetterReader
from acktrail.reconcile.past.history_reader import HistoryReader, RecordInstance
from acktrail.times import instant_text
from acktrail.view import history_text
from acktrail.view.archived_rows import PartitionKey, partition_key, row_key
from acktrail_dashboard.offset_bands import STRIP_WIDTH, BandKind, StateWindow, bands, state_window, strip_paths
from acktrail_dashboard.web.queue_rows import STATUS_COLUMNS, changes_where, delivery_counts, findings_where
from acktrail_dashboard.web.trend_charts import charts_of
from acktrail_dashboard.web.web_page import Visit, WebPage

_HELD: Final = ("group_id", "topic_id", "partition", "held", "start_offset", "batches", "next_offset")
_STATE: Final = ("observed_at", "start_offset", "batches", "completeness")
_PAST: Final = 24
"""Earlier states that are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStrip:
    """The bands of one share partition at one reconciliation, on a scale that several share. `has_moved`: its start
    offset is not the one before."""

    observed_at: datetime
    window: StateWindow
    paths: list[tuple[BandKind, str]]
    has_moved: bool


def windows_of_group(
    visit: Visit, group_id: str, log_starts: Mapping[PartitionKey, int | None]
) -> dict[PartitionKey, StateWindow]:
    """The present windows of a group's share partitions, as the history holds them; those not known are not there."""
    rows = visit.read("held_states", columns=_HELD, where=pc.field("group_id") == group_id).to_pylist()
    known = [row for row in rows if row["next_offset"] is None and row["held"] == "state"]
    found = {row_key(row): state_window(row, log_start=log_starts.get(row_key(row))) for row in known}
    return {key: window for key, window in found.items() if window is not None}


def _past_strips(visit: Visit, own: pc.Expression) -> list[PastStrip]:
    """Bands at up to 24 reconciliations within the range of time, the oldest first. The x of a picture is offset minus
    start offset."""
    runs = visit.read("run_totals", columns=("run_id", "observed_at"), where=visit.within("observed_at"))
    ids: list[str] = runs.sort_by([("observed_at", "descending")])["run_id"].to_pylist()
    chosen = ids[:: max(1, -(-len(ids) // _PAST))]
    if not chosen:
        return []
    rows = visit.read("share_partition_states", columns=_STATE, where=pc.field("run_id").isin(chosen) & own)
    pairs = [(row["observed_at"], state_window(row)) for row in rows.sort_by("observed_at").to_pylist()]
    known = [(at, window) for at, window in pairs if window is not None]
    widest = max((window.end - window.start for _, window in known), default=0)
    return list(_strips(known, widest))


def _strips(known: Iterable[tuple[datetime, StateWindow]], widest: int) -> Iterable[PastStrip]:
    before: int | None = None
    for at, window in known:
        width = max(1, STRIP_WIDTH * (window.end - window.start) // max(widest, 1))
        paths = strip_paths(bands(window), width) if window.end > window.start else []
        yield PastStrip(observed_at=at, window=window, paths=paths, has_moved=before != window.start)
        before = window.start


def _context(visit: Visit) -> dict[str, Any]:
    key = _key(visit)
    group_id, topic_id, partition = key
    own = (pc.field("group_id") == group_id) & (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
    rows = visit.read("queue_statuses", columns=(*STATUS_COLUMNS, "window"), where=own).to_pylist()
    changes = changes_where(visit, own)
    if not rows and not changes["count"] and not visit.problems:
        raise UnknownName("share partition", f"{group_id} / {topic_id}:{partition}")
    row = rows[0] if rows else None
    topic = row["topic"] if row else next((each["topic"] for each in changes["rows"]), None)
    return {
        "title": f"{topic or topic_id}:{partition} of group {group_id}",
        "group_id": group_id,
        "topic": topic,
        "topic_id": topic_id,
        "partition": partition,
        "row": row,
        "window": windows_of_group(visit, group_id, {key: row["log_start_offset"] if row else None}).get(key),
        "strips": _past_strips(visit, own),
        "charts": charts_of(visit.trend(*key), row["observed_at"] if row else None, offsets=True),
        "deliveries": delivery_counts(rows),
        "findings": findings_where(visit, own),
        "changes": changes,
        "fate": _fate(visit, key),
    }


def _key(visit: Visit) -> PartitionKey:
    group_id, topic_id, partition = visit.query.get("group"), visit.text("topic"), visit.number("partition")
    if group_id is None or not topic_id or partition is None:
        raise InputError(
            "no share partition is named", hint="share-partition?group=GROUP&topic=TOPIC ID&partition=NUMBER"
        )
    return partition_key(group_id, topic_id, min(partition, 2**31 - 1))


def _fate(visit: Visit, key: PartitionKey) -> Mapping[str, Any] | None:
    """What became of a record, in the words of ``acktrail record show``; None: none was asked for. Each of `fates` is
    of one topic id: in one line, step by step, its dead letters, and what is not known."""
    try:
        offset = visit.number("offset")
        if offset is None:
            return None
        with visit.reader.lock:
            history = HistoryReader(visit.reader.tables)
            found = [_of_instance(history, key, each) for each in history.instances(*key, offset)]
    except AcktrailError as error:
        return {"error": error.message, "hint": error.hint, "fates": ()}
    return {"error": "", "hint": "", "fates": found}


def _of_instance(history: HistoryReader, key: PartitionKey, instance: RecordInstance) -> dict[str, Any]:
    group_id, topic_id, partition = key
    completeness = history.completeness(group_id, topic=topic_id, partition=partition)
    unknown = map(history_text.unknown_text, instance.history.unknown_periods)
    return {
        "topic": instance.topic.topic or instance.topic.topic_id,
        "conclusion": history_text.conclusion(instance.history),
        "steps": instance.history.intervals,
        "letters": _letters(DeadLetterReader(history), instance, group_id, partition),
        "unknown": (*unknown, *history_text.missing_without_row(completeness, instance.state_partition)),
    }


def _letters(reader: DeadLetterReader, instance: RecordInstance, group_id: str, partition: int) -> list[str]:
    states = {interval.status.delivery_state for interval in instance.history.intervals}
    if DeliveryState.ARCHIVED not in states:
        return []
    if not reader.is_exported:
        return ["dead-letter records: not exported"]
    return [
        printable(
            f"dead-letter record {of.dlq_topic}, partition {of.dlq_partition}, offset {of.dlq_offset} "
            f"({instant_text(of.timestamp_ms)}): {of.message or 'without a message'}"
            + ("" if of.is_certain else "; or of another topic that had this name")
        )
        for of in reader.of_record(group_id, instance.topic, partition, instance.history.offset)
    ]


PAGE: Final = WebPage(
    path="share-partition", title="Share partition", template="share_partition.html", context=_context
)
