"""Groups and share partitions as lists: search, filter by status, in parts, worst first; one share group: members,
configuration, its share partitions, lines over time, findings; one share partition: status and evidence, lines over
time, state bands, the fate of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import AcktrailError, InputError, UnknownName
from acktrail.history.dead_letter_reader import DeadLetterReader
from acktrail.history.history_reader import HistoryReader, RecordInstance
from acktrail.tables.commit_order import in_order
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view import history_text, queue_rows
from acktrail.view.finding_rows import FINDING_COLUMNS, FindingRow, finding_row
from acktrail.view.partition_rows import PartitionKey, partition_key, row_key
from acktrail.view.wording import STATUSES
from acktrail_dashboard.offset_bands import STRIP_WIDTH, BandKind, StateWindow, bands, state_window, strip_paths
from acktrail_dashboard.trend_charts import charts_of
from acktrail_dashboard.web.web_page import Visit, WebPage

_ROUND: Final = timedelta(hours=1)
"""One observation takes less."""
_SUMMED: Final = ("unfinished_records", "archived_records", "archived_seen", *queue_rows.OUTCOMES)
"""Numbers that are summed over share partitions; None where one is known of none."""
_HELD: Final = ("group_id", "topic_id", "partition", "held", "start_offset", "batches", "next_offset")
_STATE: Final = ("observed_at", "run_number", "start_offset", "batches", "completeness")
_PAST: Final = 24
"""Earlier states that are drawn."""


def share_partitions(visit: Visit) -> pa.Table:
    """Every share partition, worst first."""
    return queue_rows.worst_first(visit.read("queue_statuses", columns=queue_rows.COLUMNS))


def findings_where(visit: Visit, where: pc.Expression) -> list[FindingRow]:
    """Findings that a filter lets through, by name and by `FindingRow.urgency`."""
    rows = visit.read("findings", columns=FINDING_COLUMNS, where=where).to_pylist()
    names = visit.topics if rows else {}
    return sorted((finding_row(row, names, visit.open_runs) for row in rows), key=lambda row: row.urgency)


def _about(visit: Visit, where: pc.Expression, statuses: list[dict[str, Any]]) -> dict[str, Any]:
    """What both pages show of what a filter lets through: findings, changes of status within the range of time, how
    many records have each delivery count, and the limit where it is one for all."""
    changes = visit.read("status_changes", where=visit.within("changed_at") & where)
    counts: Counter[int] = Counter()
    for each in (each for row in statuses for each in row["delivery_counts"] or ()):
        counts[each["delivery_count"]] += each["records"] or 0
    limits = {row["delivery_count_limit"] for row in statuses}
    return {
        "findings": findings_where(visit, where),
        "changes": queue_rows.newest_changes(changes, queue_rows.ROWS_A_PAGE),
        "deliveries": sorted(counts.items()),
        "delivery_limit": next(iter(limits)) if len(limits) == 1 else None,
    }


def _groups(visit: Visit) -> dict[str, Any]:
    rows = share_partitions(visit)
    return _listed(visit, "group", rows, queue_rows.groups_of(queue_rows.with_text(rows, visit.text("search"))))


def _partitions(visit: Visit) -> dict[str, Any]:
    rows = share_partitions(visit)
    return _listed(visit, "share partition", rows, queue_rows.with_text(rows, visit.text("search")))


def _listed(visit: Visit, noun: str, rows: pa.Table, found: pa.Table) -> dict[str, Any]:
    """`found`: what the search lets through."""
    status = visit.choice("status", STATUSES)
    chosen = queue_rows.with_status(found, status)
    part = queue_rows.part_of(chosen.num_rows, visit.number("page"))
    return {
        "noun": noun,
        "is_empty": not rows.num_rows,
        "search": visit.text("search"),
        "status": status,
        "counts": queue_rows.status_counts(found),
        "found": found.num_rows,
        "part": part,
        "rows": chosen.slice(part.first, queue_rows.ROWS_A_PAGE).to_pylist(),
    }


def _group(visit: Visit) -> dict[str, Any]:
    (group_id,) = visit.needed("id")
    own = pc.field("group_id") == group_id
    rows = queue_rows.worst_first(visit.read("queue_statuses", columns=queue_rows.STATUS_COLUMNS, where=own))
    listed = rows.to_pylist()
    about = _about(visit, own, listed)
    if not listed and not about["changes"]["count"]:
        _raise_unknown(visit, group_id)
    worst = listed[0] if listed else None
    part, counts = queue_rows.part_of(rows.num_rows, visit.number("page")), queue_rows.status_counts(rows)
    shown = listed[part.first : part.first + queue_rows.ROWS_A_PAGE]
    return {
        "title": f"Group {group_id}",
        "group_id": group_id,
        "worst": worst,
        "shares": queue_rows.tone_counts(counts),
        "counts": counts,
        "totals": {name: pc.sum(rows[name]).as_py() for name in _SUMMED},
        "unfinished_unknown": rows["unfinished_records"].null_count,
        "part": part,
        "rows": shown,
        "windows": windows_of_group(visit, group_id, {row_key(row): row["log_start_offset"] for row in shown}),
        "observed": None if worst is None else _observed(visit, worst),
        "charts": charts_of(visit.trend(group_id), worst["observed_at"] if worst else None, offsets=False),
        **about,
        "key_of": row_key,
    }


def _observed(visit: Visit, newest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the group coordinator last described; None: it is not known."""
    recent = pc.field("observed_at") >= pa.scalar(newest["observed_at"] - _ROUND)
    rows = visit.read("group_observations", where=(pc.field("group_id") == newest["group_id"]) & recent)
    found: list[dict[str, Any]] = in_order(rows, newest_first=True).slice(0, 1).to_pylist()
    return found[0] if found else None


