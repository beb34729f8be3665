"""Share partitions and groups of the newest reconciliation, worst first, filtered: all in Arrow, for 5,000 of them are
sorted for every page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail_dashboard.status_wording import STATUSES, status_rank, status_tone
from acktrail_dashboard.web.web_page import Visit
from acktrail_dashboard.wording import TONES

COLUMNS: Final = (
    "cluster_id", "run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since",
    "reason", "completeness", "group_state", "members", "first_unfinished_offset", "log_end_offset",
    "unfinished_records", "archived_records",
)  # fmt: skip
"""All that lists show; the wide columns are read for one share partition alone."""
RANK: Final = "rank"
_UNKNOWN_RANK: Final = status_rank(None)
_WORST_FIRST: Final = ((RANK, "ascending"), ("unfinished_records", "descending"))
_ADDRESS: Final = (
    ("group_id", "ascending"),
    ("topic", "ascending"),
    ("topic_id", "ascending"),
    ("partition", "ascending"),
)
_OF_GROUP: Final = (
    (RANK, "min"), ("status", "first"), ("status_since", "first"), ("reason", "first"), ("unfinished_records", "sum"),
    (RANK, "count"), ("unfinished_records", "count"), ("members", "max"), ("group_state", "first"),
    ("topic_id", "first"), ("topic", "first"), ("partition", "first"),
)  # fmt: skip
_GROUP_COLUMNS: Final = [
    *("group_id", RANK, "status", "status_since", "reason", "unfinished_records", "partitions", "unfinished_known"),
    *("members", "state", "topic_id", "topic", "partition"),
]


def queue_rows(visit: Visit) -> pa.Table:
    """Every share partition in `COLUMNS` and its rank, worst first."""
    return worst_first(visit.read("queue_statuses", columns=COLUMNS))


def worst_first(rows: pa.Table) -> pa.Table:
    """Rows of ``queue_statuses`` with their rank, worst first."""
    ranks = pc.fill_null(pc.index_in(rows["status"], value_set=pa.array(STATUSES)), _UNKNOWN_RANK)
    return rows.append_column(RANK, pc.cast(ranks, pa.int32())).sort_by([*_WORST_FIRST, *_ADDRESS])


def with_text(rows: pa.Table, text: str) -> pa.Table:
    """Rows whose group id, topic or topic id has `text` in it, in upper or lower case."""
    if not text:
        return rows
    found = [
        pc.fill_null(pc.match_substring(rows[name], text, ignore_case=True), fill_value=False)
        for name in ("group_id", "topic", "topic_id")
    ]
    return rows.filter(pc.or_(pc.or_(found[0], found[1]), found[2]))


def with_status(rows: pa.Table, status: str) -> pa.Table:
    """Rows of a status; empty: all."""
    return rows.filter(pc.equal(rows[RANK], STATUSES.index(status))) if status else rows


def status_counts(rows: pa.Table) -> dict[str, int]:
    """How many rows each status has, worst first, those without any left out."""
    counts = {each["values"]: each["counts"] for each in pc.value_counts(rows[RANK]).to_pylist()}
    return {status: counts[rank] for rank, status in enumerate(STATUSES) if counts.get(rank)}


def tone_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts by status as counts by tone, the most urgent first."""
    found = dict.fromkeys(TONES, 0)
    for status, count in counts.items():
        found[status_tone(status)] += count
    return [(tone, count) for tone, count in found.items() if count]


def groups_of(rows: pa.Table) -> pa.Table:
    """One row a group, worst first, of `rows` that are worst first: its worst status with since, reason and share
    partition, the sum of the unfinished records that are known, how many share partitions it has, and of how many they
    are."""
    found = rows.group_by("group_id", use_threads=False).aggregate(list(_OF_GROUP))
    return found.rename_columns(_GROUP_COLUMNS).sort_by([*_WORST_FIRST, ("group_id", "ascending")])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPart:
    """Part `at` (from 1) of `count` of a list of `total` rows."""

    rows: list[dict[str, Any]]
    at: int
    count: int
    total: int


def part_of(rows: pa.Table, wanted: int | None, size: int) -> ListPart:
    """The part `wanted` of a list, or the nearest there is."""
    count = max(1, -(-rows.num_rows // size))
    at = min(max(1, wanted or 1), count)
    return ListPart(rows=rows.slice((at - 1) * size, size).to_pylist(), at=at, count=count, total=rows.num_rows)
