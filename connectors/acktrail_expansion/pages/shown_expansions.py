"""Expansions, their fences and verdicts as pages, reports and commands show them: rows of the tables with their words.

Nothing is judged here. Only the rows that are shown become Python values: one expansion can have a hundred thousand
verdicts.

Example: two groups in the two partitions that were added, ``broken`` and ``safe`` of the one, ``safe`` twice of the
other: `worst` is ``broken``, `groups` is ``{"broken": 1, "safe": 1}``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.view.wording import instant, number
from acktrail_expansion import words
from acktrail_expansion.law.order import OrderVerdict
from acktrail_expansion.quality.expansion_findings import worst_first

Read = Callable[..., pa.Table]
"""``Tables.read``, or ``Visit.read``, which does not raise."""
Row = dict[str, Any]

_COUNTED: Final = ("event_id", "group_id", "partition", "verdict", "open_records", "skipped_records")
_TONES: Final = {OrderVerdict.BROKEN: "critical", OrderVerdict.SKIPPED: "critical", OrderVerdict.SAFE: "ok"}
_OLDEST: Final = "min.observed_at"
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


def expansions(read: Read, *, event_id: str = "", until: datetime | None = None) -> list[Row]:
    """Rows of ``partition_expansions``, the worst first, then the newest; those first seen after `until` are left out.

    Each with `worst`: the worst verdict of a group, None where no group was judged; `tone` of it; `groups`: groups by
    their worst verdict, and `groups_text`; `skipped_records`: how many groups never got, as far as it is known.
    """
    where = pc.field("event_id") == event_id if event_id else None
    groups, skipped = _of_groups(read("expansion_verdicts", columns=_COUNTED, where=where))
    shown = [
        {**row, **_judged(groups[row["event_id"]]), "skipped_records": skipped[row["event_id"]]}
        for row in read("partition_expansions", where=where).to_pylist()
        if until is None or row["first_seen_new_at"] is None or row["first_seen_new_at"] <= until
    ]
    shown.sort(key=lambda row: row["first_seen_new_at"] or _EARLIEST, reverse=True)
    return sorted(shown, key=lambda row: words.rank(row["worst"]) if row["worst"] else len(words.LABELS))


def _of_groups(verdicts: pa.Table) -> tuple[Mapping[str, Counter[str]], Mapping[str, int]]:
    """By expansion: groups by their worst verdict, and skipped records."""
    groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
    skipped: Counter[str] = Counter()
    own = worst_first(verdicts).group_by(["event_id", "group_id"], use_threads=False)
    for row in own.aggregate([("verdict", "first"), ("skipped_records", "sum")]).to_pylist():
        groups[row["event_id"]][row["verdict_first"] or "unknown"] += 1
        skipped[row["event_id"]] += row["skipped_records_sum"] or 0
    return groups, skipped


def _judged(groups: Mapping[str, int]) -> Row:
    worst = min(groups, key=words.rank, default=None)
    return {"worst": worst, "tone": _tone(worst), "groups": dict(groups), "groups_text": counts_text(groups)}


def _tone(verdict: str | None) -> str:
    """One that this release does not know is never good news."""
    return _TONES[OrderVerdict(verdict)] if verdict in _TONES else "unknown"


def counts_text(groups: Mapping[str, int]) -> str:
    """Groups by verdict in words, the worst first.

    >>> counts_text({"safe": 2, "broken": 1})
    '1 order broken, 2 safe'
    """
    named = (f"{number(groups[each])} {words.label(each)}" for each in sorted(groups, key=words.rank))
    return ", ".join(named) or "no group judged"


def detailed(read: Read, row: Mapping[str, Any], size: int, group_id: str = "") -> Row:
    """One of `expansions` with what is known of it. `verdicts`: the worst `size` of all groups, or of one, with their
    words; `fences`: the first `size`, those that are not known before the others; `verdict_count` and `fence_count`:
    how many there are; `doubts`."""
    where = pc.field("event_id") == row["event_id"]
    fences = read("expansion_fences", where=where).to_pylist()
    fences.sort(key=lambda each: (each["fence_high"] is not None, each["partition"] or 0))
    later = (pc.field("topic_id") == row["topic_id"]) & (pc.field("sequence") > row["sequence"])
    is_newest = not read("partition_expansions", columns=["sequence"], where=later).num_rows
    verdicts = read("expansion_verdicts", where=where & (pc.field("group_id") == group_id) if group_id else where)
    return {
        **row,
        "verdicts": [_worded(each, is_newest=is_newest) for each in worst_first(verdicts).slice(0, size).to_pylist()],
        "verdict_count": verdicts.num_rows,
        "fences": fences[:size],
        "fence_count": len(fences),
        "doubts": [*_doubts(row)],
    }


def _worded(row: Row, *, is_newest: bool) -> Row:
    said = {"label": words.label(row["verdict"]), "sentence": words.verdict_sentence(row)}
    return {**row, **said, "advice": words.advice(row, is_newest=is_newest), "tone": _tone(row["verdict"])}


def _doubts(row: Mapping[str, Any]) -> Iterator[str]:
    """What is not certain of one expansion, a sentence each."""
    if not row["is_single"]:
        yield "Whether the topic grew in one step: another count may have lain in between."
    if row["status"] != "settled":
        since = f"they do from {instant(row['settles_at'])}" if row["settles_at"] else "not every broker lists it yet"
        yield f"Whether every producer knows the count: {since}."
    if row["key_mapping"] in {None, "none"}:
        yield "Which keys move: no mapping of keys is configured for the topic (ACKTRAIL_KEY_MAPPINGS)."


def why_none(tables: Tables) -> str:
    """Why there is no expansion to show: nothing was looked at or judged yet, or no topic grew. Raises
    ConfigurationError, RetryableError: the tables cannot be read."""
    looks = tables.followed("partition_observations")
    if looks is None or not tables.exists("partition_expansions"):
        return f"No topic was {'looked at' if looks is None else 'audited'} yet: run {words.CHECK}."
    oldest = [each[_OLDEST] for each in looks.statistics((_OLDEST,)).values()]
    since = f" since {instant(min(oldest))}" if oldest and None not in oldest else ""
    return f"No topic gained partitions{since}."