def _raise_unknown(visit: Visit, group_id: str) -> None:
    if visit.problems:
        return
    known = pc.unique(share_partitions(visit)["group_id"]).drop_null().to_pylist()
    raise UnknownName("share group", group_id, known=known)


def windows_of_group(
    visit: Visit, group_id: str, log_starts: Mapping[PartitionKey, int | None]
) -> dict[PartitionKey, StateWindow]:
    """The present windows of a group's share partitions, as the history holds them; those not known are not there."""
    rows = visit.read("held_states", columns=_HELD, where=pc.field("group_id") == group_id).to_pylist()
    known = [row for row in rows if row["next_offset"] is None and row["held"] == "state"]
    found = {row_key(row): state_window(row, log_start=log_starts.get(row_key(row))) for row in known}
    return {key: window for key, window in found.items() if window is not None}


def _past_strips(visit: Visit, own: pc.Expression) -> list[dict[str, Any]]:
    """Bands at up to 24 reconciliations within the range of time, the oldest first, on a scale that all share. The x of
    a picture is offset minus start offset. `has_moved`: the start offset is not the one before."""
    runs = visit.read("run_totals", columns=("run_id", "run_number"), where=visit.within("observed_at"))
    ids: list[str] = in_order(runs, newest_first=True)["run_id"].to_pylist()
    chosen = ids[:: max(1, -(-len(ids) // _PAST))]
    if not chosen:
        return []
    rows = visit.read("share_partition_states", columns=_STATE, where=one_of("run_id", chosen) & own)
    pairs = [(row["observed_at"], state_window(row)) for row in in_order(rows).to_pylist()]
    known = [(at, window) for at, window in pairs if window is not None]
    widest = max((window.end - window.start for _, window in known), default=0)
    starts = [None, *(window.start for _, window in known)]
    return [
        {"observed_at": at, "window": own, "paths": _paths(own, widest), "has_moved": before != own.start}
        for before, (at, own) in zip(starts, known, strict=False)
    ]


def _paths(window: StateWindow, widest: int) -> list[tuple[BandKind, str]]:
    width = max(1, STRIP_WIDTH * (window.end - window.start) // max(widest, 1))
    return strip_paths(bands(window), width) if window.end > window.start else []


def _share_partition(visit: Visit) -> dict[str, Any]:
    key = _key(visit)
    group_id, topic_id, partition = key
    own = (pc.field("group_id") == group_id) & (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
    rows = visit.read("queue_statuses", columns=(*queue_rows.STATUS_COLUMNS, "window"), where=own).to_pylist()
    about = _about(visit, own, rows)
    changes = about["changes"]
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
        **about,
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
    letters = history_text.letters_of(DeadLetterReader(history), instance, group_id, partition)
    return {
        "topic": instance.topic.topic or instance.topic.topic_id,
        "conclusion": history_text.conclusion(instance.history),
        "steps": instance.history.intervals,
        "letters": history_text.letter_lines(letters),
        "unknown": history_text.unknown_lines(instance.history, completeness, instance.state_partition),
    }


PAGES: Final = (
    WebPage(path="groups", title="Share groups", template="groups.html", context=_groups, menu="Groups"),
    WebPage(
        path="share-partitions",
        title="Share partitions",
        template="groups.html",
        context=_partitions,
        menu="Share partitions",
    ),
    WebPage(path="group", title="Share group", template="group.html", context=_group),
    WebPage(path="share-partition", title="Share partition", template="share_partition.html", context=_share_partition),
)
