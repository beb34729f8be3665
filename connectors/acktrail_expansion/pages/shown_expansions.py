"""Expansions, their fences and verdicts as pages and reports show them: rows of the tables with their words beside.

Nothing is judged here. Only the rows that are shown become Python values: one expansion can have a hundred thousand
verdicts.

Example: two groups in the two partitions that were added, ``broken`` and ``safe`` of the one, ``safe`` twice of the
other: `worst` is ``broken``, `groups` is ``{"broken": 1, "safe": 1}``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail_dashboard.wording import counted, instant, number
from acktrail_expansion import words
from acktrail_expansion.law.verdict import WORST_FIRST, NotProven, OrderVerdict

Read = Callable[..., pa.Table]
"""``Tables.read``, or ``Visit.read``, which does not raise."""
Row = dict[str, Any]

ROWS_A_PAGE: Final = 50
_COUNTED: Final = ("event_id", "group_id", "verdict", "skipped_records")
_TONES: Final = {OrderVerdict.BROKEN: "critical", OrderVerdict.SKIPPED: "critical", OrderVerdict.SAFE: "ok"}
_OLDEST: Final = "min.observed_at"
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


def tone(row: Mapping[str, Any]) -> str:
    """The tone of a verdict; one that this release does not know is never good news."""
    is_calm = row["verdict"] == OrderVerdict.NOT_PROVEN and row["reason"] == NotProven.NOT_BEGUN
    return "info" if is_calm else _verdict_tone(row["verdict"])


def _verdict_tone(verdict: str | None) -> str:
    return _TONES[OrderVerdict(verdict)] if verdict in _TONES else "unknown"


def expansions(read: Read, *, event_id: str = "", until: datetime | None = None) -> list[Row]:
    """Rows of ``partition_expansions``, the worst first, then the newest; those first seen after `until` are left out.

    Each with `worst`: the worst verdict of a group, None where no group was judged; `label` and `tone` of it; `groups`:
    groups by their worst verdict, and `groups_text`; `verdict_counts`: verdicts of groups and partitions;
    `skipped_records`: how many groups never got, as far as it is known.
    """
    where = pc.field("event_id") == event_id if event_id else None
    counts = _counts(read("expansion_verdicts", columns=_COUNTED, where=where))
    found = read("partition_expansions", where=where).to_pylist()
    shown = [
        {**row, **counts[row["event_id"]].as_row()}
        for row in found
        if until is None or row["first_seen_new_at"] is None or row["first_seen_new_at"] <= until
    ]
    shown.sort(key=lambda row: row["first_seen_new_at"] or _EARLIEST, reverse=True)
    return sorted(shown, key=lambda row: words.rank(row["worst"]) if row["worst"] else len(WORST_FIRST))


@dataclass
class _Counts:
    """What the groups of one expansion have: the worst verdict of each, all verdicts, skipped records."""

    worst: dict[str | None, str] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    skipped: int = 0

    def as_row(self) -> Row:
        groups = Counter(self.worst.values())
        worst = min(groups, key=words.rank, default=None)
        return {
            "worst": worst,
            "label": words.label(worst) if worst else "no group judged",
            "tone": _verdict_tone(worst),
            "groups": dict(groups),
            "groups_text": counts_text(groups),
            "verdict_counts": dict(self.verdicts),
            "skipped_records": self.skipped,
        }


def _counts(verdicts: pa.Table) -> Mapping[str, _Counts]:
    found: defaultdict[str, _Counts] = defaultdict(_Counts)
    by_group = verdicts.group_by(["event_id", "group_id", "verdict"], use_threads=False)
    for row in by_group.aggregate([("skipped_records", "sum"), ([], "count_all")]).to_pylist():
        own, group_id, verdict = found[row["event_id"]], row["group_id"], row["verdict"] or "unknown"
        own.worst[group_id] = min(own.worst.get(group_id, verdict), verdict, key=words.rank)
        own.verdicts[verdict] += row["count_all"]
        own.skipped += row["skipped_records_sum"] or 0
    return found


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts by verdict in words, the worst first.

    >>> counts_text({"safe": 2, "broken": 1})
    '1 order broken, 2 safe'
    """
    return ", ".join(f"{number(counts[each])} {words.label(each)}" for each in sorted(counts, key=words.rank))


def verdicts_of(
    read: Read, event_id: str, *, verdict: str = "", group_id: str = "", at: int = 1, size: int = ROWS_A_PAGE
) -> tuple[list[Row], int]:
    """Part `at` (from 1) of the verdicts of one expansion in parts of `size`, or the nearest, and how many rows there
    are: the worst first, then those with the most open or skipped records. Each has its words."""
    where = pc.field("event_id") == event_id
    for column, wanted in (("verdict", verdict), ("group_id", group_id)):
        where = where & (pc.field(column) == wanted) if wanted else where
    rows = read("expansion_verdicts", where=where)
    ranks = pc.index_in(rows["verdict"], value_set=pa.array([each.value for each in WORST_FIRST]))
    rows = rows.append_column("rank", pc.fill_null(ranks, fill_value=words.rank(None)))
    rows = rows.append_column("many", pc.max_element_wise(rows["open_records"], rows["skipped_records"]))
    order = [("rank", "ascending"), ("many", "descending"), ("group_id", "ascending"), ("partition", "ascending")]
    first = (min(max(at, 1), pages(rows.num_rows, size)) - 1) * size
    return [_worded(row) for row in rows.sort_by(order).slice(first, size).to_pylist()], rows.num_rows


def pages(total: int, size: int = ROWS_A_PAGE) -> int:
    """How many parts `total` rows have, at least one."""
    return max(1, -(-total // size))


def _worded(row: Row) -> Row:
    to_do = "" if row["verdict"] == OrderVerdict.SAFE else words.advice(row)
    said = {"label": words.label(row["verdict"]), "sentence": words.verdict_sentence(row), "advice": to_do}
    return {**row, **said, "not_seen": words.not_seen(row), "tone": tone(row)}


def fences_of(read: Read, event_id: str) -> list[Row]:
    """The fences of one expansion, those that are not known first, then the widest; with `width`: records that may be
    from before or after (None: not known), and `note`."""
    found = map(_fence, read("expansion_fences", where=pc.field("event_id") == event_id).to_pylist())
    return sorted(found, key=lambda row: (row["width"] is not None, -(row["width"] or 0), row["partition"] or 0))


def _fence(row: Row) -> Row:
    low, high, late = row["fence_low"], row["fence_high"], row["late_records"]
    width = None if low is None or high is None else high - low
    notes = [row["reason"], row["keys_reason"]]
    if late:
        notes.append(f"{counted(late, 'record')} behind it by producers with metadata older than the settle time")
    if low is not None and (row["log_start_offset"] or 0) > low:
        notes.append("the retention removed records from before it")
    note = "; ".join(each for each in notes if each)
    return {**row, "width": width if row["fence_exact"] is None else 0, "note": note}


def doubts(row: Mapping[str, Any], fences: list[Row]) -> list[str]:
    """What is not certain of one expansion, a sentence each."""
    lines = []
    if not row["is_single"]:
        counts = f"{number(row['old_count'])} to {number(row['new_count'])} partitions"
        lines.append(f"Whether the topic went from {counts} in one step: another count may have lain in between.")
    if row["status"] != "settled":
        since = f"they do from {instant(row['settles_at'])}" if row["settles_at"] else "not every broker lists it yet"
        lines.append(f"Whether every producer knows the count: {since}.")
    if row["key_mapping"] in {None, "none"}:
        lines.append("Which keys move: no mapping of keys is configured for the topic (ACKTRAIL_KEY_MAPPINGS).")
    if unknown := sum(each["width"] is None for each in fences):
        lines.append(f"Where the records from before the expansion end in {counted(unknown, 'partition')}.")
    return lines


def why_none(tables: Tables) -> str:
    """Why there is no expansion to show: nothing was looked at or judged yet, or no topic grew. Raises
    ConfigurationError, RetryableError: the tables cannot be read."""
    looks = tables.followed("partition_observations")
    if looks is None or not tables.exists("partition_expansions"):
        return f"No topic was {'looked at' if looks is None else 'audited'} yet: run {words.CHECK}."
    oldest = [each[_OLDEST] for each in looks.statistics((_OLDEST,)).values()]
    since = f" since {instant(min(oldest))}" if oldest and None not in oldest else ""
    return f"No topic gained partitions{since}."
